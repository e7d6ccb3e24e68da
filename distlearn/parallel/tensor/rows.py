"""The other half of a pair of dense layers: each rank takes the inputs that it has, and the outputs are summed."""

from __future__ import annotations

import math

from ...backend import matmul
from ...nn import ops
from ...nn.layer import check_dtype, check_shape, describe
from .cut import Cut
from .layer import TensorLayer, Traffic


class RowLinear(TensorLayer):
    r"""Dense layer whose inputs, the rows of W, are dealt to ranks.

    .. math:: Y = \sum_r X_r W_r + b, \qquad dW_r = X_r^\top dY, \quad db = \sum_i dY_i, \quad dX_r = dY W_r^\top

    Made by `RowLinear.of`. Its input is what a `ColumnLinear` or a `FilterConv2d` leaves on the rank, so nobody has to
    gather that. The bias is on every rank and added once, after the sum.

    Notes
    -----
    Shapes: (batch, ..., width), this rank's inputs, to (batch, ..., d_out), the same on every rank. With n = batch ...
    rows of s bytes a value: forward one all-reduce of n d_out s bytes, backward nothing. A rank holds 1 / p of W,
    computes 1 / p of the flops, and saves x_r, 1 / p of the serial layer's.

    References
    ----------
    M. Shoeybi et al. (2019), Megatron-LM, section 3, figure 3a (the second matrix, and the operator g).
    """

    how = "inputs over ranks, outputs summed"

    def __init__(self, comm, linear, cut: Cut):
        super().__init__(comm)
        self.cut, self.name, self.d_out = cut, linear.name, linear.d_out
        self.d_in = cut.widths[comm.rank]
        self.input_gradient = linear.input_gradient
        self.W, self.b = self.piece(linear.W, 0, cut), linear.b
        self.params = [self.W, self.b]

    @classmethod
    def of(cls, linear, comm, *, cut: Cut | None = None) -> RowLinear:
        """Take this rank's rows of a serial layer.

        Parameters
        ----------
        linear : Linear
        comm : Communicator
        cut : Cut, optional
            How the layer before deals its outputs; by default as `ColumnLinear` does. Channels that are dealt so lie
            apart after `Flatten`: `cut.repeat(pixels)`.
        """
        if cut is None:
            cut = Cut.even(linear.d_in, comm.size)
        if cut.n != linear.d_in or len(cut.parts) != comm.size:
            raise ValueError(
                f"RowLinear: the cut deals {cut.n} values to {len(cut.parts)} ranks, "
                f"expected the {linear.d_in} inputs of {describe(linear)} and {comm.size} ranks"
            )
        return cls(comm, linear, cut)

    def forward(self, x):
        check_shape(self, x.shape, "...", self.d_in)
        check_dtype(self, x)
        with self.span("forward", x):
            y = matmul(x.reshape(-1, self.d_in), self.W.data)
        if self.comm.size > 1:
            self.comm.all_reduce(y)
        y += self.b.data
        return y.reshape(*x.shape[:-1], self.d_out), x

    def backward(self, dy, saved):
        dy = dy.reshape(-1, self.d_out)
        with self.span("backward", saved):
            self.W.add_product(saved.reshape(-1, self.d_in).T, dy)
            self.b.grad += ops.column_sums(dy)
            return matmul(dy, self.W.data.T).reshape(saved.shape) if self.input_gradient else None

    def output_shape(self, shape):
        check_shape(self, shape, "...", self.d_in)
        return (*shape[:-1], self.d_out)

    def flops(self, shape):
        return 2 * math.prod(shape[:-1]) * self.d_in * self.d_out

    def backward_flops(self, shape):
        return self.flops(shape) * (2 if self.input_gradient else 1)

    def traffic(self, shape, itemsize=4):
        if self.comm.size == 1:
            return [], []
        return [Traffic("all_reduce", itemsize * math.prod(shape[:-1]) * self.d_out)], []

    def __repr__(self):
        return f"RowLinear({self.d_in} of {self.cut.n}, {self.d_out})"
