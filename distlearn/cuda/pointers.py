"""Structs that hold pointers, and arrays of pointers, as arguments of a kernel.

A struct by value is a NumPy scalar of a structured dtype; a field of dtype object holds an array where the struct has a
pointer, or None (or 0) for a null pointer. An array of pointers (`float**`) is a NumPy array of dtype object.

>>> matrix = np.dtype([("width", "i4"), ("height", "i4"), ("elements", "O")])
>>> a = np.array((3, 2, np.zeros((2, 3), np.float32)), matrix)[()]
"""

from __future__ import annotations

import struct

import numpy as np


def holds_pointers(arg) -> bool:
    """Say whether an argument is a struct or an array that holds arrays."""
    return isinstance(arg, (np.generic, np.ndarray)) and arg.dtype.hasobject


def places(dtype: np.dtype, at: int = 0) -> list[int]:
    """Return the byte offsets of the pointers in an item of a dtype."""
    if dtype.fields is None:
        return [at] if dtype.kind == "O" else []
    return [place for kind, offset, *_ in dtype.fields.values() for place in places(kind, at + offset)]


def without_objects(dtype: np.dtype) -> np.dtype:
    """Return a dtype with 8-byte integers in place of pointers."""
    if dtype.fields is None:
        return np.dtype("u8") if dtype.kind == "O" else dtype
    kinds = [without_objects(dtype.fields[name][0]) for name in dtype.names]
    offsets = [dtype.fields[name][1] for name in dtype.names]
    return np.dtype({"names": dtype.names, "formats": kinds, "offsets": offsets, "itemsize": dtype.itemsize})


def _items(value, dtype):
    """Return the objects of one item, in the order of `places`."""
    if dtype.fields is None:
        return [value] if dtype.kind == "O" else []
    return [x for name in dtype.names for x in _items(value[name], dtype.fields[name][0])]


def arrays_in(arg) -> list[tuple[int, object]]:
    """Return (place in bytes, array or None) for each pointer of an argument."""
    dtype, items = arg.dtype, np.atleast_1d(arg).ravel()
    found = []
    for i, item in enumerate(items):
        found += zip(places(dtype, i * dtype.itemsize), _items(item, dtype), strict=True)
    return [(place, None if x is None or (isinstance(x, int) and x == 0) else x) for place, x in found]


def with_addresses(arg, address) -> np.ndarray:
    """Return an argument with `address(array)` in the place of each array, and 0 in that of None."""
    out = np.zeros(np.shape(arg), without_objects(arg.dtype))
    _copy(out.reshape(-1), np.atleast_1d(arg).ravel(), address)
    return out


def _copy(out, given, address):
    if given.dtype.fields is None:
        out[...] = [address(x) if hasattr(x, "dtype") else 0 for x in given] if given.dtype.kind == "O" else given
        return
    for name in given.dtype.names:
        _copy(out[name], given[name], address)


class Table:
    """The table of pointers in a launch's arguments; `Kernel::run` of cuda_emu.h puts them there.

    After the kernel's own arguments come this table and the arrays that it names, each once.
    """

    def __init__(self, n_arguments: int):
        self._first = n_arguments + 1
        self.arrays: list[np.ndarray] = []
        self.names: list[str] = []
        self._entries: list[tuple[int, int, int, int]] = []

    def add(self, name: str, argument: int, in_memory: bool, place: int, array: np.ndarray) -> None:
        """Note that an array's address belongs to a place of an argument, or of the memory that it points to."""
        known = [i for i, a in enumerate(self.arrays) if a is array]
        if not known:
            self.arrays.append(array)
            self.names.append(name)
        index = self._first + (known[0] if known else len(self.arrays) - 1)
        self._entries.append((int(in_memory), argument, place, index))

    def packed(self) -> bytes:
        """Return it in the kernel's format: a count, then four numbers for each."""
        return struct.pack("<q", len(self._entries)) + b"".join(struct.pack("<4q", *e) for e in self._entries)
