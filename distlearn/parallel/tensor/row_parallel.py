"""Layers on sharded activations: the row-parallel dense layer, which sums over ranks, and those that keep shards."""

from __future__ import annotations

import copy
import math

import numpy as np

from ...backend import column_sums, get_xp, matmul
from ...nn import Dropout, Identity
from ...nn.container import layer_span
from ...nn.layer import check_dtype, check_shape, describe
from .layer import AxisSharding, TensorLayer, gather_last, reduce_scatter_last


class RowParallelLinear(TensorLayer):
    r"""Dense layer whose inputs, the rows of W, are sharded over ranks."""

    how = "inputs over ranks, outputs summed"

    def __init__(self, comm, linear, sharding: AxisSharding):
        super().__init__(comm)
        self.sum_output = comm.size > 1
        self.sharding, self.name, self.d_out = sharding, linear.name, linear.d_out
        self.d_in = sharding.widths[comm.rank]
        self.input_gradient = linear.input_gradient
        self.W, self.b = self.shard_param(linear.W, 0, sharding), linear.b
        self.params = [self.W, self.b]

    @classmethod
    def of(cls, linear, comm, *, sharding: AxisSharding | None = None) -> RowParallelLinear:
        """Take this rank's rows of a serial layer."""
        if sharding is None:
            sharding = AxisSharding.even(linear.d_in, comm.size)
        if sharding.n != linear.d_in or len(sharding.parts) != comm.size:
            raise ValueError(
                f"RowParallelLinear: {sharding.n} values are sharded over {len(sharding.parts)} ranks, "
                f"expected the {linear.d_in} inputs of {describe(linear)} and {comm.size} ranks"
            )
        return cls(comm, linear, sharding)

    def forward(self, x):
        check_shape(self, x.shape, "...", self.d_in)
        check_dtype(self, x)
        with layer_span(self.comm.clock, self, "forward", x.shape, x.dtype.itemsize):
            y = matmul(x.reshape(-1, self.d_in), self.W.data)
        if self.sum_output:
            self.comm.all_reduce(y)
        if self.sum_output or self.comm.rank == 0:
            y += self.b.data
        return y.reshape(*x.shape[:-1], self.d_out), x

    def backward(self, dy, saved):
        dy = dy.reshape(-1, self.d_out)
        with layer_span(self.comm.clock, self, "backward", saved.shape, saved.dtype.itemsize):
            self.W.add_product(saved.reshape(-1, self.d_in).T, dy)
            self.b.grad += column_sums(dy)
            return matmul(dy, self.W.data.T).reshape(saved.shape) if self.input_gradient else None

    def output_shape(self, shape):
        check_shape(self, shape, "...", self.d_in)
        return (*shape[:-1], self.d_out)

    def flops(self, shape):
        return 2 * math.prod(shape[:-1]) * self.d_in * self.d_out

    def backward_flops(self, shape):
        return self.flops(shape) * (2 if self.input_gradient else 1)

    def __repr__(self):
        return f"RowParallelLinear({self.d_in} of {self.sharding.n}, {self.d_out})"


class Gather(TensorLayer):
    r"""Gathers the shards of all ranks along the last axis: from here on activations are replicated."""

    how = "channels gathered"

    def __init__(self, comm, sharding: AxisSharding, partial: bool = False):
        super().__init__(comm)
        self.sharding, self.partial = sharding, partial

    def _sharding_of(self, width: int) -> AxisSharding:
        """Return the sharding of an axis of which this rank has `width` values."""
        return self.sharding.repeat(width // self.sharding.widths[self.comm.rank])

    def forward(self, x):
        sharding = self._sharding_of(x.shape[-1])
        return gather_last(self.comm, x, sharding), sharding

    def backward(self, dy, saved):
        return reduce_scatter_last(self.comm, dy, saved) if self.partial else saved.take(dy, self.comm.rank)

    def output_shape(self, shape):
        return (*shape[:-1], self._sharding_of(shape[-1]).n)

    def __repr__(self):
        return f"Gather({self.sharding.n}{', partial' if self.partial else ''})"


class ShardDropout(Dropout):
    """`Dropout` of the part of the values that a rank has, with the masks of the serial run.

    Every rank draws the whole mask and uses its part. That costs p times the random numbers; in return training drops
    the same values on any number of ranks, and equals serial training. (Megatron draws a mask per rank instead:
    as good for learning, but with another result for every number of ranks.)
    """

    def __init__(self, dropout, sharding: AxisSharding, rank: int):
        super().__init__(dropout.p, dropout.rng)
        self.sharding, self.rank, self.name = sharding, rank, dropout.name

    def forward(self, x):
        xp = get_xp(x)
        rng = self.rng if xp is np else xp.random.default_rng(int(self.rng.integers(2**63)))
        sharding = self.sharding.repeat(x.shape[-1] // self.sharding.widths[self.rank])
        kept = sharding.take(rng.random((*x.shape[:-1], sharding.n), dtype=np.float32) >= self.p, self.rank)
        return self._mask(x.copy(), kept), kept

    def eval(self):
        return Identity()


class ShardNorm(TensorLayer):
    """`BatchNorm` of the channels that a rank has: channels are independent, so it is exact."""

    how = "channels that the rank has"

    def __init__(self, comm, norm, sharding: AxisSharding):
        super().__init__(comm)
        self.local, self.name = copy.copy(norm), norm.name
        self.local.channels = sharding.widths[comm.rank]
        for name in ("gamma", "beta", "running_mean", "running_var"):
            setattr(self.local, name, self.shard_param(getattr(norm, name), 0, sharding))
        self.local.params = self.params = [getattr(self.local, p.name.rpartition(".")[2]) for p in norm.params]

    def forward(self, x):
        with layer_span(self.comm.clock, self, "forward", x.shape, x.dtype.itemsize):
            return self.local.forward(x)

    def backward(self, dy, saved):
        with layer_span(self.comm.clock, self, "backward", dy.shape, dy.dtype.itemsize):
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
