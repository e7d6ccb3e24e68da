"""What a simulated rank is given is its own copy, as on engines, which get it through a pickle.

    fn, args, kwargs --pickled once--> bytes, and the arrays' bytes apart --unpickled on each rank--> its own

Ranks share code (modules, classes, functions of installed packages), what observes a run from outside (a class with
`shared_by_ranks = True`), and nothing else. A model, an array, a generator,
a list, a global that `fn` refers to: all are copied, so nothing that a rank does changes another's, or the caller's.
"""

from __future__ import annotations

import ctypes
import dis
import io
import mmap
import os
import pickle
import site
import sys
import sysconfig
import tempfile
import weakref
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

import cloudpickle
import numpy as np

from ..comm.base import Communicator

CODE = (type, ModuleType, CodeType, BuiltinFunctionType, np.dtype)
ATOMS = {int, float, complex, bool, str, bytes, type(None)}
STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]

PACKAGES = ("distlearn", "distcourse", *sys.builtin_module_names)
FOLDERS = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")})

LARGE = 1 << 18
"""Bytes of arrays from which on ranks share the pages that they only read, as processes do after a fork."""


def is_installed(name: str) -> bool:
    """Return whether a module belongs to an installed package, and not to a user's notebook or folder."""
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return name.partition(".")[0] in PACKAGES or file.startswith((*FOLDERS, site.getusersitepackages()))


class Copies:
    """Makes copies of a function and its arguments, as many as there are ranks."""

    def __init__(self, what: str, fn, args: tuple, kwargs: dict):
        if not callable(fn):
            raise TypeError(f"{what}: {fn!r} is not a function")
        file, buffers = io.BytesIO(), []
        pickler = _Pickler(file, protocol=5, buffer_callback=buffers.append)
        self._given = fn, args, tuple(kwargs.items())
        try:
            pickler.dump(self._given)
        except Exception as error:
            name = getattr(fn, "__name__", repr(fn))
            told = f"{name} refers to, or is given, what cannot be copied for each rank: {error}"
            raise TypeError(f"{what}: {told}; make it inside {name}") from error
        self._needed = pickler.mutable
        self._pickled, self._code = file.getvalue(), pickler.code
        self._bytes, self._places = bytearray(), []
        parts = [buffer.raw() for buffer in buffers]
        total, free = sum(part.nbytes for part in parts), os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if total > max(free / 2, 1 << 30):  # as of a model of zeros, which takes memory when it is read
            told = f"{total / 1e9:.1f} GB of arrays would be copied, and {free / 1e9:.1f} GB of memory are free"
            raise MemoryError(f"{what}: {told}; give ranks arrays without data (MetaArray), or make them inside")
        for part in parts:
            self._places.append(slice(len(self._bytes), len(self._bytes) + part.nbytes))
            self._bytes += part
            self._bytes += bytes(-len(self._bytes) % 64)  # each array begins where a cache line does, as NumPy's own
        self._size, self._file = len(self._bytes), None
        if self._size > LARGE:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (it ends with this object)
            self._file.write(self._bytes)
            self._bytes = None

    def make(self) -> tuple:
        """Return a rank's function, arguments, and named arguments as pairs."""
        if not self._needed:
            return self._given
        memory = memoryview(bytearray(self._bytes) if self._file is None else _private(self._file, self._size))
        unpickler = _Unpickler(io.BytesIO(self._pickled), buffers=[memory[place] for place in self._places])
        unpickler.code = self._code
        return unpickler.load()


class _Pickler(cloudpickle.Pickler):
    """Pickles functions and what they refer to, but code only by its number in a list."""

    def __init__(self, file, **options):
        super().__init__(file, **options)
        self.code, self.mutable = [], False

    def persistent_id(self, obj):
        kind = type(obj)
        if kind in ATOMS:
            return None
        if isinstance(obj, Communicator):
            raise TypeError("a communicator is used by its own rank alone")
        shared = isinstance(obj, CODE) or getattr(kind, "shared_by_ranks", False)
        if shared or (kind is FunctionType and _is_code(obj)) or obj is sys.stdout or obj is sys.stderr:
            self.code.append(obj)
            return len(self.code) - 1
        self.mutable = self.mutable or kind is not tuple
        return None

    def _function_reduce(self, obj):
        return self._dynamic_function_reduce(obj)


def _is_code(fn: FunctionType) -> bool:
    """Return whether a function has no state: nothing that it changes, or that others could change."""
    name = fn.__module__ or ""
    if is_installed(name):
        return fn.__closure__ is None or name.startswith("distlearn.")
    if fn.__closure__ or fn.__defaults__ or fn.__kwdefaults__ or fn.__dict__:
        return False
    names = set()
    for code in _with_inner(fn.__code__):
        if STORE_GLOBAL in code.co_code[::2]:  # an instruction takes two bytes, of which the first says what it does
            return False
        names.update(code.co_names)
    used = (fn.__globals__[name] for name in names & fn.__globals__.keys())
    return all(isinstance(u, CODE) or (type(u) is FunctionType and is_installed(u.__module__ or "")) for u in used)


def _with_inner(code: CodeType):
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _with_inner(inner)


class _Unpickler(pickle.Unpickler):
    """Takes code from the list."""

    def persistent_load(self, number):
        return self.code[number]


def _private(file, size: int) -> memoryview:
    """Map a file so that a page is copied when it is first written to."""
    # `mmap.mmap` would keep a file descriptor for each rank, of which a process may have about a thousand
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
    libc.munmap.argtypes = ctypes.c_void_p, ctypes.c_size_t
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, file.fileno(), 0)
    if address == ctypes.c_void_p(-1).value:
        raise MemoryError(f"cannot map {size} bytes: {os.strerror(ctypes.get_errno())}")
    memory = (ctypes.c_char * size).from_address(address)
    weakref.finalize(memory, libc.munmap, address, size).atexit = False
    return memoryview(memory).cast("B")
