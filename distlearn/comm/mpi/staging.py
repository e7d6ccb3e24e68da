"""How arrays on a GPU reach MPI: directly where it can access GPU memory, and through host memory elsewhere.

MPI from a wheel cannot. `to_host` returns the array that MPI sees (a NumPy array itself, a copy of anything else),
`from_host` copies what MPI wrote back into the original. Both are free for NumPy arrays, and cost one copy over the bus
for CuPy's. A "CUDA-aware" MPI gets CuPy's arrays as they are; it does not know about streams, so all work launched
before must have finished.
"""

from __future__ import annotations

import ctypes
import functools
import sys

import numpy as np

from ...backend import get_xp, to_numpy


@functools.cache
def mpi_reads_gpu() -> bool:
    """Return whether the MPI that mpi4py has loaded can read and write the memory of a GPU.

    Open MPI and MPICH both answer by `MPIX_Query_cuda_support`; an MPI without that function cannot.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    try:
        query = ctypes.CDLL(mpi.__file__).MPIX_Query_cuda_support
    except (AttributeError, OSError):
        return False
    return query() == 1


def to_host(x, load: bool = True):
    """Return an array that MPI can use: `x` itself if possible, else a host array (with its contents if `load`)."""
    if isinstance(x, np.ndarray):
        return x
    if mpi_reads_gpu():
        return synchronized(x)
    return np.ascontiguousarray(to_numpy(x)) if load else np.empty(x.shape, x.dtype)


def synchronized(x):
    """Return `x` when all work launched on its GPU is done, so that its memory is up to date."""
    if not isinstance(x, np.ndarray):
        get_xp(x).cuda.get_current_stream().synchronize()
    return x


def empty(shape, dtype, host):
    """Make a buffer for what MPI writes, in the same memory as `host` from `to_host`."""
    return synchronized(get_xp(host).empty(shape, dtype))


def from_host(host, x):
    """Copy `host` into `x`, unless they are the same array; return `x`."""
    if host is not x:
        x[...] = get_xp(x).asarray(host)
    return x


def like(host, x):
    """Return `host` as an array of the same kind (NumPy or CuPy) as `x`."""
    return host if isinstance(x, np.ndarray) or not isinstance(host, np.ndarray) else get_xp(x).asarray(host)


def as_bytes(x):
    """View a contiguous array of any dtype as bytes."""
    return x.reshape(-1).view(np.uint8)
