"""What all layers that are sharded over ranks have in common.

Which values of an axis each rank holds, the base class, and the two collectives that move sharded activations.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...backend import get_xp
from ...nn import Sequential
from ...nn.layer import Layer, Param, walk
from ...shares import shares
from ..sharding import Shard, Sharded, ShardSpec, unshard


class AxisSharding:
    """Which values of an axis each rank holds."""

    def __init__(self, parts):
        self.parts = [np.asarray(part, int) for part in parts]
        self.widths = [len(part) for part in self.parts]
        self.n, self.widest = sum(self.widths), max(self.widths)
        self._places = [_place(part) for part in self.parts]
        self._repeated: dict[int, AxisSharding] = {}

    def __eq__(self, other):
        return isinstance(other, AxisSharding) and all(map(np.array_equal, self.parts, other.parts))

    __hash__ = None

    def __reduce__(self):
        return AxisSharding, (self.parts,)

    @classmethod
    def even(cls, n: int, size: int) -> AxisSharding:
        """Shard n values over ranks as `numpy.array_split` does: contiguous, the longer parts first."""
        return cls([np.arange(part.start, part.stop) for part in shares(n, size)])

    def repeat(self, times: int) -> AxisSharding:
        """Return the sharding of `times` such axes in a row: an image's channels after `Flatten`."""
        if times == 1:
            return self
        if times not in self._repeated:
            starts = np.arange(times)[:, None] * self.n
            self._repeated[times] = AxisSharding([(starts + part).ravel() for part in self.parts])
        return self._repeated[times]

    def index(self, rank: int, like=None):
        """Return a rank's indices, for indexing `like`: a slice where they are contiguous, else an array beside it."""
        place = self._places[rank]
        if isinstance(place, slice) or like is None or isinstance(like, np.ndarray):
            return place
        return get_xp(like).asarray(place)

    def take(self, x, rank: int, axis: int = -1):
        """Return a rank's part of an array, as a contiguous copy."""
        place = (slice(None),) * (axis % x.ndim) + (self.index(rank, x),)
        return get_xp(x).array(x[place], copy=True, order="C")


def _place(part):
    """Return contiguous indices as a slice: indexing by it gives a view and not a copy."""
    contiguous = len(part) and (np.diff(part) == 1).all()
    return slice(int(part[0]), int(part[-1]) + 1) if contiguous else part


class TensorLayer(Layer):
    """Base of the layers that communicate: holds a communicator, and writes spans of what it computes.

    A span covers only the arithmetic; the communicator records its own calls. So a time line shows which part of a
    layer is computing and which is waiting.
    """

    spans_itself = True
    local: Layer | None = None
    how = ""

    def __init__(self, comm):
        self.comm, self.specs, self.params = comm, {}, []

    def shard_param(self, param: Param, axis: int, sharding: AxisSharding) -> Param:
        """Make this rank's part of a serial layer's parameter, and store its spec."""
        spec = ShardSpec(tuple(param.data.shape), Shard(axis, sharding.index(self.comm.rank)))
        self.specs[param.name] = spec
        return Param(sharding.take(param.data, self.comm.rank, axis), param.name, param.frozen)

    def hold_alone(self) -> None:
        """Note that no other rank has the parameters of this rank's layers."""
        self.specs = {p.name: ShardSpec(tuple(p.data.shape)) for p in self.params}

    def gather(self) -> dict | None:
        """Gather the serial layer's parameters, by name, on rank 0; None elsewhere."""
        return gather_params(self, self.comm)


class TensorSequential(Sequential):
    """What `parallelize` makes of a `Sequential`: some layers are sharded over ranks, the others run on every rank."""

    spans_itself = True

    def __init__(self, comm, layers, hows):
        self.comm, self.clock, self.layers, self.hows = comm, comm.clock, list(layers), list(hows)
        self.params = list({id(p): p for layer in self.layers for p in layer.params}.values())


def shard_specs(model: Layer) -> dict[str, ShardSpec]:
    """Return what this rank holds of the parameters of a model that are not the same on every rank, by name."""
    layers = (layer for layer in walk(model) if isinstance(layer, TensorLayer))
    return {name: spec for layer in layers for name, spec in layer.specs.items()}


def gather_params(model: Layer, comm, names: Iterable[str] | None = None) -> dict | None:
    """Gather the parameters of a model that is sharded over ranks; every rank must call."""
    specs = shard_specs(model)
    state = {}
    for p in model.params:
        spec = specs.get(p.name) or ShardSpec(tuple(p.data.shape), counts=comm.rank == 0)
        state[p.name] = Sharded(p.data, spec)
    found = unshard(state, comm)
    return found if found is None or names is None else {name: found[name] for name in names}


# -- collectives on sharded activations


def gather_last(comm, x, sharding: AxisSharding):
    """Gather the parts of all ranks along the last axis: one all-gather."""
    if comm.size == 1:
        return x
    xp, lead = get_xp(x), x.shape[:-1]
    block = xp.ascontiguousarray(x)
    if x.shape[-1] < sharding.widest:
        block = xp.zeros((*lead, sharding.widest), x.dtype)
        block[..., : x.shape[-1]] = x
    blocks = comm.all_gather(block)
    y = xp.empty((*lead, sharding.n), x.dtype)
    for rank, width in enumerate(sharding.widths):
        y[..., sharding.index(rank, y)] = blocks[rank][..., :width]
    return y


def reduce_scatter_last(comm, x, sharding: AxisSharding):
    """Sum an array over ranks and keep this rank's part of the last axis: one reduce-scatter."""
    if comm.size == 1:
        return x
    xp, lead = get_xp(x), x.shape[:-1]
    blocks = xp.zeros((comm.size, *lead, sharding.widest), x.dtype)
    for rank, width in enumerate(sharding.widths):
        blocks[rank][..., :width] = x[..., sharding.index(rank, x)]
    mine = comm.reduce_scatter(blocks.reshape(-1)).reshape(*lead, sharding.widest)
    return xp.ascontiguousarray(mine[..., : sharding.widths[comm.rank]])


def gather_rows(comm, x, parts: list[slice]):
    """Gather the rows of all ranks: one all-gather of as many rows from each as the first rank has."""
    if comm.size == 1:
        return x
    xp, most = get_xp(x), parts[0].stop
    block = x if len(x) == most else xp.concatenate([x, xp.zeros((most - len(x), *x.shape[1:]), x.dtype)])
    blocks = comm.all_gather(xp.ascontiguousarray(block))
    return xp.concatenate([blocks[r][: part.stop - part.start] for r, part in enumerate(parts)])


def reduce_scatter_rows(comm, x, parts: list[slice]):
    """Sum an array over ranks and keep this rank's rows: the gradient of `gather_rows`, and as many bytes."""
    if comm.size == 1:
        return x
    xp, most = get_xp(x), parts[0].stop
    blocks = xp.zeros((comm.size, most, *x.shape[1:]), x.dtype)
    for r, part in enumerate(parts):
        blocks[r][: part.stop - part.start] = x[part]
    mine = parts[comm.rank]
    return comm.reduce_scatter(blocks.reshape(-1)).reshape(blocks.shape[1:])[: mine.stop - mine.start]
