"""Launches of scan.cu."""

import numpy as np

from . import floats, i32, launch, zeros

FILE = "scan.cu"
X = np.random.default_rng(0).integers(-50, 100, 1000).astype(i32)


@launch(FILE, shared_mem=1024, atol=1e-4)
def scan_hillis_steele():
    x = floats(100)
    return (1,), (128,), (x, zeros(100), i32(100)), {1: np.cumsum(x)}


@launch(FILE)
def scan_by_warps():
    sums = [np.cumsum(X[i : i + 128]) for i in range(0, 1000, 128)]
    args = (X, zeros(1000, dtype=i32), zeros(8, dtype=i32), i32(1000))
    return (8,), (128,), args, {1: np.concatenate(sums), 2: [s[-1] for s in sums]}


@launch(FILE)
def scan_tile():
    x = X[:64].reshape(8, 8)
    want = np.cumsum(x, axis=1)
    args = (x.ravel(), zeros(64, dtype=i32), zeros(64, dtype=i32))
    return (1,), (64,), args, {1: want.ravel(), 2: (want - x).ravel()}


@launch(FILE)
def histogram_shared():
    data = (X % 251).astype(np.uint8)
    return (3,), (96,), (data, zeros(64, dtype=i32), i32(1000)), {1: np.bincount(data % 64, minlength=64)}


def filtered(block):
    """Blocks and warps run in order, and lanes keep theirs: so what is kept stays in order here."""
    kept = X[X > 0]
    want = np.zeros(1000, i32)
    want[: kept.size] = kept
    return (-(-1000 // block),), (block,), (X, zeros(1000, dtype=i32), zeros(1, dtype=i32), i32(1000)), {2: [kept.size]}


@launch(FILE, may_warn=("uninitialised-local",))  # clang does: only the leader sets `base` before the shuffle
def filter_positive():
    return filtered(64)


@launch(FILE)
def filter_by_coalesced_group():
    return filtered(128)


@launch(FILE, shared_mem=1024)
def bitonic_sort():
    return (1,), (256,), (X[:256].copy(),), {0: np.sort(X[:256])}
