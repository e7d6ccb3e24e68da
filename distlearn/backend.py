"""The one place that chooses between NumPy and CuPy.

Nothing else in the library imports CuPy. Code asks the *data* where it lives (`get_xp`), never a global switch, so
NumPy and CuPy arrays can be used side by side in one process (a parameter server on the CPU beside workers on GPUs).
"""

from __future__ import annotations

import functools
import math
import os
import sys
from types import ModuleType
from typing import Any

import numpy as np

Array = np.ndarray
"""What type checkers read for an array of NumPy or CuPy: CuPy has no stubs."""


@functools.cache
def has_gpu() -> bool:
    """Say whether there is at least one GPU that CuPy can use; CuPy is imported only where there is a driver."""
    if not may_have_gpu():
        return False
    try:
        import cupy
    except ImportError:
        return False
    except OSError as error:  # it makes a folder for compiled kernels
        error.add_note("CuPy needs a folder that it can write to: set CUPY_CACHE_DIR")
        raise
    try:
        return bool(cupy.cuda.is_available())
    except Exception:  # a broken driver raises all sorts; to the caller it is the same as no GPU
        return False


def may_have_gpu() -> bool:
    """Say whether this machine has NVIDIA's driver, without loading anything: where it has none, it has no GPU."""
    return any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/dxg")) or (
        sys.platform == "win32" and os.path.exists(r"C:\Windows\System32\nvcuda.dll")
    )


def take_gpu(number: int) -> str:
    """Make one of this machine's GPUs the current one; return its address on the bus, or "" if there is no GPU."""
    if not has_gpu():
        return ""
    import cupy

    device = cupy.cuda.Device(number % cupy.cuda.runtime.getDeviceCount())
    device.use()
    return device.pci_bus_id


def get_xp(*arrays: Any) -> ModuleType:
    """Return the array module of the data: `cupy` if any array lives on a GPU, else `numpy`."""
    for x in arrays:
        if isinstance(x, np.ndarray) or np.isscalar(x):
            continue
        module = type(x).__module__.partition(".")[0]
        if module == "cupy":
            return sys.modules["cupy"]
        if hasattr(x, "__array_namespace__"):  # any other array type that brings its own module
            return x.__array_namespace__()
    return np


def has_values(x) -> bool:
    """Say whether an array has more than shape and dtype: a `MetaArray` has not."""
    return not hasattr(x, "block")


def share_memory(x, y) -> bool:
    """Say whether two arrays without gaps have a byte in common."""
    if isinstance(x, np.ndarray) and isinstance(y, np.ndarray):
        a, b = (x if x.base is None else x.base), (y if y.base is None else y.base)
        if a is not b and a.__class__ is np.ndarray is b.__class__ and a.base is None and b.base is None:
            return False  # views of two arrays that own their memory: nearly always, and faster to say
        return np.may_share_memory(x, y)
    if not (hasattr(x, "data") and hasattr(y, "data") and x.nbytes and y.nbytes):  # arrays without data have none
        return False
    if get_xp(x) is np or get_xp(y) is np:
        return False
    return x.data.ptr < y.data.ptr + y.nbytes and y.data.ptr < x.data.ptr + x.nbytes


def can_launch(*arrays, dtypes=("float32",)) -> bool:
    """Say whether a CUDA kernel can work on these arrays: all on a GPU, of one of `dtypes`, and without gaps.

    Layers, losses and optimizers ask this before they hand their arrays to one of the library's kernels
    (`distlearn.cuda.kernels`); where the answer is no they compute with array operations.
    """
    first = arrays[0]
    if isinstance(first, np.ndarray):  # on a CPU: the answer must cost nothing
        return False
    xp = get_xp(first)
    if not hasattr(xp, "RawModule") or first.dtype.name not in dtypes:
        return False
    return all(
        get_xp(a) is xp and a.dtype == first.dtype and a.flags.c_contiguous and 0 < a.size < 2**31 for a in arrays
    )


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """Multiply matrices; half precision is multiplied in single and rounded once, as tensor cores do.

    NumPy has no half-precision GEMM: its loop is a thousand times slower, and rounds after every addition.
    """
    xp = get_xp(a)
    if a.dtype == np.float16 and xp is np:
        product = rounded(single(a) @ single(b), a.dtype)
        if out is None:
            return product
        out[...] = product
        return out
    return xp.matmul(a, b, out=out)


def column_sums(x):
    """Sum over all axes but the last: as a matrix-vector product, ten times faster than `sum` for few columns."""
    # Of images, whole rows are summed first, and then the pixels of one: the product, too, is faster with many columns.
    if x.dtype == np.float16:
        return rounded(column_sums(single(x)), x.dtype)
    xp, columns = get_xp(x), x.shape[-1] if x.ndim < 4 else x.shape[-2] * x.shape[-1]
    if not x.size:
        return xp.zeros(x.shape[-1], x.dtype)
    rows = x.reshape(-1, columns)
    sums = matmul(xp.ones(len(rows), x.dtype), rows)
    return sums if x.ndim < 4 else sums.reshape(x.shape[-2:]).sum(axis=0)


def single(x):
    """Return half precision as single: sums in half stand still where a term is lost, from 2,048 ones on."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def rounded(x, dtype):
    """Round a result of `single` to `dtype`; values too large for it become infinite, without a warning."""
    if x.dtype == dtype:
        return x
    with np.errstate(over="ignore"):
        return x.astype(dtype)


def views_like(flat, arrays) -> list[Any]:
    """Return views of a flat array, one after another, in the shapes of `arrays`."""
    found, start = [], 0
    for x in arrays:
        found.append(flat[start : start + x.size].reshape(x.shape))
        start += x.size
    return found


def norm(x) -> float:
    """Return the norm of an array as a vector, also where its squares are too large or too small for its dtype."""
    x = single(x)
    squares = float((x * x).sum(dtype=np.float64))
    if 1e-20 < squares < math.inf or math.isnan(squares) or not x.size:
        return math.sqrt(squares)
    largest = float(abs(x).max())
    if not 0 < largest < math.inf:
        return largest
    return largest * math.sqrt(float(((x / x.dtype.type(largest)) ** 2).sum(dtype=np.float64)))


def to_device(x: Array, device: str = "cpu") -> Array:
    """Copy an array to a device, or return it unchanged when it is there already.

    Parameters
    ----------
    device : "cpu", "gpu" or int
        `"gpu"` is the current GPU; an integer is the index of one.

    Raises
    ------
    RuntimeError
        If a GPU is asked for and there is none.
    """
    if device == "cpu":
        return to_numpy(x)
    if device != "gpu" and not isinstance(device, int):
        raise ValueError(f"to_device: device is {device!r}, expected 'cpu', 'gpu' or the index of a GPU")
    if not has_gpu():
        raise RuntimeError(
            f"to_device: device {device!r} was asked for, but no usable GPU was found (see `distlearn doctor`)"
        )
    import cupy

    with cupy.cuda.Device(cupy.cuda.runtime.getDevice() if device == "gpu" else device):
        return cupy.asarray(x)


def to_numpy(x: Array) -> np.ndarray:
    """Return `x` as a NumPy array, copied from the GPU when it lives there."""
    if isinstance(x, np.ndarray):
        return x
    return x.get() if type(x).__module__.partition(".")[0] == "cupy" else np.asarray(x)


def same_bytes(x, y) -> bool:
    """Compare two arrays bit for bit, so that NaN equals itself; meta arrays are always equal."""
    kind = "u8" if x.nbytes % 8 == 0 and x.dtype.itemsize in (1, 2, 4, 8, 16) else "u1"  # a record may have 12 bytes
    return x.size == 0 or not hasattr(x, "view") or bool((x.reshape(-1).view(kind) == y.reshape(-1).view(kind)).all())
