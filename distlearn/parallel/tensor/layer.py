"""What all layers have in common that work on several ranks at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ...backend import to_numpy
from ...nn.base import Layer, Param, walk
from ...nn.container import layer_span
from .cut import Cut


class Traffic(NamedTuple):
    """One collective call (or message) of a layer's pass, as a trace counts it."""

    name: str
    """As the communicator's spans are called: "all_reduce", "all_gather", ..."""
    nbytes: int


class Piece(NamedTuple):
    """A parameter of which this rank holds a part, or which it holds alone."""

    param: Param
    """What this rank has."""
    axis: int | None = None
    """Along which the whole is cut; None for a parameter that one rank holds alone."""
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
    pieces : list of Piece
        Parameters that are not the same on every rank.
    how : str
        What is dealt to the ranks, in a few words.
    """

    spans_itself = True
    how = ""

    def __init__(self, comm):
        self.comm, self.pieces, self.params = comm, [], []

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
        mine = Param(cut.take(param.data, self.comm.rank, axis), param.name, param.frozen)
        self.pieces.append(Piece(mine, axis, cut))
        return mine

    def gather(self) -> dict | None:
        """Put the parameters together again: the serial layer's, by name, on rank 0; None elsewhere."""
        return gather_params(self, self.comm)


def pieces_of(model: Layer) -> dict[int, Piece]:
    """Return the pieces of a model by the id of their parameter."""
    return {id(piece.param): piece for layer in walk(model) for piece in getattr(layer, "pieces", ())}


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
    pieces = pieces_of(model)
    mine = {}
    for p in model.params:
        piece = pieces.get(id(p))
        if piece is not None or comm.rank == 0:  # what is the same everywhere, rank 0 has
            mine[p.name] = to_numpy(p.data).copy(), piece and (piece.axis, piece.cut)
    everybody = comm.gather_obj(mine)
    if everybody is None:
        return None
    found = {}
    for rank, theirs in enumerate(everybody):
        for name, (data, how) in theirs.items():
            _put(found, name, rank, data, how)
    return found if names is None else {name: found[name] for name in names}


def _put(found, name, rank, data, how) -> None:
    """Put what a rank holds of a parameter where it belongs."""
    axis, cut = how or (None, None)
    if axis is None:
        found[name] = data
        return
    if name not in found:
        shape = list(data.shape)
        shape[axis] = cut.n
        found[name] = np.empty(shape, data.dtype)
    found[name][(slice(None),) * axis + (cut.index(rank),)] = data
