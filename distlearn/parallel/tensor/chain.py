"""A sequence of layers under construction: are the activations at its end whole, or dealt to ranks?"""

from __future__ import annotations

from ...nn import (
    AvgPool,
    BatchNorm,
    Conv2d,
    Dropout,
    Flatten,
    GlobalAvgPool,
    Identity,
    Linear,
    LocalResponseNorm,
    MaxPool,
    ReLU,
    Reshape,
    Sigmoid,
    Softmax,
    Tanh,
)
from ...nn.layer import Layer
from .groups import GroupConv2d
from .local import Gather, ShardDropout, ShardNorm
from .rows import RowLinear
from .sequence import TensorSequential
from .units import Units

BY_CHANNEL = (ReLU, Sigmoid, Tanh, Identity, MaxPool, AvgPool, GlobalAvgPool)
"""Layers that treat every neuron or channel by itself, so they run on whatever part a rank has."""
WITHOUT_PARAMETERS = (*BY_CHANNEL, Flatten, Reshape, Dropout, LocalResponseNorm, Softmax)
"""Layers whose backward pass is a linear map of dy: a sum over ranks may be formed before or after it."""


def leave_sum_open(layers: list[Layer]) -> bool:
    """Let the first layer with parameters give each rank its summand of the input's gradient instead of the sum.

    Returns
    -------
    open : bool
        Whether it does: then whoever is before these layers forms the sum. It does not if it is not dealt to ranks, or
        stands in several places.
    """
    first = next((layer for layer in layers if type(layer) not in WITHOUT_PARAMETERS), None)
    if not isinstance(first, Units) or first.gather_output:
        return False
    first.sum_input_gradient = False
    return True


class Chain:
    """Builds a `TensorSequential` from serial layers, one after another.

    Parameters
    ----------
    rewriter : object
        `rewriter.whole(layer)` deals a layer that gets whole activations; `comm` and `ties` are used as they are.

    Attributes
    ----------
    cut : Cut or None
        How the activations at its end are dealt; None if they are whole.
    """

    def __init__(self, rewriter):
        self.rewriter, self.comm, self.ties = rewriter, rewriter.comm, rewriter.ties
        self.layers, self.hows, self.cut = [], [], None

    def add(self, layer, how: str = "") -> None:
        """Append a layer."""
        self.layers.append(layer)
        self.hows.append(how or getattr(layer, "how", "") or "parts over ranks")

    def put(self, layer, following) -> None:
        """Append what becomes of a serial layer, as the activations are now."""
        if self.cut is not None and self._on_part(layer, following):
            return
        self.close()
        made, how = self.rewriter.whole(layer)
        self.add(made, how)
        if isinstance(made, Units) and not made.gather_output:
            self.cut = made.cut

    def _on_part(self, layer, following) -> bool:
        """Append a layer that works on the rank's part; say whether it can."""
        kind, comm = type(layer), self.comm
        once = not (self.ties.repeated(layer) or self.ties.shared(layer))
        if kind in BY_CHANNEL or (kind is Flatten and self._rows_follow(following)):
            self.add(layer, "on the rank's part")
        elif kind is Dropout:
            self.add(ShardDropout(layer, self.cut, comm.rank), "on the rank's part, serial masks")
        elif kind is BatchNorm and once:
            self.add(ShardNorm(comm, layer, self.cut))
        elif kind is Conv2d and once and GroupConv2d.fits(layer, self.cut):
            self.add(made := GroupConv2d.of(layer, comm, dealt=True))
            self.cut = made.cut
        elif kind is Linear and once:
            self.add(RowLinear.of(layer, comm, cut=self.cut.repeat(layer.d_in // self.cut.n)))
            self.cut = None
        else:
            return False
        return True

    def _rows_follow(self, following) -> bool:
        """Say whether the next layer that is not done by channel is a dense one that can take this rank's rows."""
        for layer in following:
            if type(layer) is Linear:
                return not (self.ties.repeated(layer) or self.ties.shared(layer))
            if type(layer) not in (*BY_CHANNEL, Dropout):
                break
        return False

    def close(self) -> None:
        """Make the activations whole."""
        if self.cut is None:
            return
        gather = Gather(self.comm, self.cut)
        gather.name = f"{self.layers[-1].name.partition('.')[0]}.Gather"
        self.add(gather)
        self.cut = None

    def finish(self) -> TensorSequential:
        """Close the sequence, and let every `Gather` sum the gradients that come back from dealt neurons."""
        self.close()
        for i, layer in enumerate(self.layers):
            if isinstance(layer, Gather):
                layer.sums = leave_sum_open(self.layers[i + 1 :])
        return TensorSequential(self.comm, self.layers, self.hows)
