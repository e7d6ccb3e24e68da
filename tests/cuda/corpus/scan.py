"""Launches of scan.cu."""

import numpy as np

from . import floats, i32, launch, u32, zeros

FILE = "scan.cu"
X = np.random.default_rng(0).integers(-50, 100, 1000).astype(i32)
TEXT = np.frombuffer(b"the quick brown fox jumps over the lazy dog aabbccddeeff" * 7, np.int8)


@launch(FILE, shared_mem=1024, atol=1e-4)
def scan_hillis_steele():
    x = floats(100)
    return (1,), (128,), (x, zeros(100), i32(100)), {1: np.cumsum(x)}


@launch(FILE, shared_mem=4 * 136)
def scan_blelloch():
    x = X[:128]
    return (1,), (64,), (x, zeros(128, dtype=i32), i32(128)), {1: np.cumsum(x) - x}


def by_blocks():
    return np.concatenate([np.cumsum(X[i : i + 128]) for i in range(0, 1000, 128)])


@launch(FILE)
def scan_by_warps():
    sums = [X[i : i + 128].sum() for i in range(0, 1000, 128)]
    args = (X, zeros(1000, dtype=i32), zeros(8, dtype=i32), i32(1000))
    return (8,), (128,), args, {1: by_blocks(), 2: sums}


@launch(FILE)
def add_block_offsets():
    sums = np.array([X[i : i + 128].sum() for i in range(0, 1000, 128)], i32)
    return (8,), (128,), (by_blocks().astype(i32), sums, i32(1000)), {0: np.cumsum(X)}


@launch(FILE)
def scan_tile():
    x = X[:64].reshape(8, 8)
    want = np.cumsum(x, axis=1)
    return (
        (1,),
        (64,),
        (x.ravel(), zeros(64, dtype=i32), zeros(64, dtype=i32)),
        {1: want.ravel(), 2: (want - x).ravel()},
    )


@launch(FILE)
def histogram_shared():
    data = (X % 251).astype(np.uint8)
    return (3,), (96,), (data, zeros(64, dtype=i32), i32(1000)), {1: np.bincount(data % 64, minlength=64)}


@launch(FILE)
def histogram_aggregated():
    letters = TEXT[(TEXT >= 97) & (TEXT < 123)] - 97
    args = (TEXT, u32(TEXT.size), zeros(7, dtype=u32))
    return (2,), (64,), args, {2: np.bincount(letters // 4, minlength=7)}


@launch(FILE)
def compact_by_ballot():
    kept = X[X < 20]
    want = np.zeros(1001, i32)
    want[: kept.size], want[1000] = kept, kept.size
    return (1,), (32,), (X, zeros(1001, dtype=i32), i32(1000), i32(20)), {1: want}


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


@launch(FILE)
def odd_even_sort():
    x = floats(75)
    return (1,), (64,), (x.copy(), i32(75)), {0: np.sort(x)}


@launch(FILE)
def split_by_bit():
    x = X[:128].astype(u32)
    bit = x >> 3 & 1
    return (1,), (128,), (x, zeros(128, dtype=u32), i32(3)), {1: np.concatenate([x[bit == 0], x[bit == 1]])}


@launch(FILE)
def merge_paths():
    a, b = np.sort(X[:300]), np.sort(X[300:500])
    args = (a, i32(300), b, i32(200), zeros(500, dtype=i32))
    return (2,), (64,), args, {4: np.sort(X[:500])}
