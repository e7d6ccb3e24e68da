"""What all layers have in common that work on several ranks at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ...nn.container import layer_span
from ...nn.layer import Layer, Param, walk
from ..sharding import Shard, Sharded, ShardSpec, unshard
from .cut import Cut


class Traffic(NamedTuple):
    """One collective call (or message) of a layer's pass, as a trace counts it."""

    name: str
    """As the communicator's spans are called: "all_reduce", "all_gather", ..."""
    nbytes: int


class TensorLayer(Layer):
    """Base of the layers that communicate: holds a communicator, and writes spans of what it computes.

    A span covers the arithmetic alone; the communicator records its own calls beside it. So a time line shows which
    part of a layer is work and which is waiting.

    Parameters
    ----------
    comm : Communicator

    Attributes
    ----------
    specs : dict of str to ShardSpec
        Of the parameters that are not the same on every rank, by name.
    how : str
        What is dealt to the ranks, in a few words.
    """

    spans_itself = True
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

    def piece(self, param: Param, axis: int, cut: Cut) -> Param:
        """Make this rank's part of a serial layer's parameter, and remember what it is of that."""
        spec = ShardSpec(tuple(param.data.shape), Shard(axis, cut.index(self.comm.rank)))
        self.specs[param.name] = spec
        return Param(cut.take(param.data, self.comm.rank, axis), param.name, param.frozen)

    def hold_alone(self) -> None:
        """Note that no other rank has the parameters of this rank's layers."""
        self.specs = {p.name: ShardSpec(tuple(p.data.shape)) for p in self.params}

    def gather(self) -> dict | None:
        """Put the parameters together again: the serial layer's, by name, on rank 0; None elsewhere."""
        return gather_params(self, self.comm)


def shard_specs(model: Layer) -> dict[str, ShardSpec]:
    """Return what this rank holds of the parameters of a model that are not the same on every rank, by name."""
    layers = (layer for layer in walk(model) if isinstance(layer, TensorLayer))
    return {name: spec for layer in layers for name, spec in layer.specs.items()}


def gather_params(model: Layer, comm, names: Iterable[str] | None = None) -> dict | None:
    """Put the parameters of a model that lies on several ranks together; every rank must call.

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
