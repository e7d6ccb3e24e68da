"""A sequence of layers of which some lie on several ranks."""

from __future__ import annotations

from ...nn import Sequential


class TensorSequential(Sequential):
    """What `parallelize` makes of a `Sequential`: some layers deal their work to ranks, the others run on every rank.

    Parameters
    ----------
    comm : Communicator
    layers : list of Layer
        They keep the names, and their parameters the names, that they have in the serial model.
    hows : list of str
        For every layer, what became of it.
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
