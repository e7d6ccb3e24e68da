"""Groups of a convolution over ranks: the two towers of AlexNet, which lay on two GPUs."""

from __future__ import annotations

import math

from ...backend import get_xp
from ...nn.layer import describe
from .cut import Cut, gather_last
from .layer import Traffic
from .units import Units


class GroupConv2d(Units):
    r"""Convolution in groups, of which every rank has some: a group looks at its own channels alone.

    .. math:: Y_r = X_r * W_r + b_r, \qquad dX_r = \text{as in the serial layer}

    Made by `GroupConv2d.of`. Where the channels come from another dealt convolution, a rank has what its groups need
    already, and nothing is sent at all: that is why AlexNet has groups.

    Parameters
    ----------
    comm, cut, gather_output
        As in `Units`.
    inputs : Cut
        Of the input's channels, by group.
    dealt : bool
        The input is this rank's channels; else it is whole, and the rank takes its own.

    Notes
    -----
    Shapes: (n, h, w, c_in), or (n, h, w, c_in / p) if `dealt`, to (n, oh, ow, c_out / p); with `gather_output` to (n,
    oh, ow, c_out). If `dealt`, nothing is sent in either direction. Else nothing forward, and backward one all-gather
    of n h w c_in values, unless a `Gather` before this layer sums the gradient. With `gather_output` one all-gather of
    the output's size.

    References
    ----------
    A. Krizhevsky, I. Sutskever, G. E. Hinton (2012), ImageNet classification with deep convolutional neural networks,
    NIPS, section 3.2.
    """

    how = "groups over ranks"

    def __init__(self, comm, cut: Cut, inputs: Cut, dealt: bool = False, gather_output: bool = False):
        super().__init__(comm, cut, gather_output)
        self.inputs, self.dealt = inputs, dealt

    @classmethod
    def of(cls, conv, comm, *, dealt: bool = False, gather_output: bool = False) -> GroupConv2d:
        """Take this rank's groups of a serial layer.

        Parameters
        ----------
        conv : Conv2d
            The number of its groups is a multiple of the number of ranks.
        comm : Communicator
        dealt : bool
        gather_output : bool
        """
        p = comm.size
        if conv.groups % p:
            raise ValueError(f"GroupConv2d: {describe(conv)}: {conv.groups} groups cannot be dealt evenly to {p} ranks")
        layer = cls(comm, Cut.even(conv.c_out, p), Cut.even(conv.c_in, p), dealt, gather_output)
        W = layer.piece(conv.W, 3, layer.cut)
        layer._take(conv, W, None if conv.b is None else layer.piece(conv.b, 0, layer.cut))
        layer.local.c_in, layer.local.c_out, layer.local.groups = conv.c_in // p, conv.c_out // p, conv.groups // p
        return layer

    @staticmethod
    def fits(conv, cut: Cut) -> bool:
        """Say whether channels that are dealt like this are what each rank's groups of a convolution need."""
        p = len(cut.parts)
        return conv.groups % p == 0 and cut.n == conv.c_in and cut == Cut.even(conv.c_in, p)

    def forward(self, x):
        return super().forward(x if self.dealt else self.inputs.take(x, self.comm.rank))

    def _finish_input_gradient(self, dx):
        if self.dealt:
            return dx
        if self.sum_input_gradient:
            return gather_last(self.comm, get_xp(dx).ascontiguousarray(dx), self.inputs)
        whole = get_xp(dx).zeros((*dx.shape[:-1], self.inputs.n), dx.dtype)
        whole[..., self.inputs.index(self.comm.rank, whole)] = dx
        return whole

    def _local_shape(self, shape):
        return shape if self.dealt else (*shape[:-1], self.inputs.widths[self.comm.rank])

    def _input_traffic(self, shape, itemsize):
        if self.dealt:
            return []
        return [Traffic("all_gather", itemsize * math.prod(shape))]
