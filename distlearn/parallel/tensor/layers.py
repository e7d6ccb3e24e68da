"""Layers of which every rank holds a part: neurons, filters, groups, inputs, heads.

Each takes a communicator and the serial layer, of whose parameters it keeps this rank's parts. Activations are either
*replicated*, the same on every rank, or *sharded* along their last axis, neurons or channels.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ...backend import column_sums, get_xp, matmul
from ...nn import Dropout, Identity, Sequential
from ...nn.container import layer_span
from ...nn.layer import Layer, Param, check_input, walk
from ...shares import shares
from ..sharding import Shard, ShardSpec, gather_parts, length, reduce_scatter_parts, take_part

# -- base classes ------------------------------------------------------------------------------------------------------


class AxisSharding:
    """Which values of an axis each rank holds."""

    def __init__(self, parts):
        self.parts = list(parts)  # slices, or arrays of indices
        self.widths = [length(part) for part in self.parts]
        self.n = sum(self.widths)

    @classmethod
    def even(cls, n: int, size: int) -> AxisSharding:
        """Shard n values over ranks as `numpy.array_split` does: contiguous, the longer parts first."""
        return cls(shares(n, size))

    @property
    def indices(self) -> list[Any]:
        return [np.arange(self.n)[part] for part in self.parts]

    def of_width(self, width: int, rank: int | None = None) -> AxisSharding:
        """Return the sharding of such axes in a row, as of an image after `Flatten`: `width` values, or a rank's."""
        times = width // (self.n if rank is None else self.widths[rank])
        if times == 1:
            return self
        starts = np.arange(times)[:, None] * self.n
        return AxisSharding([(starts + part).ravel() for part in self.indices])


class TensorLayer(Layer):
    """Base of the layers that communicate; `local` is a serial layer of this rank's size."""

    # A span covers only the arithmetic; the communicator records its own calls. So a time line shows which part of a
    # layer is computing and which is waiting.

    spans_itself = True
    local: Layer = Identity()
    layout = ""

    def __init__(self, comm, name: str = ""):
        self.comm, self.name, self.specs, self.params = comm, name, {}, []

    def shard_param(self, param: Param, axis: int, sharding: AxisSharding) -> Param:
        """Make this rank's part of a serial layer's parameter, and store its spec."""
        spec = ShardSpec(tuple(param.data.shape), Shard(axis, sharding.parts[self.comm.rank]))
        self.specs[param.name] = spec
        return type(param)(take_part(param.data, axis, sharding.parts[self.comm.rank]), param.name, param.frozen)

    def hold_alone(self, params) -> None:
        self.specs = {p.name: ShardSpec(tuple(p.data.shape)) for p in params}

    def forward(self, x):
        like = x.shape, x.dtype.itemsize
        with layer_span(self.comm.clock, self.local, "forward", *like):
            y, saved = self.local.forward(x)
        return y, (saved, like)

    def backward(self, dy, saved):
        saved, like = saved
        with layer_span(self.comm.clock, self.local, "backward", *like):
            return self.local.backward(dy, saved)

    def local_shape(self, shape):
        return shape

    def output_shape(self, shape):
        return self.local.output_shape(self.local_shape(shape))

    def flops(self, shape):
        return self.local.flops(self.local_shape(shape))

    def backward_flops(self, shape):
        return self.local.backward_flops(self.local_shape(shape))

    @property
    def input_gradient(self) -> bool:
        return self.local.input_gradient

    def eval(self):
        view = copy.copy(self)
        view.local = self.local.eval()
        return view

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(map(repr, self.children or [self.local]))})"


class TensorSequential(Sequential):
    """The result of `parallelize`: some layers are sharded over ranks, the others run on every rank."""

    spans_itself = True

    def __init__(self, comm, layers, layouts):
        self.comm, self.clock, self.layers, self.layouts = comm, comm.clock, list(layers), list(layouts)
        self.params = unique_params(self.layers)


def unique_params(layers) -> list[Any]:
    """Return the parameters of some layers, each once, in order."""
    return list({id(p): p for layer in layers for p in layer.params}.values())


def shard_specs(model: Layer) -> dict[str, ShardSpec]:
    """Return by name this rank's shards of the parameters that differ from rank to rank."""
    layers = (layer for layer in walk(model) if isinstance(layer, TensorLayer))
    return {name: spec for layer in layers for name, spec in layer.specs.items()}


# -- sharded outputs: each rank computes some of them from the whole input ---------------------------------------------


class ColumnParallel(TensorLayer):
    """Base of the layers whose outputs are sharded over ranks; the gradient of their input is a sum over ranks."""

    sum_input_gradient = True

    def __init__(self, comm, name: str, sharding: AxisSharding):
        super().__init__(comm, name)
        self.sharding = sharding

    def take_weights(self, layer, axis: int) -> None:
        """Make `local`: the serial layer with this rank's parts of its parameters."""
        self.local = copy.copy(layer)
        self.local.W = self.shard_param(layer.W, axis, self.sharding)
        self.local.b = self.shard_param(layer.b, 0, self.sharding)
        self.local.params = self.params = [self.local.W, self.local.b]

    def backward(self, dy, saved):
        dx = super().backward(dy, saved)
        if dx is None or not self.sum_input_gradient:
            return dx
        return self.comm.all_reduce(get_xp(dx).ascontiguousarray(dx))


class ColumnParallelLinear(ColumnParallel):
    """Dense layer whose neurons, the columns of W, are sharded over ranks: Y_r = X W_r + b_r, dX = sum of dY_r W_r^T.

    Backward starts the all-reduce of dX, and computes dW_r meanwhile.
    """

    layout = "neurons over ranks"

    def __init__(self, comm, linear):
        super().__init__(comm, linear.name, AxisSharding.even(linear.d_out, comm.size))
        self.take_weights(linear, 1)
        self.local.d_out = self.local.b.size

    def backward(self, dy, saved):
        (x, like), clock, local = saved, self.comm.clock, self.local
        dx = work = None
        later = [] if local.input_gradient else [(local.backward, dy, x)]
        if local.input_gradient:
            with layer_span(clock, local, "backward_input", *like):
                dx = local.backward(dy, x, later)
            work = self.comm.iall_reduce(dx) if self.sum_input_gradient else None
        with layer_span(clock, local, "backward_weights", *like):  # while dX is being summed
            for add, *about in later:
                add(*about)
        return dx if work is None else work.wait()


class FilterParallelConv2d(ColumnParallel):
    """Convolution whose filters are sharded over ranks: every rank applies other filters to the whole image."""

    layout = "filters over ranks"

    def __init__(self, comm, conv):
        super().__init__(comm, conv.name, AxisSharding.even(conv.c_out, comm.size))
        self.take_weights(conv, 3)
        self.local.c_out = self.sharding.widths[comm.rank]


class GroupParallelConv2d(ColumnParallel):
    """Convolution in groups, of which every rank has some: a group sees only its own channels."""

    layout = "groups over ranks"

    def __init__(self, comm, conv, sharded_input: bool = False):
        super().__init__(comm, conv.name, AxisSharding.even(conv.c_out, comm.size))
        self.inputs, self.sharded_input = AxisSharding.even(conv.c_in, comm.size), sharded_input
        self.take_weights(conv, 3)
        for name in ("c_in", "c_out", "groups"):
            setattr(self.local, name, getattr(conv, name) // comm.size)

    @staticmethod
    def fits(conv, sharding: AxisSharding) -> bool:
        """Say whether each rank holds the channels that its groups of a convolution need."""
        p = len(sharding.parts)
        wanted = AxisSharding.even(conv.c_in, p)
        return conv.groups % p == 0 and all(map(np.array_equal, sharding.indices, wanted.indices))

    def forward(self, x):
        return super().forward(x if self.sharded_input else take_part(x, -1, self.inputs.parts[self.comm.rank]))

    def backward(self, dy, saved):
        dx = TensorLayer.backward(self, dy, saved)
        if dx is None or self.sharded_input:
            return dx
        if self.sum_input_gradient:  # every channel's gradient is on one rank
            return gather_parts(self.comm, dx, -1, self.inputs.parts)
        whole = get_xp(dx).zeros((*dx.shape[:-1], self.inputs.n), dx.dtype)
        whole[..., self.inputs.parts[self.comm.rank]] = dx
        return whole

    def local_shape(self, shape):
        return shape if self.sharded_input else (*shape[:-1], self.inputs.widths[self.comm.rank])


# -- sharded inputs: outputs are sums over ranks -----------------------------------------------------------------------


class RowParallelLinear(TensorLayer):
    """Dense layer whose inputs, the rows of W, are sharded over ranks: Y = b + sum of X_r W_r, one all-reduce."""

    layout = "inputs over ranks, outputs summed"

    def __init__(self, comm, linear, sharding: AxisSharding):
        super().__init__(comm, linear.name)
        self.W, self.b = self.shard_param(linear.W, 0, sharding), linear.b
        self.local, self.params = copy.copy(linear), [self.W, self.b]
        self.local.W, self.local.params, self.local.d_in = self.W, self.params, sharding.widths[comm.rank]

    def forward(self, x):
        check_input(self, x)
        like = x.shape, x.dtype.itemsize
        with layer_span(self.comm.clock, self.local, "forward", *like):
            y = matmul(x.reshape(-1, self.local.d_in), self.W.data)
        y = self.comm.all_reduce(y)
        y += self.b.data
        return y.reshape(*x.shape[:-1], self.local.d_out), (x, like)


class HeadParallelAttention(TensorLayer):
    """`MultiHeadAttention` of which every rank computes some heads."""

    layout = "heads over ranks, outputs summed"

    def __init__(self, comm, layer):
        super().__init__(comm, layer.name)
        heads = shares(layer.heads, comm.size)
        sharding = AxisSharding([slice(part.start * layer.d, part.stop * layer.d) for part in heads])
        self.local = copy.copy(layer)
        self.local.heads = length(heads[comm.rank])
        *inputs, out = map(copy.copy, layer.layers)
        for linear in inputs:
            linear.W, linear.b = self.shard_param(linear.W, 1, sharding), self.shard_param(linear.b, 0, sharding)
            linear.params, linear.d_out = [linear.W, linear.b], linear.b.size
        self.b, out.W = out.b, self.shard_param(out.W, 0, sharding)
        out.b = Param(get_xp(self.b.data).zeros_like(self.b.data))  # the bias is added once, after the sum
        out.d_in = len(out.W.data)
        self.local.layers = [*inputs, out]
        self.params = [*unique_params(inputs), out.W, self.b]

    def forward(self, x):
        y, saved = super().forward(x)
        y = self.comm.all_reduce(get_xp(y).ascontiguousarray(y))
        y += self.b.data
        return y, saved

    def backward(self, dy, saved):
        self.b.add(column_sums(dy))
        dx = super().backward(dy, saved)
        return self.comm.all_reduce(get_xp(dx).ascontiguousarray(dx))


# -- between them ------------------------------------------------------------------------------------------------------


class Gather(TensorLayer):
    """Gathers the shards of all ranks along the last axis: from here on activations are replicated."""

    layout = "channels gathered"

    def __init__(self, comm, sharding: AxisSharding):
        super().__init__(comm)
        self.sharding, self.partial = sharding, False  # `partial` is set once the layers behind are known

    def forward(self, x):
        sharding = self.sharding.of_width(x.shape[-1], self.comm.rank)
        return gather_parts(self.comm, x, -1, sharding.parts), sharding

    def backward(self, dy, saved):
        if self.partial:
            return reduce_scatter_parts(self.comm, dy, -1, saved.parts)
        return take_part(dy, -1, saved.parts[self.comm.rank])

    def output_shape(self, shape):
        return (*shape[:-1], self.sharding.of_width(shape[-1], self.comm.rank).n)


class ShardDropout(Dropout):
    """`Dropout` of the part of the values that a rank has, with the masks of the serial run."""

    # Every rank draws the whole mask and uses its part. That costs p times the random numbers; in return training drops
    # the same values on any number of ranks, and equals serial training. (Megatron draws a mask per rank instead: as
    # good for learning, but with another result for every number of ranks.)

    def __init__(self, dropout, sharding: AxisSharding, rank: int):
        super().__init__(dropout.p, dropout.rng)
        self.sharding, self.rank, self.name = sharding, rank, dropout.name

    def forward(self, x):
        xp, sharding = get_xp(x), self.sharding.of_width(x.shape[-1], self.rank)
        rng = self.rng if xp is np else xp.random.default_rng(int(self.rng.integers(2**63)))
        whole = rng.random((*x.shape[:-1], sharding.n), dtype=np.float32) >= self.p
        kept = take_part(whole, -1, sharding.parts[self.rank])
        return self._mask(x.copy(), kept), kept
