"""How arrays on a GPU reach MPI: straight, where it can read a GPU's memory, and through host memory elsewhere.

MPI from a wheel cannot. `to_host` gives the array that MPI sees (a NumPy array itself, a copy of anything else),
`from_host` brings what MPI wrote back to where it belongs. Both cost nothing for NumPy arrays, and one copy over the
bus for CuPy's. A "CUDA-aware" MPI is given CuPy's arrays as they are; it knows nothing of streams, so everything that
was launched must be done before.
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

    Open MPI and MPICH both answer by `MPIX_Query_cuda_support`; an MPI that does not know the question cannot.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    try:
        query = ctypes.CDLL(mpi.__file__).MPIX_Query_cuda_support
    except (AttributeError, OSError):
        return False
    return query() == 1


def to_host(x, load: bool = True):
    """Return what MPI can work on: `x` itself if possible, else a host array (with its contents if `load`)."""
    if isinstance(x, np.ndarray):
        return x
    if mpi_reads_gpu():
        return synchronized(x)
    return np.ascontiguousarray(to_numpy(x)) if load else np.empty(x.shape, x.dtype)


def synchronized(x):
    """Return `x` when everything that was launched on a GPU is done, so that its memory holds what it should."""
    if not isinstance(x, np.ndarray):
        get_xp(x).cuda.get_current_stream().synchronize()
    return x


def empty(shape, dtype, host):
    """Make room for what MPI writes, where `host`, which `to_host` gave, lies."""
    return synchronized(get_xp(host).empty(shape, dtype))


def from_host(host, x):
    """Copy `host` into `x`, unless they are the same array; return `x`."""
    if host is not x:
        x[...] = get_xp(x).asarray(host)
    return x


def like(host, x):
    """Return `host` as an array of the kind of `x`."""
    return host if isinstance(x, np.ndarray) or not isinstance(host, np.ndarray) else get_xp(x).asarray(host)


def as_bytes(x):
    """View a contiguous array of any dtype as bytes."""
    return x.reshape(-1).view(np.uint8)
