"""Array operations that several layers share, each with the reason why one call of NumPy is not enough."""

from __future__ import annotations

import ctypes
import functools
import math
import os

import numpy as np

from ..backend import can_launch, get_xp

CACHE_BYTES = 256 * 1024  # A work buffer of this size stays in a core's second-level cache while a GEMM reads it.
LONG = 128  # Contiguous values from which on NumPy's cost of a run does not show.
DEVICE_BYTES = 256 * 1024 * 1024  # Work buffer on a GPU, which wants few and large kernels.


def add_bias(y, b) -> None:
    """Add the row `b` to every row of the last axis of the contiguous array `y`, in place."""
    # A narrow row is first repeated to the size of an image: NumPy pays for every run of contiguous elements.
    if y.ndim > 2 and len(b) < 256:
        b = get_xp(b).tile(b, math.prod(y.shape[1:-1]))
        y = y.reshape(len(y), -1)
    y += b


def bias_grad(dy, b, y=None) -> None:
    """On a GPU, add the column sums of `dy` to a bias' gradient; first clip it by a ReLU's output y, in one pass."""
    from ..cuda.kernels import bias_grad as launch

    launch(y, dy, *b.memory())


def bias_relu(y, b) -> None:
    """Add the row `b` to the contiguous array `y` and replace negative values by zero, in place.

    On a GPU the two are one pass over memory, the only cost.
    """
    if can_launch(y, b):
        from ..cuda.kernels import bias_relu as launch

        launch(y, b, y)
        return
    add_bias(y, b)
    get_xp(y).maximum(y, get_xp(y).zeros(y.shape[1:], y.dtype), out=y)


def blocks(n: int, rows: int, row_bytes: int, xp) -> list[tuple[slice, slice]]:
    """Cut `n` images of `rows` rows into blocks whose work buffer, of `row_bytes` a row, stays in the cache."""
    # blocks: Several whole images each, or some rows of one image where one alone is too large.
    budget = getattr(xp, "WORK_BYTES", CACHE_BYTES if xp is np else DEVICE_BYTES)
    step = budget // max(1, rows * row_bytes)
    if step >= 1:
        return [(slice(i, min(i + step, n)), slice(0, rows)) for i in range(0, n, step)]
    step = max(1, budget // row_bytes)
    return [(slice(i, i + 1), slice(j, min(j + step, rows))) for i in range(n) for j in range(0, rows, step)]


def batches(n: int, sample_bytes: int, xp, cache: int = 8 * CACHE_BYTES) -> list[slice]:
    """Split `n` samples into batches that stay in a cache from one pass to the next: in the larger, shared one."""
    budget = getattr(xp, "WORK_BYTES", cache if xp is np else DEVICE_BYTES)
    step = budget // max(1, sample_bytes) or 1
    return [slice(i, min(i + step, n)) for i in range(0, n, step)]


def gathered(x):
    """Copy strided pixels, (n, h, w, c), to contiguous memory, so that the next operation has one long run."""
    # NumPy pays for every run of contiguous values, and an operation pays four times what a copy does; a copy whose
    # items are pixels, not values, pays half of that again. On other devices, and with many channels, `x` itself is as
    # good.
    if not isinstance(x, np.ndarray) or x.strides[-1] != x.itemsize or not x.size or x.shape[-1] > LONG:
        return x
    pixel = np.dtype((np.void, x.shape[-1] * x.itemsize))
    return np.ascontiguousarray(x.view(pixel)).view(x.dtype)


# -- memory of large arrays --------------------------------------------------------------------------------------------
# The C library gives large blocks back to the kernel as soon as they are freed, and the kernel hands out every new
# page zeroed, at the first touch of it. A training step that makes and frees a few megabytes then spends more time in
# page faults than in arithmetic. With this setting the next step reuses the same warm memory; the price is that the
# process never shrinks. DISTLEARN_KEEP_MEMORY=0 in the environment leaves the allocator alone. On GPUs CuPy's pool
# does the same.


M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4  # malloc.h


@functools.cache
def keep_memory() -> bool:
    """Tell the C library to keep freed memory for the next allocation; return whether it will.

    It changes the whole process, so nothing here calls it: programs do (`distlearn train`, the benchmarks).
    """
    if os.environ.get("DISTLEARN_KEEP_MEMORY", "1") == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # not the GNU C library
        return False
    settings = {M_MMAP_MAX: 0, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 64 * 2**20}
    return all(mallopt(name, value) == 1 for name, value in settings.items())
