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
import re
import sys
import tempfile
import weakref
from enum import Enum
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
)
from typing import Any

import cloudpickle
import numpy as np
import psutil

from ..comm.base import Communicator

CODE = (type, ModuleType, CodeType, BuiltinFunctionType, np.dtype)
ATOMS = {int, float, complex, bool, str, bytes, type(None)}
STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]

PACKAGES = ("distlearn", "distcourse", *sys.builtin_module_names)
# files of Python and of packages; an error places a rank that is in one of them at the line that led there
INSTALLED = re.compile(r"[/\\](site-packages|dist-packages|lib[/\\]python[\d.]+)[/\\]", re.IGNORECASE)

LARGE = 1 << 18
"""Bytes of arrays from which on ranks share the pages that they only read, as processes do after a fork."""


def is_installed(name: str) -> bool:
    """Return whether a module belongs to an installed package, and not to a user's notebook or folder."""
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return name.partition(".")[0] in PACKAGES or INSTALLED.search(file) is not None


class Copies:
    """Makes copies of a function and its arguments, as many as there are ranks."""

    def __init__(self, what: str, fn, args: tuple[Any, ...], kwargs: dict[str, Any]):
        if not callable(fn):
            raise TypeError(f"{what}: {fn!r} is not a function")
        file, buffers = io.BytesIO(), []
        pickler = _Pickler(file, protocol=5, buffer_callback=buffers.append)
        self._given = fn, args, tuple(kwargs.items())
        try:
            pickler.dump(self._given)
        except Exception as error:
            name = getattr(fn, "__name__", repr(fn))
            refers = f"{name} refers to, or is given, an object that cannot be copied for each rank: {error}"
            raise TypeError(f"{what}: {refers}; make it inside {name}") from error
        self._needed = pickler.mutable
        self._pickled, self._code = file.getvalue(), pickler.code
        self._bytes, self._places = bytearray(), []
        parts = [buffer.raw() for buffer in buffers]
        total = sum(part.nbytes for part in parts)
        if total > 1 << 30 and total > (free := psutil.virtual_memory().available) / 2:
            # as of a model of zeros, which takes memory when it is read
            sizes = f"{total / 1e9:.1f} GB of arrays would be copied, and {free / 1e9:.1f} GB of memory are free"
            raise MemoryError(f"{what}: {sizes}; give ranks arrays without data (MetaArray), or make them inside")
        for part in parts:
            self._places.append(slice(len(self._bytes), len(self._bytes) + part.nbytes))
            self._bytes += part
            self._bytes += bytes(-len(self._bytes) % 64)  # each array begins where a cache line does, as NumPy's own
        self._size, self._file = len(self._bytes), None
        if self._size > LARGE:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (it ends with this object)
            self._file.write(self._bytes)
            self._bytes = None

    def make(self) -> tuple[Any, ...]:
        """Return a rank's function, arguments, and named arguments as pairs."""
        if not self._needed:
            return self._given
        memory = memoryview(bytearray(self._bytes) if self._file is None else _private(self._file, self._size))
        unpickler = _Unpickler(io.BytesIO(self._pickled), buffers=[memory[place] for place in self._places])
        unpickler.code = self._code
        return unpickler.load()


class _Pickler(cloudpickle.Pickler):
    """Pickles functions with the objects that they refer to; code only by its number in a list."""

    def __init__(self, file, **options):
        super().__init__(file, **options)
        self.code, self.mutable = [], False

    def persistent_id(self, obj):
        kind = type(obj)
        if kind in ATOMS:
            return None
        if isinstance(obj, Communicator):
            raise TypeError("a communicator is used by its own rank alone")
        shared = getattr(kind, "shared_by_ranks", False) or obj is sys.stdout or obj is sys.stderr
        if shared or kind is _Original or (isinstance(obj, (*CODE, FunctionType)) and not _has_state(obj, set())):
            self.code.append(obj.cls if kind is _Original else obj)
            return len(self.code) - 1
        self.mutable = self.mutable or kind is not tuple
        return None

    def reducer_override(self, obj):
        if isinstance(obj, type):
            return _subclass, (_Original(obj),), _own_attributes(obj), None, None, _set_attributes
        return super().reducer_override(obj)

    def _function_reduce(self, obj):
        return self._dynamic_function_reduce(obj)


def _has_state(obj, seen: set[int]) -> bool:
    """Say whether an object, or one that it refers to, can change, so that ranks must not share it."""
    kind = type(obj)
    if id(obj) in seen or kind in ATOMS or kind is object:
        return False
    seen.add(id(obj))
    if kind is FunctionType:
        name = obj.__module__ or ""
        if is_installed(name) and (obj.__closure__ is None or name.startswith("distlearn.")):
            return False
        used = _used_by(obj)
        if INSTALLED.search(obj.__code__.co_filename):  # a wrapper, such as dataclasses put around `__repr__`
            used = (value for value in used if isinstance(value, FunctionType))
        return any(_has_state(value, seen) for value in (*vars(obj).values(), *used))
    if isinstance(obj, type):
        if is_installed(obj.__module__) or issubclass(obj, Enum):
            return False
        return any(_has_state(value, seen) for value in (*_own_attributes(obj).values(), *obj.__bases__))
    if kind in (tuple, frozenset):
        return any(_has_state(value, seen) for value in obj)
    if kind in (staticmethod, classmethod):
        return _has_state(obj.__func__, seen)
    if kind is property:
        return any(_has_state(function, seen) for function in (obj.fget, obj.fset, obj.fdel))
    return not isinstance(obj, (*CODE, MemberDescriptorType, GetSetDescriptorType))


def _used_by(fn: FunctionType):
    """Yield the objects that a function refers to; for a global that it assigns, one that can change."""
    for cell in fn.__closure__ or ():
        yield cell.cell_contents if cell != CellType() else None
    yield from (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
    codes = [fn.__code__]
    for code in codes:
        codes += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
        if STORE_GLOBAL in code.co_code[::2]:  # an instruction takes two bytes, the first of which is its opcode
            yield []
        yield from (fn.__globals__[name] for name in code.co_names if name in fn.__globals__)


# A user's class with state, such as a counter, or a method that writes into a global, is a subclass of its own on each
# rank: what a rank returns is still an instance of the user's class.


class _Original:
    """Stands for a class as the user has it."""

    def __init__(self, cls):
        self.cls = cls


def _own_attributes(cls) -> dict[str, Any]:
    kept = (name for name in vars(cls) if callable(getattr(cls, name, None)) or not name.startswith(("__", "_abc")))
    return {name: vars(cls)[name] for name in kept}


def _subclass(cls):
    return type(cls)(cls.__name__, (cls,), {"__module__": cls.__module__, "__qualname__": cls.__qualname__})


def _set_attributes(cls, attributes) -> None:
    for name, value in attributes.items():
        setattr(cls, name, value)


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
