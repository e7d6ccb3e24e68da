"""Base of the layers that are sharded over ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...nn import Sequential
from ...nn.container import layer_span
from ...nn.layer import Layer, Param, walk
from ..sharding import Shard, Sharded, ShardSpec, unshard
from .axis_sharding import AxisSharding


class Traffic(NamedTuple):
    """One collective call (or message) of a layer's pass, as a trace counts it."""

    name: str
    """As the communicator's spans are called: "all_reduce", "all_gather", ..."""
    nbytes: int


class TensorLayer(Layer):
    """Base of the layers that communicate: holds a communicator, and writes spans of what it computes.

    A span covers only the arithmetic; the communicator records its own calls. So a time line shows which part of a
    layer is computing and which is waiting.

    Parameters
    ----------
    comm : Communicator

    Attributes
    ----------
    specs : dict of str to ShardSpec
        Of the parameters that are not the same on every rank, by name.
    local : Layer or None
        The serial layer that computes this rank's part, if there is one.
    how : str
        What is sharded over the ranks, in a few words.
    """

    spans_itself = True
    local: Layer | None = None
    how = ""

    def __init__(self, comm):
        self.comm, self.specs, self.params = comm, {}, []

    def span(self, direction: str, x):
        """Open the span of the layer's arithmetic on the input `x`."""
        return layer_span(self.comm.clock, self, direction, x.shape, x.dtype.itemsize)

    def traffic(self, shape, itemsize: int = 4) -> tuple[list[Traffic], list[Traffic]]:
        """List what a forward and a backward pass send for an input of which this rank has `shape`.

        Returns
        -------
        forward, backward : list of Traffic
            Empty for a single rank.
        """
        return [], []

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
    """What `parallelize` makes of a `Sequential`: some layers are sharded over ranks, the others run on every rank.

    Parameters
    ----------
    comm : Communicator
    layers : list of Layer
        They keep the names, and their parameters the names, that they have in the serial model.
    hows : list of str
        For every layer, how it was sharded.
    """

    spans_itself = True

    def __init__(self, comm, layers, hows):
        self.comm, self.layers, self.hows = comm, list(layers), list(hows)
        self.params = list({id(p): p for layer in self.layers for p in layer.params}.values())

    def forward(self, x, clock=None):
        """Run all layers; every rank must call."""
        return super().forward(x, clock=self.comm.clock if clock is None else clock)

    def backward(self, dy, saved, on_grad=None, clock=None):
        """Run all layers backward; see `Sequential`."""
        return super().backward(dy, saved, on_grad=on_grad, clock=self.comm.clock if clock is None else clock)


def shard_specs(model: Layer) -> dict[str, ShardSpec]:
    """Return what this rank holds of the parameters of a model that are not the same on every rank, by name."""
    layers = (layer for layer in walk(model) if isinstance(layer, TensorLayer))
    return {name: spec for layer in layers for name, spec in layer.specs.items()}


def gather_params(model: Layer, comm, names: Iterable[str] | None = None) -> dict | None:
    """Gather the parameters of a model that is sharded over ranks; every rank must call.

    Parameters
    ----------
    model : Layer
    comm : Communicator
    names : iterable of str, optional
        Order of the result: that of the serial model.

    Returns
    -------
    params : dict of str to array
        NumPy arrays of the serial shapes, on rank 0; None elsewhere. One gather of what rank 0 does not have.
    """
    specs = shard_specs(model)
    state = {}
    for p in model.params:
        spec = specs.get(p.name) or ShardSpec(tuple(p.data.shape), counts=comm.rank == 0)
        state[p.name] = Sharded(p.data, spec)
    found = unshard(state, comm)
    return found if found is None or names is None else {name: found[name] for name in names}
