"""How an array is sharded over ranks: the part that a rank holds, and how the whole is reassembled.

Replicate()       every rank has all of it
Shard(0, 3:6)     a rank has some indices along an axis (or of the flattened array)
Partial()         ranks hold summands; the whole is their sum
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..backend import get_xp, to_numpy


class HeldElsewhere(NDArrayOperatorsMixin):
    """Takes the place of a parameter's data when a strategy holds it in shards: it has a shape, and refuses all use.

    Writes to the model's former array would be lost, and reads would return old values.
    """

    def __init__(self, param, holder: str):
        self.name, self.holder = param.name, holder
        for name in ("shape", "dtype", "size", "nbytes", "ndim"):
            setattr(self, name, getattr(param.data, name))

    def _refuse(self, *args, **kwargs):
        raise ValueError(
            f"the data of {self.name!r} is held in shards by {self.holder}: load or set it before the strategy is "
            "made; strategy.gather_params() returns the trained values"
        )

    __array__ = __array_ufunc__ = __array_function__ = __reduce_ex__ = _refuse
    __getitem__ = __setitem__ = __iter__ = __len__ = _refuse

    def __getattr__(self, name):
        if hasattr(np.ndarray, name) and not name.startswith("__"):  # a method, such as mean
            self._refuse()
        raise AttributeError(name)

    @staticmethod
    def check(params) -> None:
        """Raise unless the data of parameters that are held in shards are still these."""
        for p in params:
            if p.data.__class__ is not HeldElsewhere:
                raise ValueError(
                    f"the data of {p.name!r} was replaced, but is held in shards: set it before the strategy is made"
                )


@dataclass(frozen=True)
class Replicate:
    """All of the array."""


@dataclass(frozen=True)
class Shard:
    """Some indices along an axis."""

    axis: int | None
    """None: of the array as one vector."""
    index: Any = None
    """This rank's, a slice or an array; None where all ranks have equal shares (`shares.share`)."""

    def __repr__(self) -> str:
        return f"Shard({self.axis})" if self.index is None else f"Shard(axis={self.axis}, index={self.index})"


@dataclass(frozen=True)
class Partial:
    """A summand of the array."""


@dataclass(frozen=True)
class ShardSpec:
    """The part of an array that a rank holds."""

    shape: tuple[int, ...]
    placement: Replicate | Shard = Replicate()
    weight: float | None = None
    """Of a replica that may differ from the others: what is saved is their mean with these weights."""
    counts: bool = True

    @property
    def is_sharded(self) -> bool:
        return isinstance(self.placement, Shard)

    def take(self, whole):
        if isinstance(self.placement, Replicate):
            return whole.copy()
        return take_part(self._flat(whole), self.placement.axis or 0, self.placement.index)

    def write_to(self, whole, part) -> None:
        """Write this rank's part into the whole."""
        if isinstance(self.placement, Replicate):
            whole[...] = part
        else:
            self._flat(whole)[at(self.placement.axis or 0, self.placement.index)] = part

    def _flat(self, whole):
        return whole.reshape(-1) if self.placement.axis is None else whole


class Sharded(NamedTuple):
    """The part of an array that a rank holds, with its spec."""

    array: Any
    spec: ShardSpec


def load_into(state: dict[str, Sharded], arrays: dict[str, Any]) -> None:
    """Write this rank's parts of whole arrays into the arrays of a state."""
    for name, (array, spec) in state.items():
        if name in arrays:
            array[...] = get_xp(array).asarray(spec.take(arrays[name]))


def unshard(state: dict[str, Sharded], comm) -> dict[str, np.ndarray] | None:
    """Reassemble arrays on rank 0; every rank must call."""
    states = comm.gather_obj(counting(state))
    return None if states is None else assemble(states)


def counting(state: dict[str, Sharded]) -> dict[str, Sharded]:
    """Return the parts of this rank's state that count, copied to host memory."""
    return {name: Sharded(to_numpy(a).copy(), spec) for name, (a, spec) in state.items() if spec.counts}


def assemble(states: list[dict[str, Sharded]]) -> dict[str, np.ndarray]:
    """Reassemble arrays from every rank's parts that count; see `unshard`."""
    parts: dict[str, list] = {}
    for rank, theirs in enumerate(states):
        for name, (array, spec) in theirs.items():
            parts.setdefault(name, []).append((rank, array, spec))
    found = {}
    for name, held in parts.items():
        _, first, spec = held[0]
        if spec.weight is not None:
            found |= _mean(name, held)
            continue
        whole = found[name] = np.empty(spec.shape, first.dtype)
        for _, array, spec in held:
            spec.write_to(whole, array)
    return found


def _mean(name: str, held) -> dict[str, Any]:
    """Return the weighted mean of replicas in double precision, and the replicas, unless they are the same."""
    arrays = [array for _, array, _ in held]
    if len({array.tobytes() for array in arrays}) == 1:
        return {name: arrays[0].copy()}
    weights = np.array([spec.weight for *_, spec in held], float)
    mean = np.average(arrays, axis=0, weights=weights if weights.any() else None).astype(arrays[0].dtype)
    return {name: mean} | {of_rank(rank, name): array for rank, array, _ in held}


def of_rank(rank: int, name: str) -> str:
    """Return the name under which an array of one rank alone is saved."""
    return f"ranks/{rank}/{name}"


# -- collectives along one axis: blocks are as long as the longest part, as collectives move equal blocks


def at(axis: int, part, xp=np) -> tuple[Any, ...]:
    """Return the index of some places along an axis, a slice or an array, in an array of `xp`."""
    place = part if isinstance(part, slice) else xp.asarray(part)  # CuPy rejects a NumPy index
    return (slice(None),) * axis + (place,)


def length(part) -> int:
    """Return the number of indices in a part: a slice, or an array of them."""
    return part.stop - part.start if isinstance(part, slice) else len(part)


def take_part(x, axis: int, part):
    """Return some places along an axis, a slice or an array of indices, as a contiguous copy."""
    xp = get_xp(x)
    return xp.array(x[at(axis % x.ndim, part, xp)], copy=True, order="C")


def gather_parts(comm, x, axis: int, parts: list[Any]):
    """Put together an axis of which each rank has one of `parts`, slices or arrays of indices: one all-gather."""
    xp, axis, widths = get_xp(x), axis % x.ndim, list(map(length, parts))
    lead, tail = x.shape[:axis], x.shape[axis + 1 :]
    block = xp.ascontiguousarray(x)
    if x.shape[axis] < max(widths):
        block = xp.zeros((*lead, max(widths), *tail), x.dtype)
        block[at(axis, slice(0, x.shape[axis]))] = x
    blocks = comm.all_gather(block)
    whole = xp.empty((*lead, sum(widths), *tail), x.dtype)
    for rank, (part, width) in enumerate(zip(parts, widths, strict=True)):
        whole[at(axis, part, xp)] = blocks[rank][at(axis, slice(0, width))]
    return whole


def reduce_scatter_parts(comm, x, axis: int, parts: list[Any]):
    """Sum an array over ranks and keep this rank's part of an axis: one reduce-scatter, of as many bytes."""
    xp, axis, widths = get_xp(x), axis % x.ndim, list(map(length, parts))
    blocks = xp.zeros((comm.size, *x.shape[:axis], max(widths), *x.shape[axis + 1 :]), x.dtype)
    for rank, (part, width) in enumerate(zip(parts, widths, strict=True)):
        blocks[rank][at(axis, slice(0, width))] = x[at(axis, part, xp)]
    mine = comm.reduce_scatter(blocks.reshape(-1)).reshape(blocks.shape[1:])
    return xp.ascontiguousarray(mine[at(axis, slice(0, widths[comm.rank]))])
