"""Runs a kernel of the fast build in this process, without checks: for kernels that are trusted, and for timing."""

from __future__ import annotations

import ctypes
import functools
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from distlearn.cuda.errors import KernelError


class _Launch(ctypes.Structure):  # emu::Launch of types.h
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_size_t),
        ("args", ctypes.c_void_p),
        ("first", ctypes.c_int64),
        ("last", ctypes.c_int64),
    ]


@functools.cache
def _workers() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_workers(), thread_name_prefix="cuda-block")


@functools.cache
def _load(path):
    library = ctypes.CDLL(str(path))
    library.emu_run.argtypes = [ctypes.c_void_p]
    return library


def set_constant(path, name: str, value: np.ndarray) -> None:
    """Write a `__constant__` or `__device__` variable of a built library."""
    address = getattr(_load(path), f"emu_address_of_{name}")
    address.restype = ctypes.c_void_p
    ctypes.memmove(address(), value.tobytes(), value.nbytes)


def run(path, grid, block, shared_mem, bound, *, threads=None) -> None:
    """Run one launch; blocks are spread over the processor's cores (ctypes lets go of the interpreter's lock).

    Raises
    ------
    KernelError
        If some threads of a block wait for ever.
    """
    cells = [
        ctypes.c_void_p(a.ctypes.data) if isinstance(a, np.ndarray) else ctypes.create_string_buffer(a, len(a))
        for a in bound
    ]
    pointers = (ctypes.c_void_p * max(1, len(cells)))(*[ctypes.addressof(c) for c in cells])
    args = ctypes.cast(pointers, ctypes.c_void_p)
    emu_run = _load(path).emu_run

    def part(first, last):
        launch = _Launch((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block), shared_mem, args, first, last)
        return emu_run(ctypes.byref(launch))

    blocks = grid[0] * grid[1] * grid[2]
    workers = min(threads or _workers(), blocks)
    if workers == 1:
        stuck = part(0, blocks)
    else:
        step = -(-blocks // (4 * workers))
        starts = range(0, blocks, step)
        stuck = max(_pool().map(lambda first: part(first, min(first + step, blocks)), starts))
    if stuck:
        raise KernelError("some threads of a block wait for ever at a barrier or a warp operation; .check() says where")
