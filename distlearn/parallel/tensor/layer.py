"""What all layers have in common that work on several ranks at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...backend import to_numpy
from ...nn.container import layer_span
from ...nn.layer import Layer, Param, walk
from .cut import Cut


class Traffic(NamedTuple):
    """One collective call (or message) of a layer's pass, as a trace counts it."""

    name: str
    """As the communicator's spans are called: "all_reduce", "all_gather", ..."""
    nbytes: int


class Place(NamedTuple):
    """Where what a rank holds of a parameter lies in the whole."""

    axis: int | None = None
    """Along which the whole is cut; None for a parameter that one rank holds alone, and as a whole."""
    cut: Cut | None = None


class TensorLayer(Layer):
    """Base of the layers that communicate: holds a communicator, and writes spans of what it computes.

    A span covers the arithmetic alone; the communicator records its own calls beside it. So a time line shows which
    part of a layer is work and which is waiting.

    Parameters
    ----------
    comm : Communicator

    Attributes
    ----------
    places : dict of str to Place
        Of the parameters that are not the same on every rank, by name.
    how : str
        What is dealt to the ranks, in a few words.
    """

    spans_itself = True
    how = ""

    def __init__(self, comm):
        self.comm, self.places, self.params = comm, {}, []

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
        """Make this rank's part of a serial layer's parameter, and remember how it was cut."""
        self.places[param.name] = Place(axis, cut)
        return Param(cut.take(param.data, self.comm.rank, axis), param.name, param.frozen)

    def gather(self) -> dict | None:
        """Put the parameters together again: the serial layer's, by name, on rank 0; None elsewhere."""
        return gather_params(self, self.comm)


def places_of(model: Layer) -> dict[str, Place]:
    """Return the places of all parameters of a model that are not the same on every rank."""
    return {name: place for layer in walk(model) for name, place in getattr(layer, "places", {}).items()}


def gather_params(model: Layer, comm, names: Iterable[str] | None = None) -> dict | None:
    """Put the parameters of a model that lies on several ranks together again; every rank must call.

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
    return put_together({p.name: p.data for p in model.params}, places_of(model), comm, names)


def put_together(arrays: dict, places: dict[str, Place], comm, names: Iterable[str] | None = None) -> dict | None:
    """Gather arrays of which each rank has a part on rank 0; every rank must call.

    Parameters
    ----------
    arrays : dict of str to array
        What this rank has.
    places : dict of str to Place
        Where that lies in the whole; what is not in it is the same on every rank.
    comm : Communicator
    names : iterable of str, optional
        Order of the result.
    """
    mine = {
        name: (to_numpy(data), places.get(name, Place()))
        for name, data in arrays.items()
        if name in places or comm.rank == 0
    }
    everybody = comm.gather_obj(mine)
    if everybody is None:
        return None
    found = {}
    for rank, theirs in enumerate(everybody):
        for name, (data, place) in theirs.items():
            _put(found, name, rank, data, place)
    return found if names is None else {name: found[name] for name in names}


def _put(found, name, rank, data, place) -> None:
    """Put what a rank holds of an array where it belongs."""
    if place.axis is None:
        found[name] = data
        return
    if name not in found:
        shape = list(data.shape)
        shape[place.axis] = place.cut.n
        found[name] = np.empty(shape, data.dtype)
    found[name][(slice(None),) * place.axis + (place.cut.index(rank),)] = data
