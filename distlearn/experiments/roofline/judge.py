"""The worst and the best shape of a dense layer, judged by the bytes it needs and by those the emulator counts."""

from __future__ import annotations

import math
from numbers import Integral

import numpy as np

from ...cuda.kernel import RawKernel
from ...cuda.kernels.matmul import ANY_TILE, BLOCKED, NAIVE, TILED
from ...cuda.kernels.variant import source
from ...cuda.report import Report

COUNTED = 1 << 17
"""Multiply-adds up to which a product is run in the emulator: more takes seconds."""


def least_bytes(batch: int, d_in: int, d_out: int, itemsize: int = 4) -> int:
    """Return the fewest bytes that a product (batch, d_in) times (d_in, d_out) can move: each number once.

    Examples
    --------
    >>> least_bytes(1, 10, 20)
    920
    """
    return itemsize * (batch * d_in + d_in * d_out + batch * d_out)


def tiled_report(batch: int, d_in: int, d_out: int, tile: int) -> Report:
    """Run a product in square tiles of shared memory in the emulator.

    Parameters
    ----------
    batch, d_in, d_out : int
    tile : int
        Up to 32: a block has tile x tile threads.
    """
    a, b, c = _matrices(batch, d_in, d_out)
    grid, sizes = (-(-d_out // tile), -(-batch // tile)), np.array([batch, d_out, d_in], np.int32)
    kernel = RawKernel(source(ANY_TILE.file), ANY_TILE.kernel)
    return kernel.check(grid, (tile, tile), (a, b, c, *sizes), shared_mem=8 * tile * tile)


def counted(batch: int, d_in: int, d_out: int) -> Report:
    """Run a product by the library's kernels in the emulator; return the report that moves the fewest bytes.

    Parameters
    ----------
    batch, d_in, d_out : int
    """
    a, b, c = _matrices(batch, d_in, d_out)
    kernels = (BLOCKED,) if min(batch, d_out) >= 16 else (NAIVE, TILED)  # a block is no use for one row or column
    return min((kernel.check(a, b, c) for kernel in kernels), key=lambda report: report.bytes_moved)


def _matrices(batch, d_in, d_out):
    return [np.ones(shape, np.float32) for shape in ((batch, d_in), (d_in, d_out), (batch, d_out))]


def judge_shape(check, name: str, shape, n: int, ridge: float, *, low: float | None = None, high: float | None = None):
    """Check a dense layer's shape: its multiply-adds, and the share of a machine's peak that its bytes permit.

    Parameters
    ----------
    check : Check
        Of the cell, which reports.
    name : str
        Of the shape.
    shape : (batch, d_in, d_out)
    n : int
        Multiply-adds that it must have.
    ridge : float
        Of the machine: operations per byte at which arithmetic becomes the limit.
    low, high : float, optional
        The share must be under `low`, or over `high`, by the fewest bytes. If n is small enough for the emulator it
        must be over `high` also by the bytes that it counts; they are never fewer, so `low` needs no emulator.
    """
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else ()
    whole = len(sizes) == 3 and all(isinstance(s, Integral) and s >= 1 for s in sizes)
    if not whole:
        return check.true(f"{name} has three sizes", False, f"{shape!r}: expected three whole numbers of 1 or more")
    sizes = tuple(int(s) for s in sizes)
    label = f"{name} {sizes}"
    check.equal(f"multiply-adds of {label}", math.prod(sizes), n, suspects={
        "these are operations: a multiply-add is two": n // 2})  # fmt: skip
    if math.prod(sizes) != n:
        return None
    wanted = f"under {low:.0%}" if low is not None else f"over {high:.0%}"
    moved = {"at best": least_bytes(*sizes)}
    if high is not None and n <= COUNTED:
        moved["counted by the emulator"] = counted(*sizes).bytes_moved
    for how, nbytes in moved.items():
        share = min(1.0, 2 * n / nbytes / ridge)
        told = f"{share:.1%} of the peak, wanted {wanted}: {2 * n:,} operations on {nbytes:,} bytes, ridge {ridge:g}"
        good = share < low if low is not None else share > high
        check.true(f"{label}, {how}", good, told)
    return None
