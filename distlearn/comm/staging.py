"""Arrays on a GPU travel through host memory: MPI from a wheel cannot read a GPU's.

`to_host` gives the array that MPI sees (a NumPy array itself, a copy of anything else), `from_host` brings what MPI
wrote back to where it belongs. Both cost nothing for NumPy arrays, and one copy over the bus for CuPy's.
"""

from __future__ import annotations

import numpy as np

from ..backend import get_xp, to_numpy


def to_host(x, load: bool = True) -> np.ndarray:
    """Return `x` itself if it is a NumPy array, else a host array (with its contents if `load`)."""
    if isinstance(x, np.ndarray):
        return x
    return np.ascontiguousarray(to_numpy(x)) if load else np.empty(x.shape, x.dtype)


def from_host(host: np.ndarray, x):
    """Copy `host` into `x`, unless they are the same array; return `x`."""
    if host is not x:
        x[...] = get_xp(x).asarray(host)
    return x


def like(host: np.ndarray, x):
    """Return `host` as an array of the kind of `x`."""
    return host if isinstance(x, np.ndarray) else get_xp(x).asarray(host)


def as_bytes(x: np.ndarray) -> np.ndarray:
    """View a contiguous array of any dtype as bytes."""
    return x.reshape(-1).view(np.uint8)
