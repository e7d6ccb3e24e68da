"""`parallelize`: shards the layers of a serial model over ranks.

Activations are in one of two states. *Replicated*: every rank has all values. *Sharded*: every rank has its part of the
last axis, neurons or channels. A column of dense layers alternates between the two:

    replicated --> ColumnParallelLinear --> sharded --> ReLU --> sharded --> RowParallelLinear (sum) --> replicated

and a convolution's filters leave their channels sharded until a layer needs all of them, mostly the next convolution.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ... import nn
from ...nn.layer import Layer, walk
from .blocks import PathParallel, SiameseParallel, StackParallel
from .layers import (
    ColumnParallel,
    ColumnParallelLinear,
    FilterParallelConv2d,
    Gather,
    GroupParallelConv2d,
    HeadParallelAttention,
    RowParallelLinear,
    ShardDropout,
    TensorLayer,
    TensorSequential,
    unique_params,
)

if TYPE_CHECKING:
    from ...comm.base import Communicator

BLOCKS = (nn.Sequential, nn.Planned, nn.Parallel, nn.Residual, nn.Recompute, nn.Siamese)
BY_CHANNEL = (nn.ReLU, nn.GELU, nn.Sigmoid, nn.Tanh, nn.Identity, nn.MaxPool, nn.GlobalAvgPool)
"""Layers that treat every neuron or channel separately, so they run on any part of them."""
WITHOUT_PARAMETERS = (*BY_CHANNEL, nn.Flatten, nn.Reshape, nn.Dropout, nn.LocalResponseNorm, nn.Softmax)
"""Layers whose backward pass is a linear map of dy: a sum over ranks may be formed before or after it."""
SHARDED = {
    nn.Linear: (ColumnParallelLinear, "d_out", "neurons"),
    nn.Conv2d: (FilterParallelConv2d, "c_out", "filters"),
    nn.MultiHeadAttention: (HeadParallelAttention, "heads", "heads"),
}
"""By layer: its form whose input is replicated, and which of its attributes counts what it divides over ranks."""


def parallelize(model: nn.Sequential, comm: Communicator) -> TensorSequential:
    """Shard a model over ranks: neurons, filters, paths, branches, layers of a GRU stack; every rank must call.

    ================================  ===============================================================================
    layer                             result
    ================================  ===============================================================================
    `Linear`, replicated input        `ColumnParallelLinear`: the rank's neurons
    `Linear`, sharded input           `RowParallelLinear`: the rank's inputs, outputs summed
    `Conv2d`                          `FilterParallelConv2d`: the rank's filters
    `Conv2d` in groups                `GroupParallelConv2d`: the rank's groups, if they are a multiple of the ranks
    activations, poolings, `Flatten`  as they are, on the rank's part
    `Dropout`, `BatchNorm`            on the rank's part, with the serial run's masks and statistics
    `Parallel`                        `PathParallel` if there is a path for every rank; else its branches are sharded
    `Siamese`                         `SiameseParallel` on two ranks; else its body is sharded
    `GRU` layers in a row             `StackParallel` if there is one for every rank
    `MultiHeadAttention`              `HeadParallelAttention`: the rank's heads, outputs summed
    `Residual`, `Recompute`           their bodies are sharded
    all others                        replicated, after a `Gather`
    ================================  ===============================================================================

    A layer with fewer neurons or filters than there are ranks stays on every rank, and so do a layer that is used
    twice, and layers that share a parameter.

    Layers that stay on every rank are shared with the model, so do not train that afterwards. The result takes and
    returns whole activations on every rank; `planning.account` lists the layout of each layer.

    References
    ----------
    M. Shoeybi et al. (2019), Megatron-LM, section 3.
    """
    if not isinstance(model, nn.Sequential):
        raise TypeError(f"parallelize: model is {type(model).__name__}, expected a Sequential")
    if comm.size == 1:
        made = TensorSequential(comm, model.layers, ["on the only rank"] * len(model.layers))
        made.together = model.together
        return made
    return _Rewriter(comm, SharedParams(model)).sequence(model)


class _Rewriter:
    """Builds a `TensorSequential` from serial layers, one after another."""

    def __init__(self, comm, shared: SharedParams):
        self.comm, self.shared = comm, shared
        self.layers, self.layouts, self.sharding = [], [], None

    def sequence(self, model: Layer) -> TensorSequential:
        layers = model.layers if isinstance(model, nn.Sequential) else [model]
        i = 0
        while i < len(layers):
            stack = self._stack_at(layers, i)
            if stack:
                self.gather()
                self.append(StackParallel(self.comm, stack))
            else:
                self.append_serial(layers[i], layers[i + 1 :])
            i += len(stack) or 1
        self.gather()
        for i, layer in enumerate(self.layers):
            if isinstance(layer, Gather):  # one before sharded neurons sums their gradients
                layer.partial = defer_input_all_reduce(self.layers[i + 1 :])
        made = TensorSequential(self.comm, self.layers, self.layouts)
        made.name, made.together = model.name, model.together if isinstance(model, nn.Sequential) else None
        return made

    def _stack_at(self, layers, start) -> list[Any]:
        """Return the GRU layers in a row from here on, if there is one for every rank."""
        stack = list(takewhile(lambda layer: type(layer) is nn.GRU, layers[start:]))
        return stack if len(stack) >= self.comm.size and all(map(self.shared.private, stack)) else []

    def append(self, layer, layout: str = "") -> None:
        self.layers.append(layer)
        self.layouts.append(layout or (isinstance(layer, TensorLayer) and layer.layout) or "parts over ranks")

    def append_serial(self, layer, following) -> None:
        """Append the sharded form of a serial layer, given how the activations are sharded."""
        if self.sharding is not None and self._on_part(layer, following):
            return
        self.gather()
        made, layout = self._rewrite(layer)
        self.append(made, layout)
        if isinstance(made, ColumnParallel):
            self.sharding = made.sharding

    def _on_part(self, layer, following) -> bool:
        """Append a layer that works on the rank's part; return False if it cannot."""
        kind, comm = type(layer), self.comm
        private = self.shared.private(layer)
        if kind in BY_CHANNEL or (kind is nn.Flatten and self._rows_follow(following)):
            self.append(layer, "on the rank's part")
        elif kind is nn.Dropout:
            self.append(ShardDropout(layer, self.sharding, comm.rank), "on the rank's part, serial masks")
        elif kind is nn.Conv2d and private and GroupParallelConv2d.fits(layer, self.sharding):
            self.append(made := GroupParallelConv2d(comm, layer, sharded_input=True))
            self.sharding = made.sharding
        elif kind is nn.Linear and private:
            self.append(RowParallelLinear(comm, layer, self.sharding.of_width(layer.d_in)))
            self.sharding = None
        else:
            return False
        return True

    def _rows_follow(self, following) -> bool:
        """Say whether the next layer that mixes channels is a dense one that can take this rank's rows."""
        mixing = (layer for layer in following if type(layer) not in (*BY_CHANNEL, nn.Dropout))
        layer = next(mixing, None)
        return type(layer) is nn.Linear and self.shared.private(layer)

    def gather(self) -> None:
        if self.sharding is None:
            return
        gather = Gather(self.comm, self.sharding)
        gather.name = f"{self.layers[-1].name.partition('.')[0]}.Gather"
        self.append(gather)
        self.sharding = None

    def _rewrite(self, layer: Layer) -> tuple[Layer, str]:
        """Shard a layer whose input is replicated; return the new layer, and the reason if it was not sharded."""
        kind, size = type(layer), self.comm.size
        if kind in BLOCKS:
            made = self._block(layer)
            if any(isinstance(part, TensorLayer) for part in walk(made)):
                return made, ""
        if kind not in SHARDED:
            return layer, "on every rank"
        parallel, count, what = SHARDED[kind]
        if not self.shared.private(layer):
            return layer, "on every rank: shares a parameter"
        if getattr(layer, count) < size:
            return layer, f"on every rank: only {getattr(layer, count)} {what}"
        if kind is nn.Conv2d and layer.groups > 1:
            if layer.groups % size:
                return layer, f"on every rank: {layer.groups} groups"
            parallel = GroupParallelConv2d
        return parallel(self.comm, layer), ""

    def _block(self, layer) -> Layer:
        comm, private = self.comm, self.shared.private
        if isinstance(layer, nn.Sequential):  # a plan does not hold for parts of layers
            return _Rewriter(comm, self.shared).sequence(layer)
        if type(layer) is nn.Parallel and len(layer.layers) >= comm.size and all(map(private, layer.layers)):
            return PathParallel(comm, layer)
        if type(layer) is nn.Siamese and comm.size == 2 and private(layer):
            kinds = {type(part) for part in walk(layer)}
            if not kinds & {nn.BatchNorm, nn.Dropout}:
                return SiameseParallel(comm, layer)
        view = copy.copy(layer)
        view.layers = [_Rewriter(comm, self.shared).sequence(child) for child in layer.layers]
        view.params = unique_params(view.layers)
        view.spans_itself = True
        return view


def defer_input_all_reduce(layers: list[Layer]) -> bool:
    """Let the first layer with parameters leave the gradient of its input partial: one summand on each rank."""
    first = next((layer for layer in layers if type(layer) not in WITHOUT_PARAMETERS), None)
    if not isinstance(first, ColumnParallel):
        return False
    first.sum_input_gradient = False
    return True


class SharedParams:
    """Which layers of a model are used more than once, and which parameters several layers share."""

    def __init__(self, model: Layer):
        self._uses = Counter(map(id, leaves(model)))
        self._owners = defaultdict(set)
        for layer in leaves(model):
            for p in layer.params:
                self._owners[id(p)].add(id(layer))

    def private(self, block: Layer) -> bool:
        """Say whether nothing outside a block uses its layers or parameters."""
        inside = Counter(map(id, leaves(block)))
        owners = set().union(*(self._owners[id(p)] for p in block.params))
        return owners <= set(inside) and all(self._uses[layer] == n for layer, n in inside.items())


def leaves(model: Layer) -> list[Layer]:
    """Return the layers that are not containers, in order; one that is used several times is repeated."""
    return [layer for layer in walk(model) if not layer.children]
