"""Neurons and filters over ranks: every rank computes some of a layer's outputs from the whole input."""

from __future__ import annotations

import copy
import math

from ...backend import get_xp, matmul
from ...nn import ops
from ...nn.container import layer_span
from ...nn.layer import describe
from .cut import Cut, gather_last, gathered_values
from .layer import TensorLayer, Traffic


class Units(TensorLayer):
    """Base of the layers whose outputs are dealt to ranks.

    Parameters
    ----------
    comm : Communicator
    cut : Cut
        Of the outputs' last axis.
    gather_output : bool
        Put the outputs together again, on every rank; else the next layer gets this rank's.

    Attributes
    ----------
    local : Layer
        Computes this rank's outputs.
    sum_input_gradient : bool
        Sum the gradient of the input over ranks. False where a `Gather` before this layer does that and gives every
        rank only the part that it needs: half the bytes.
    """

    def __init__(self, comm, cut: Cut, gather_output: bool = False):
        super().__init__(comm)
        self.cut, self.gather_output = cut, gather_output
        self.sum_input_gradient = True

    def _take(self, layer, W, b):
        """Make `local`: the serial layer with this rank's parts of its parameters."""
        self.local, self.name = copy.copy(layer), layer.name
        self.local.W, self.local.b = W, b
        self.local.params = self.params = [p for p in (W, b) if p is not None]

    def forward(self, x):
        like = x.shape, x.dtype.itemsize
        with layer_span(self.comm.clock, self.local, "forward", *like):
            y, saved = self.local.forward(x)
        return gather_last(self.comm, y, self.cut) if self.gather_output else y, (saved, like)

    def backward(self, dy, saved):
        saved, like = saved
        if self.gather_output:
            dy = self.cut.take(dy, self.comm.rank)
        with layer_span(self.comm.clock, self.local, "backward", *like):
            dx = self.local.backward(dy, saved)
        return dx if dx is None else self._finish_input_gradient(dx)

    def _finish_input_gradient(self, dx):
        """Make the gradient of the input out of what this rank's outputs contribute."""
        return self.comm.all_reduce(get_xp(dx).ascontiguousarray(dx)) if self._sums else dx

    @property
    def _sums(self) -> bool:
        return self.sum_input_gradient and self.comm.size > 1

    def _local_shape(self, shape):
        """Return the shape of what `local` gets of an input."""
        return shape

    def output_shape(self, shape):
        shape = self.local.output_shape(self._local_shape(shape))
        return (*shape[:-1], self.cut.n) if self.gather_output else shape

    def flops(self, shape):
        return self.local.flops(self._local_shape(shape))

    def backward_flops(self, shape):
        return self.local.backward_flops(self._local_shape(shape))

    def bytes_moved(self, shape, itemsize=4):
        return self.local.bytes_moved(self._local_shape(shape), itemsize)

    def traffic(self, shape, itemsize=4):
        if self.comm.size == 1:
            return [], []
        forward = []
        if self.gather_output:
            values = gathered_values(self.local.output_shape(self._local_shape(shape)), self.cut)
            forward.append(Traffic("all_gather", itemsize * values))
        wanted = self.sum_input_gradient and getattr(self.local, "input_gradient", True)
        return forward, self._input_traffic(shape, itemsize) if wanted else []

    def _input_traffic(self, shape, itemsize) -> list[Traffic]:
        """List what summing the input's gradient sends."""
        return [Traffic("all_reduce", itemsize * math.prod(shape))]

    def __repr__(self):
        return f"{type(self).__name__}({self.cut.widths[self.comm.rank]} of {self.cut.n})"


class ColumnLinear(Units):
    r"""Dense layer whose neurons, the columns of W, are dealt to ranks.

    .. math:: Y_r = X W_r + b_r, \qquad dW_r = X^\top dY_r, \quad db_r = \sum_i dY_{r,i}, \quad
              dX = \sum_r dY_r W_r^\top

    Made by `ColumnLinear.of`. A `RowLinear` may take Y_r as it is, with any element-wise layer in between: two dense
    layers then cost one all-reduce forward and one backward.

    Notes
    -----
    Shapes: (batch, ..., d_in), the same on every rank, to (batch, ..., width), this rank's neurons, which
    `numpy.array_split` deals; with `gather_output` to (batch, ..., d_out). With n = batch ... rows of s bytes a value:

    - forward: nothing; with `gather_output` one all-gather of p n ceil(d_out / p) s bytes;
    - backward: one all-reduce of n d_in s bytes, which runs while dW_r is computed (nothing if nobody needs dX).

    A rank holds 1 / p of W and b, computes 1 / p of the flops, and saves the whole x.

    References
    ----------
    M. Shoeybi et al. (2019), Megatron-LM: training multi-billion parameter language models using model parallelism,
    section 3, figure 3a. A. Krizhevsky (2014), One weird trick for parallelizing convolutional neural networks.
    """

    how = "neurons over ranks"

    @classmethod
    def of(cls, linear, comm, *, gather_output: bool = False) -> ColumnLinear:
        """Take this rank's columns of a serial layer.

        Parameters
        ----------
        linear : Linear
        comm : Communicator
        gather_output : bool
        """
        layer = cls(comm, _deal(linear, linear.d_out, comm, "neurons"), gather_output)
        W, b = layer.piece(linear.W, 1, layer.cut), layer.piece(linear.b, 0, layer.cut)
        layer._take(linear, W, b)
        layer.local.d_out = b.size
        return layer

    def backward(self, dy, saved):
        local, (x, (shape, itemsize)) = self.local, saved
        if not local.input_gradient or not self._sums:
            return super().backward(dy, saved)
        if self.gather_output:
            dy = self.cut.take(dy, self.comm.rank)
        dy, rows = dy.reshape(-1, local.d_out), x.reshape(-1, local.d_in)
        half = {"flops": local.flops(shape), "nbytes": local.bytes_moved(shape, itemsize)}
        with self.comm.clock.span(f"backward[{self.name}]", **half):
            dx = matmul(dy, local.W.data.T)
        work = self.comm.iall_reduce(dx)
        with self.comm.clock.span(f"backward[{self.name}]", **half):  # while dX is on its way
            local.W.add_product(rows.T, dy)
            local.b.grad += ops.column_sums(dy)
        return work.wait().reshape(shape)


class FilterConv2d(Units):
    r"""Convolution whose filters are dealt to ranks: everyone looks at the whole image for other things.

    .. math:: Y_r = X * W_r + b_r, \qquad dX = \sum_r dX_r

    Made by `FilterConv2d.of`. Activations and poolings treat every channel by itself, so they can work on Y_r, and the
    channels are put together behind a pooling, where there are fewer values to send.

    Notes
    -----
    Shapes: (n, h, w, c_in), the same on every rank, to (n, oh, ow, width), this rank's channels; with `gather_output`
    to (n, oh, ow, c_out). At s bytes a value:

    - forward: nothing; with `gather_output` one all-gather of p n oh ow ceil(c_out / p) s bytes;
    - backward: one all-reduce of n h w c_in s bytes (nothing for a first layer, whose dX nobody needs).

    References
    ----------
    A. Krizhevsky (2014), section 3 (model parallelism in convolutions). A. Krizhevsky, I. Sutskever, G. E. Hinton
    (2012), ImageNet classification with deep convolutional neural networks, NIPS, section 3.2.
    """

    how = "filters over ranks"

    @classmethod
    def of(cls, conv, comm, *, gather_output: bool = False) -> FilterConv2d:
        """Take this rank's filters of a serial layer.

        Parameters
        ----------
        conv : Conv2d
            Not in groups: those see a part of the input each, so `GroupConv2d` deals whole groups.
        comm : Communicator
        gather_output : bool
        """
        if conv.groups != 1:
            raise ValueError(
                f"FilterConv2d: {describe(conv)} has groups={conv.groups}, expected groups=1; see GroupConv2d"
            )
        layer = cls(comm, _deal(conv, conv.c_out, comm, "filters"), gather_output)
        W = layer.piece(conv.W, 3, layer.cut)
        b = None if conv.b is None else layer.piece(conv.b, 0, layer.cut)
        layer._take(conv, W, b)
        layer.local.c_out = W.data.shape[3]
        return layer


def _deal(layer, n: int, comm, what: str) -> Cut:
    """Deal n units to ranks; raise if a rank would get none."""
    if n < comm.size:
        raise ValueError(
            f"{describe(layer)}: {n} {what} cannot be dealt to {comm.size} ranks, expected at least one for each"
        )
    return Cut.even(n, comm.size)
