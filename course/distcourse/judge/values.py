"""How values travel: plain data by value, arrays and parameters shared, all else as a handle of what stays where it is.

Only the judge sends pickles: objects of the library, such as a model, so that the student's process works with objects
of its own; their arrays and parameters are shared. What the student's process sends is plain data, and refused if it
is not.
"""

from __future__ import annotations

import io
import pickle
import types

import numpy as np

from distlearn.nn import Param

from ..check import home_of, uses
from .arrays import SharedArrays
from .frames import ProtocolError
from .objects import Handle, importable, signature_of

DEEPEST = 50  # Levels of nested containers that are accepted.
MOST_VALUES = 1_000_000  # In the containers of one message; numbers beyond that belong into arrays.
_ATOMS = (bool, int, float, str, type(None))
_KINDS = {
    "l": (list, list, list),
    "t": (tuple, list, tuple),
    "s": (set, list, set),
    "f": (frozenset, list, frozenset),
    "d": (dict, lambda v: list(map(list, v.items())), dict),
    "c": (complex, lambda v: [v.real, v.imag], lambda v: complex(*v)),
    "x": (slice, lambda v: [v.start, v.stop, v.step], lambda v: slice(*v)),
    "r": (range, lambda v: [v.start, v.stop, v.step], lambda v: range(*v)),
    "b": ((bytes, bytearray), lambda v: [v.hex()], lambda v: bytes.fromhex(*v)),
    "e": (types.EllipsisType, lambda v: [], lambda v: ...),
}
"""By tag: a type, the list that its objects are written as, and what makes one of that list."""


class Codec:
    """Writes and reads values of one link."""

    def __init__(self, arrays: SharedArrays, proxy, surface, copies: bool):
        self.arrays, self._proxy, self.surface, self._copies = arrays, proxy, surface, copies
        self.exported: dict[int, object] = {}
        self._number: dict[int, int] = {}
        self._stands_for: dict[int, tuple] = {}  # by id of a proxy or a copy: the key of the original
        self._known: dict[tuple, object] = {}  # the proxies and copies, by key
        self._written = 0

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, value, news: list, buffers: list, depth: int = 0):
        """Return a value as JSON; arrays that are new go to `news`, bytes to `buffers`."""
        if depth > DEEPEST:
            raise TypeError(f"containers nested more than {DEEPEST} deep cannot be sent")
        self._written = self._written + 1 if depth else 0
        if self._written > MOST_VALUES:
            raise TypeError(f"more than {MOST_VALUES:,} values in lists, tuples, sets and dicts cannot be sent")
        kind = type(value)
        if kind in _ATOMS:
            return value if not (kind is int and abs(value) >> 62) else {"i": hex(value)}

        def items(values):
            return [self.write(v, news, buffers, depth + 1) for v in values]

        if isinstance(value, np.ndarray):
            return self._write_array(value, news, buffers, items)
        if isinstance(value, np.generic) and value.dtype.kind in "biufcSU":
            return {"n": _by_value(np.asarray(value), buffers)}
        if kind is Param:
            return {"p": self.arrays.key(value, news)}
        if id(value) in self._stands_for:
            return {"h": self._stands_for[id(value)]}
        for tag, (known, parts, _) in _KINDS.items():
            if isinstance(value, known) and not (tag == "t" and self._copies and kind is not tuple):
                return {tag: items(parts(value))}
        if isinstance(value, (bool, int, float, str)):  # an enum, a subclass
            plain = next(t for t in (bool, int, float, str) if isinstance(value, t))(value)
            return self.write(plain, news, buffers, depth)
        return self._write_object(value, news, buffers)

    def _write_array(self, value, news, buffers, items):
        array = value if type(value) is np.ndarray else value.view(np.ndarray)
        key = self.arrays.key(array, news)
        if key is not None:
            return {"a": key}
        if array.dtype.kind in "SU" or (array.dtype.kind in "biufc" and not array.dtype.isnative):
            return {"v": _by_value(array, buffers)}
        if array.dtype.kind in "biufc":
            return self._write_array(array.copy(), news, buffers, items)
        if array.dtype.kind == "O" and array.size < 100_000:
            return {"o": [array.shape, items(array.ravel().tolist())]}
        raise TypeError(f"an array of dtype {array.dtype} cannot be sent")

    def _write_object(self, value, news, buffers):
        number = self._number.get(id(value))
        new = number is None
        if new:
            number = self._number[id(value)] = len(self.exported) + 1
            self.exported[number] = value
        key = (self.arrays.side, number)
        surface = self.surface(value)
        if surface is None:
            if new:
                buffers.append(_pickled(value, self, news, buffers))
                return {"k": [key, len(buffers) - 1]}
            return {"k": [key, -1]}
        kind, methods, attributes = surface
        name = getattr(value, "__name__", None) or type(value).__name__
        written = (home_of(value), sorted(uses(value))) if callable(value) else ("", ())
        return {"H": Handle(key, kind, str(name)[:80], methods, attributes, signature_of(value), *written)}

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, node, buffers, depth: int = 0):
        """Return the value that `write` wrote."""
        if isinstance(node, _ATOMS):
            return node
        if not (isinstance(node, dict) and len(node) == 1) or depth > DEEPEST:
            raise ProtocolError(f"a value that cannot be read: {node!r:.60}")
        ((tag, inner),) = node.items()

        def items(nodes):
            return [self.read(n, buffers, depth + 1) for n in nodes]

        if tag in _KINDS:
            return _KINDS[tag][2](items(inner))
        match tag:
            case "i" if len(inner) <= 10_000:
                return int(inner, 16)
            case "a":
                return self.arrays.get(inner)
            case "p":
                return self.arrays.get(inner, Param)
            case "n":
                return _made_of(inner, buffers)[()]
            case "v":
                return _made_of(inner, buffers)
            case "o":
                array = np.empty(len(inner[1]), object)
                array[:] = items(inner[1])
                return array.reshape(inner[0])
            case "h" if inner[0] == self.arrays.side and inner[1] in self.exported:
                return self.exported[inner[1]]
            case "H":
                key, kind, name, methods, attributes, signature, home, used = inner
                key = (str(key[0]), int(key[1]))
                used = tuple(map(str, used))
                handle = Handle(key, str(kind), str(name), methods, attributes, signature, str(home), used)
                return self._known.get(key) or self.know(key, self._proxy(handle))
            case "k" if not self._copies:  # the judge reads no pickle
                key = tuple(inner[0])
                if key not in self._known:
                    self.know(key, _Unpickler(io.BytesIO(buffers[inner[1]]), self, buffers).load())
                return self._known[key]
        raise ProtocolError(f"a value that cannot be read: {node!r:.60}")

    def know(self, key, thing):
        """Remember what stands for an object of the other process; return it."""
        self._known[key] = thing
        self._stands_for[id(thing)] = key
        return thing


class _Pickler(pickle.Pickler):
    """Shares arrays and parameters, and leaves behind what must not be copied."""

    def __init__(self, file, top, codec, news, buffers):
        super().__init__(file, protocol=5)
        self._top, self._codec, self._news, self._buffers = top, codec, news, buffers

    def persistent_id(self, value):
        if value is self._top:
            return None
        shared = type(value) in (np.ndarray, Param) and not (type(value) is np.ndarray and value.dtype.hasobject)
        if shared or id(value) in self._codec._stands_for:
            return self._codec.write(value, self._news, self._buffers)
        if isinstance(value, (types.FunctionType, types.MethodType)) and not importable(value):
            return self._codec.write(value, self._news, self._buffers)
        if not isinstance(value, type) and type(value).__module__.startswith(("distlearn.", "distcourse.")):
            surface = self._codec.surface(value)
            if surface is not None:
                return self._codec.write(value, self._news, self._buffers)
        return None


class _Unpickler(pickle.Unpickler):
    """Puts shared arrays and proxies in the places that `_Pickler` left."""

    def __init__(self, file, codec, buffers):
        super().__init__(file)
        self._codec, self._all = codec, buffers

    def persistent_load(self, pid):
        return self._codec.read(pid, self._all)


def _pickled(value, codec, news, buffers) -> bytes:
    file = io.BytesIO()
    _Pickler(file, value, codec, news, buffers).dump(value)
    return file.getvalue()


def _by_value(array, buffers) -> list:
    buffers.append(array.tobytes())
    return [array.dtype.str, array.shape, len(buffers) - 1]


def _made_of(inner, buffers):
    dtype, shape, index = inner
    dtype = np.dtype(str(dtype))
    if dtype.kind not in "biufcSU":
        raise ProtocolError(f"numbers of dtype {dtype}")
    return np.frombuffer(buffers[index], dtype).reshape(shape).copy()
