"""Layers between a layer that deals its outputs to ranks and the next: they work on what the rank has."""

from __future__ import annotations

import copy

import numpy as np

from ...backend import get_xp
from ...nn import Dropout, Identity
from .cut import Cut, gather_last, gathered_values, reduce_scatter_last
from .layer import TensorLayer, Traffic


class Gather(TensorLayer):
    r"""Puts the parts of all ranks together along the last axis: from here on every rank has everything.

    .. math:: Y = [X_0, X_1, \dots], \qquad dX_r = dY_r \quad\text{or}\quad dX_r = \sum_q dY^{(q)}_r

    Parameters
    ----------
    comm : Communicator
    cut : Cut
        Of the channels; behind `Flatten` it is repeated for every pixel.
    sums : bool
        The gradient that comes back is only this rank's summand, as the next layer's neurons are dealt to ranks, too:
        sum it and keep a part, in one reduce-scatter. Else the whole gradient comes, and nothing is sent.

    Notes
    -----
    Shapes: (..., width) to (..., n). Forward one all-gather of p rows ceil(n / p) s bytes at s bytes a value, backward
    nothing, or one reduce-scatter of as many. Saves nothing.

    References
    ----------
    V. Korthikanti et al. (2022), Reducing activation recomputation in large transformer models, section 4.2.2 (an
    all-reduce is a reduce-scatter and an all-gather).
    """

    how = "channels put together"

    def __init__(self, comm, cut: Cut, sums: bool = False):
        super().__init__(comm)
        self.cut, self.sums = cut, sums

    def _cut_for(self, width: int) -> Cut:
        """Return the cut of an axis of which this rank has `width` values."""
        return self.cut.repeat(width // self.cut.widths[self.comm.rank])

    def forward(self, x):
        cut = self._cut_for(x.shape[-1])
        return gather_last(self.comm, x, cut), cut

    def backward(self, dy, saved):
        return reduce_scatter_last(self.comm, dy, saved) if self.sums else saved.take(dy, self.comm.rank)

    def output_shape(self, shape):
        return (*shape[:-1], self._cut_for(shape[-1]).n)

    def traffic(self, shape, itemsize=4):
        if self.comm.size == 1:
            return [], []
        nbytes = itemsize * gathered_values(shape, self._cut_for(shape[-1]))
        return [Traffic("all_gather", nbytes)], [Traffic("reduce_scatter", nbytes)] if self.sums else []

    def __repr__(self):
        return f"Gather({self.cut.n}{', sums' if self.sums else ''})"


class ShardDropout(Dropout):
    """`Dropout` of the part of the values that a rank has, with the masks of the serial run.

    Every rank draws the mask of the whole and uses its part. That costs p times the random numbers; in return training
    drops the same values on any number of ranks, and equals serial training. (Megatron draws a mask per rank instead:
    as good for learning, but another result for every number of ranks.)

    Parameters
    ----------
    dropout : Dropout
        The serial layer; its generator stands alike on every rank.
    cut : Cut
        Of the channels.
    rank : int

    References
    ----------
    M. Shoeybi et al. (2019), Megatron-LM, appendix B.2, for the other way.
    """

    def __init__(self, dropout, cut: Cut, rank: int):
        super().__init__(dropout.p, dropout.rng)
        self.cut, self.rank, self.name = cut, rank, dropout.name

    def forward(self, x):
        xp = get_xp(x)
        rng = self.rng if xp is np else xp.random.default_rng(int(self.rng.integers(2**63)))
        cut = self.cut.repeat(x.shape[-1] // self.cut.widths[self.rank])
        kept = cut.take(rng.random((*x.shape[:-1], cut.n), dtype=np.float32) >= self.p, self.rank)
        return self._mask(x.copy(), kept), kept

    def eval(self):
        return Identity()


class ShardNorm(TensorLayer):
    """`BatchNorm` of the channels that a rank has: channels do not see each other, so it is exact.

    Parameters
    ----------
    comm : Communicator
    norm : BatchNorm
        The serial layer.
    cut : Cut
        Of the channels.

    Notes
    -----
    Shapes: (..., width) to the same. Sends nothing. Every rank sees the whole batch, so its statistics are the serial
    run's.
    """

    how = "channels that the rank has"

    def __init__(self, comm, norm, cut: Cut):
        super().__init__(comm)
        self.local, self.name = copy.copy(norm), norm.name
        self.local.channels = cut.widths[comm.rank]
        for name in ("gamma", "beta", "running_mean", "running_var"):
            setattr(self.local, name, self.piece(getattr(norm, name), 0, cut))
        self.local.params = self.params = [getattr(self.local, p.name.rpartition(".")[2]) for p in norm.params]

    def forward(self, x):
        with self.span("forward", x):
            return self.local.forward(x)

    def backward(self, dy, saved):
        with self.span("backward", dy):
            return self.local.backward(dy, saved)

    def eval(self):
        view = copy.copy(self)
        view.local = self.local.eval()
        return view

    def output_shape(self, shape):
        return self.local.output_shape(shape)

    def flops(self, shape):
        return self.local.flops(shape)

    def backward_flops(self, shape):
        return self.local.backward_flops(shape)

    def __repr__(self):
        return f"ShardNorm({self.local!r})"
