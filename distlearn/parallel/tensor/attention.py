"""Attention whose heads are sharded over ranks."""

from __future__ import annotations

import copy

import numpy as np

from ...backend import column_sums, get_xp
from ...nn.container import layer_span
from ...nn.layer import Param
from .layer import AxisSharding, TensorLayer


class HeadParallelAttention(TensorLayer):
    r"""`MultiHeadAttention` of which every rank computes some heads."""

    how = "heads over ranks, outputs summed"

    def __init__(self, comm, layer):
        super().__init__(comm)
        self.sum_output = self.sum_input_gradient = comm.size > 1
        self.name, self.width = layer.name, layer.width
        shared = AxisSharding.even(layer.kv_heads, comm.size)
        group = layer.heads // layer.kv_heads
        queries, keys = _columns(shared, group * layer.d), _columns(shared, layer.d)
        self.local = copy.copy(layer)
        self.local.kv_heads = shared.widths[comm.rank]
        self.local.heads = group * self.local.kv_heads
        out = copy.copy(layer.layers[3])
        self.b, out.W = out.b, self.shard_param(out.W, 0, queries)
        out.b = Param(get_xp(self.b.data).zeros_like(self.b.data))  # the bias is added once, after the sum
        out.d_in = len(out.W.data)
        inputs = [
            self._column_parallel(serial, sharding)
            for serial, sharding in zip(layer.layers, (queries, keys, keys), strict=False)
        ]
        self.local.layers = [*inputs, out]
        self.params = [p for linear in inputs for p in linear.params] + [out.W, self.b]

    def _column_parallel(self, linear, sharding):
        """Return a dense layer with this rank's neurons."""
        mine = copy.copy(linear)
        mine.W, mine.b = self.shard_param(linear.W, 1, sharding), self.shard_param(linear.b, 0, sharding)
        mine.params, mine.d_out = [mine.W, mine.b], mine.b.size
        return mine

    def forward(self, x):
        like = x.shape, x.dtype.itemsize
        with layer_span(self.comm.clock, self.local, "forward", *like):
            y, saved = self.local.forward(x)
        if self.sum_output:
            y = self._summed(y)
        if self.sum_output or self.comm.rank == 0:  # of summands one has the bias
            y += self.b.data
        return y, (saved, like)

    def backward(self, dy, saved):
        saved, like = saved
        self.b.add(column_sums(dy))
        with layer_span(self.comm.clock, self.local, "backward", *like):
            dx = self.local.backward(dy, saved)
        return self._summed(dx) if self.sum_input_gradient else dx

    def _summed(self, x):
        return self.comm.all_reduce(get_xp(x).ascontiguousarray(x))

    def output_shape(self, shape):
        return self.local.output_shape(shape)

    def flops(self, shape):
        return self.local.flops(shape)

    def backward_flops(self, shape):
        return self.local.backward_flops(shape)

    def bytes_moved(self, shape, itemsize=4):
        return self.local.bytes_moved(shape, itemsize)

    def __repr__(self):
        return f"HeadParallelAttention({self.local.heads} heads)"


def _columns(heads: AxisSharding, width: int) -> AxisSharding:
    """Return the sharding of columns where every head has `width` of them."""
    return AxisSharding([(part[:, None] * width + np.arange(width)).ravel() for part in heads.parts])
