"""Column-parallel layers: every rank computes some of the outputs (neurons, filters, groups) from the whole input."""

from __future__ import annotations

import copy

from ...backend import column_sums, get_xp, matmul
from ...nn.container import cost, layer_span
from ...nn.layer import describe
from .layer import AxisSharding, TensorLayer, gather_last


class ColumnParallel(TensorLayer):
    """Base of the layers whose outputs are sharded over ranks."""

    def __init__(self, comm, sharding: AxisSharding, gather_output: bool = False):
        super().__init__(comm)
        self.sharding, self.gather_output = sharding, gather_output
        self.sum_input_gradient = comm.size > 1

    def _make_local(self, layer, W, b):
        """Make `local`: the serial layer with this rank's parts of its parameters."""
        self.local, self.name = copy.copy(layer), layer.name
        self.local.W, self.local.b = W, b
        self.local.params = self.params = [p for p in (W, b) if p is not None]

    def forward(self, x):
        like = x.shape, x.dtype.itemsize
        with layer_span(self.comm.clock, self.local, "forward", *like):
            y, saved = self.local.forward(x)
        return gather_last(self.comm, y, self.sharding) if self.gather_output else y, (saved, like)

    def backward(self, dy, saved):
        saved, like = saved
        if self.gather_output:
            dy = self.sharding.take(dy, self.comm.rank)
        with layer_span(self.comm.clock, self.local, "backward", *like):
            dx = self.local.backward(dy, saved)
        return dx if dx is None else self._finish_input_gradient(dx)

    def _finish_input_gradient(self, dx):
        """Compute the gradient of the input from this rank's summand."""
        return self.comm.all_reduce(get_xp(dx).ascontiguousarray(dx)) if self.sum_input_gradient else dx

    @property
    def input_gradient(self) -> bool:
        """Whether the layer computes the gradient of its input."""
        return self.local.input_gradient

    def _local_shape(self, shape):
        """Return the shape of the input to `local`."""
        return shape

    def output_shape(self, shape):
        shape = self.local.output_shape(self._local_shape(shape))
        return (*shape[:-1], self.sharding.n) if self.gather_output else shape

    def flops(self, shape):
        return self.local.flops(self._local_shape(shape))

    def backward_flops(self, shape):
        return self.local.backward_flops(self._local_shape(shape))

    def bytes_moved(self, shape, itemsize=4):
        return self.local.bytes_moved(self._local_shape(shape), itemsize)

    def __repr__(self):
        return f"{type(self).__name__}({self.sharding.widths[self.comm.rank]} of {self.sharding.n})"


class ColumnParallelLinear(ColumnParallel):
    r"""Dense layer whose neurons, the columns of W, are sharded over ranks."""

    how = "neurons over ranks"

    @classmethod
    def of(cls, linear, comm, *, gather_output: bool = False) -> ColumnParallelLinear:
        """Take this rank's columns of a serial layer."""
        layer = cls(comm, _shard_units(linear, linear.d_out, comm, "neurons"), gather_output)
        W, b = layer.shard_param(linear.W, 1, layer.sharding), layer.shard_param(linear.b, 0, layer.sharding)
        layer._make_local(linear, W, b)
        layer.local.d_out = b.size
        return layer

    def backward(self, dy, saved):
        local, (x, (shape, itemsize)) = self.local, saved
        if not local.input_gradient or not self.sum_input_gradient:
            return super().backward(dy, saved)
        if self.gather_output:
            dy = self.sharding.take(dy, self.comm.rank)
        dy, rows = dy.reshape(-1, local.d_out), x.reshape(-1, local.d_in)
        flops, moved = cost(local, "forward", shape, itemsize)  # each of the two products, half of backward
        with self.comm.clock.span(f"backward[{self.name}]", flops=flops, nbytes=moved):
            dx = matmul(dy, local.W.data.T)
        work = self.comm.iall_reduce(dx)
        with self.comm.clock.span(f"backward[{self.name}]", flops=flops, nbytes=moved):  # while dX is being summed
            local.W.add_product(rows.T, dy)
            local.b.grad += column_sums(dy)
        return work.wait().reshape(shape)


class FilterParallelConv2d(ColumnParallel):
    r"""Convolution whose filters are sharded over ranks: every rank applies other filters to the whole image."""

    how = "filters over ranks"

    @classmethod
    def of(cls, conv, comm, *, gather_output: bool = False) -> FilterParallelConv2d:
        """Take this rank's filters of a serial layer."""
        if conv.groups != 1:
            raise ValueError(
                f"FilterParallelConv2d: {describe(conv)} has groups={conv.groups}, expected groups=1; "
                "see GroupParallelConv2d"
            )
        layer = cls(comm, _shard_units(conv, conv.c_out, comm, "filters"), gather_output)
        W = layer.shard_param(conv.W, 3, layer.sharding)
        b = None if conv.b is None else layer.shard_param(conv.b, 0, layer.sharding)
        layer._make_local(conv, W, b)
        layer.local.c_out = W.data.shape[3]
        return layer


def _shard_units(layer, n: int, comm, what: str) -> AxisSharding:
    """Shard n units over ranks; raise if a rank would get none."""
    if n < comm.size:
        raise ValueError(
            f"{describe(layer)}: {n} {what} cannot be sharded over {comm.size} ranks, expected at least one for each"
        )
    return AxisSharding.even(n, comm.size)


class GroupParallelConv2d(ColumnParallel):
    r"""Convolution in groups, of which every rank has some: a group sees only its own channels."""

    how = "groups over ranks"

    def __init__(self, comm, sharding, inputs: AxisSharding, sharded_input: bool = False, gather_output: bool = False):
        super().__init__(comm, sharding, gather_output)
        self.inputs, self.sharded_input = inputs, sharded_input

    @classmethod
    def of(cls, conv, comm, *, sharded_input: bool = False, gather_output: bool = False) -> GroupParallelConv2d:
        """Take this rank's groups of a serial layer."""
        p = comm.size
        if conv.groups % p:
            raise ValueError(
                f"GroupParallelConv2d: {describe(conv)}: {conv.groups} groups cannot be sharded evenly over {p} ranks"
            )
        layer = cls(
            comm, AxisSharding.even(conv.c_out, p), AxisSharding.even(conv.c_in, p), sharded_input, gather_output
        )
        W = layer.shard_param(conv.W, 3, layer.sharding)
        layer._make_local(conv, W, None if conv.b is None else layer.shard_param(conv.b, 0, layer.sharding))
        layer.local.c_in, layer.local.c_out, layer.local.groups = conv.c_in // p, conv.c_out // p, conv.groups // p
        return layer

    @staticmethod
    def fits(conv, sharding: AxisSharding) -> bool:
        """Say whether channels sharded like this are what each rank's groups of a convolution need."""
        p = len(sharding.parts)
        return conv.groups % p == 0 and sharding.n == conv.c_in and sharding == AxisSharding.even(conv.c_in, p)

    def forward(self, x):
        return super().forward(x if self.sharded_input else self.inputs.take(x, self.comm.rank))

    def _finish_input_gradient(self, dx):
        if self.sharded_input:
            return dx
        if self.sum_input_gradient:
            return gather_last(self.comm, get_xp(dx).ascontiguousarray(dx), self.inputs)
        whole = get_xp(dx).zeros((*dx.shape[:-1], self.inputs.n), dx.dtype)
        whole[..., self.inputs.index(self.comm.rank, whole)] = dx
        return whole

    def _local_shape(self, shape):
        return shape if self.sharded_input else (*shape[:-1], self.inputs.widths[self.comm.rank])
