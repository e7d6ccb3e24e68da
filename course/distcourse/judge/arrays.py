"""Arrays and parameters that two processes hold: the same contents, the same identity, the same overlaps.

An array that is sent for the first time is announced with the memory that it lies in (its *root*) and where; the other
process makes a *mirror*. From then on every message carries the bytes of shared memory that have changed since the last
one. Only one process runs at a time, so both always see what they would see in one process: `saved is x` holds, `+=` on
either side changes both, and two views of one array overlap. Of a root only the ranges of arrays that were sent are
ever transferred. A mirror that is no longer used is released with the next message.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from distlearn.nn import Param

from .frames import ProtocolError

LARGEST = 1 << 30  # Bytes of memory that the other process may ask this one to mirror.
SHARED_KINDS = "biufc"
_UNUSED = 2  # References to an object that only a table holds: the table's, and that of `getrefcount` itself.


class Root:
    """Memory that arrays lie in, and the ranges of it that both processes hold."""

    def __init__(self, memory: np.ndarray, owner=None, writable: bool = True):
        self.memory, self.owner, self.writable = memory, owner, writable
        self.ranges: dict[tuple[int, int], bytes | None] = {}  # what the other process has; None: nothing yet

    def has(self, low: int, high: int) -> bool:
        """Return whether a range lies in one that is shared."""
        return any(a <= low and high <= b for a, b in self.ranges)

    def add(self, low: int, high: int, known=None) -> None:
        """Share a range, unless it lies in one that is shared."""
        if not self.has(low, high):
            self.ranges[low, high] = known

    def changes(self):
        """Yield (low, high, bytes) of ranges that have changed since the last call."""
        for (low, high), known in self.ranges.items():
            now = self.memory[low:high].tobytes()
            if now != known:
                self.ranges[low, high] = now
                yield low, high, now

    def apply(self, low: int, high: int, data: bytes) -> None:
        """Take over what the other process has written."""
        if (low, high) not in self.ranges:
            raise ProtocolError("contents of memory that is not shared")
        self.ranges[low, high] = data
        if self.writable:
            self.memory[low:high] = np.frombuffer(data, np.uint8)


class ParamState(NamedTuple):
    """Attributes of a `Param` that can be assigned."""

    data: object
    grad: object
    stale: bool
    frozen: bool


class SharedArrays:
    """All arrays and parameters that this process shares with the other one."""

    # Keys are (side, number): the side that announced the array, "j" for the judge's or "s" for the student's.

    def __init__(self, side: str):
        self.side = side
        self._count = 0
        self._mirrored = 0
        self.roots: dict[tuple, Root] = {}
        self._root_of: dict[int, tuple] = {}  # by id of the array that owns the memory, or that is the mirror's memory
        self.objects: dict[tuple, object] = {}  # arrays and parameters
        self._key_of: dict[int, tuple] = {}
        self._states: dict[tuple, ParamState] = {}  # of parameters, as the other process knows them

    # -- sending ------------------------------------------------------------------------------------------------------

    def key(self, thing, news: list):
        """Return the key of an array or a parameter; announce it in `news` first where that is needed."""
        # None means that the array cannot be shared.
        key = self._key_of.get(id(thing))
        if key is not None:
            return key
        return self._announce_param(thing, news) if isinstance(thing, Param) else self._announce(thing, news)

    def outgoing(self, news: list) -> tuple[list, list, list]:
        """Return what every message carries: states of parameters, changed ranges with their bytes, released keys."""
        states = []
        for key, known in list(self._states.items()):
            param = self.objects[key]
            now = ParamState(param.data, param._grad, param._stale, param.frozen)
            if not all(a is b for a, b in zip(known, now, strict=True)):
                self._states[key] = now
                states.append([key, self._shared(now.data, news), self._shared(now.grad, news), now.stale, now.frozen])
        released = self._release_unused()
        changes = [(key, *change) for key, root in self.roots.items() for change in root.changes()]
        return states, changes, released

    def _shared(self, array, news):
        key = self.key(array, news)
        if key is None:
            raise TypeError(f"a parameter of dtype {array.dtype} cannot be sent")
        return key

    def _announce(self, array, news):
        if array.dtype.kind not in SHARED_KINDS or not array.dtype.isnative:
            return None
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        root_key = self._root_of.get(id(owner))
        if root_key is None:
            flat = owner if owner.flags.c_contiguous else owner.T
            if not flat.flags.c_contiguous:
                return None
            memory = np.asarray(flat).reshape(-1).view(np.uint8)
            root_key = self._new_key()
            self.roots[root_key] = Root(memory, owner, bool(owner.flags.writeable))
            self._root_of[id(owner)] = root_key
        root = self.roots[root_key]
        start = root.memory.ctypes.data
        if array.size:  # else there is nothing whose changes would have to be carried
            low, high = np.lib.array_utils.byte_bounds(array)
            root.add(low - start, high - start)
        key = self._new_key()
        self._register(key, array)
        offset = array.ctypes.data - start if array.size else 0
        place = [root_key, root.memory.size, offset, array.shape, array.strides, array.dtype.str]
        news.append(["array", key, *place, bool(array.flags.writeable)])
        return key

    def _announce_param(self, param, news):
        key = self._new_key()
        self._register(key, param)
        state = self._states[key] = ParamState(param.data, param._grad, param._stale, param.frozen)
        data, grad = self._shared(state.data, news), self._shared(state.grad, news)
        news.append(["param", key, data, grad, state.stale, state.frozen, param.name, param.local_name])
        return key

    # -- receiving ----------------------------------------------------------------------------------------------------

    def incoming(self, released, news, states, changes, data) -> None:
        """Take over what `outgoing` and `key` of the other process have written."""
        for key in released:
            self._forget(_key(key))
        for kind, key, *rest in news:
            key = _key(key)
            if key in self.objects or key[0] == self.side:
                raise ProtocolError("an array is announced twice")
            (self._mirror if kind == "array" else self._mirror_param)(key, *rest)
        for key, low, high, at in changes:
            root = self.roots.get(_key(key))
            if root is None:
                raise ProtocolError("contents of memory that is not known")
            root.apply(low, high, bytes(data[at : at + high - low]))
        for key, data_key, grad_key, stale, frozen in states:
            param = self.get(key, Param)
            self._set_state(_key(key), param, data_key, grad_key, stale, frozen)

    def get(self, key, kind=np.ndarray):
        """Return the array (or parameter) with a key."""
        found = self.objects.get(_key(key))
        if not isinstance(found, kind):
            raise ProtocolError(f"{key!r:.40} is not a shared {kind.__name__}")
        return found

    def _mirror(self, key, root_key, size, offset, shape, strides, dtype, writable) -> None:
        root_key = _key(root_key)
        dtype = np.dtype(str(dtype))
        if dtype.kind not in SHARED_KINDS:
            raise ProtocolError(f"an array of dtype {dtype}")
        root = self.roots.get(root_key)
        if root is None:
            if root_key[0] == self.side or not 0 <= size <= LARGEST - self._mirrored:
                raise ProtocolError(f"an array of {size:,} bytes, at most {LARGEST:,} are accepted in all")
            self._mirrored += size
            root = self.roots[root_key] = Root(np.zeros(size, np.uint8))
            self._root_of[id(root.memory)] = root_key
        array = np.ndarray(tuple(shape), dtype, root.memory, offset if 0 not in shape else 0, tuple(strides))
        if array.size:
            start = root.memory.ctypes.data
            low, high = np.lib.array_utils.byte_bounds(array)
            if root.owner is not None and not root.has(low - start, high - start):
                raise ProtocolError("a view that reaches beyond what was sent")
            root.add(low - start, high - start, b"")
        if not writable or not root.writable:
            array.flags.writeable = False
        self._register(key, array)

    def _mirror_param(self, key, data, grad, stale, frozen, name, local_name) -> None:
        param = Param(self.get(data), str(name), bool(frozen), self.get(grad))
        param.local_name = str(local_name)
        self._register(key, param)
        self._set_state(key, param, data, grad, stale, frozen)

    def _set_state(self, key, param, data, grad, stale, frozen) -> None:
        param.data, param.grad, param.frozen = self.get(data), self.get(grad), bool(frozen)
        param._stale = bool(stale)
        self._states[key] = ParamState(param.data, param._grad, param._stale, param.frozen)

    # -- both ---------------------------------------------------------------------------------------------------------

    def _new_key(self) -> tuple:
        self._count += 1
        return self.side, self._count

    def _register(self, key, thing) -> None:
        self.objects[key], self._key_of[id(thing)] = thing, key

    def _release_unused(self) -> list:
        """Forget mirrors that nothing uses any more; return their keys."""
        released = []
        for key in [k for k in self.objects if k[0] != self.side]:
            if sys.getrefcount(self.objects[key]) <= _UNUSED and key not in self._states:
                self._forget(key)
                released.append(key)
        for key in [k for k, root in self.roots.items() if k[0] != self.side]:
            if sys.getrefcount(self.roots[key].memory) <= _UNUSED:
                self._forget(key)
                released.append(key)
        return released

    def _forget(self, key) -> None:
        thing = self.objects.pop(key, None)
        if thing is not None:
            self._key_of.pop(id(thing), None)
        root = self.roots.pop(key, None)
        if root is not None:
            self._root_of.pop(id(root.memory if root.owner is None else root.owner), None)
            if root.owner is None:
                self._mirrored -= root.memory.size


def _key(key) -> tuple:
    if not (isinstance(key, (list, tuple)) and len(key) == 2 and key[0] in ("j", "s") and type(key[1]) is int):
        raise ProtocolError(f"{key!r:.40} is not a key")
    return key[0], key[1]
