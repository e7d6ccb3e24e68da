"""`parallelize`: a serial model becomes one whose layers lie on several ranks.

Activations are in one of two states. *Whole*: every rank has all values. *Dealt*: every rank has its part of the last
axis, neurons or channels. A column of dense layers alternates between the two:

    whole --> ColumnLinear --> dealt --> ReLU --> dealt --> RowLinear (sum) --> whole --> ColumnLinear --> ...

and a convolution's filters leave their channels dealt until a layer needs all of them, mostly the next convolution.
"""

from __future__ import annotations

import copy

from ...nn import (
    GRU,
    BatchNorm,
    Conv2d,
    Dropout,
    Linear,
    Parallel,
    Recompute,
    Residual,
    Sequential,
    Siamese,
)
from ...nn.fused import unfuse
from ...nn.layer import Layer, walk
from .chain import Chain
from .groups import GroupConv2d
from .layer import TensorLayer
from .paths import PathParallel
from .sequence import TensorSequential
from .stack import StackParallel
from .ties import Ties
from .twins import SiameseParallel
from .units import ColumnLinear, FilterConv2d

BLOCKS = (Sequential, Parallel, Residual, Recompute, Siamese)


def parallelize(model: Sequential, comm) -> TensorSequential:
    """Deal a model's layers to ranks: neurons, filters, paths, branches, layers of a GRU stack; every rank must call.

    ================================  ===============================================================================
    layer                             what becomes of it
    ================================  ===============================================================================
    `Linear` on whole activations     `ColumnLinear`: the rank's neurons
    `Linear` on dealt ones            `RowLinear`: the rank's inputs, outputs summed
    `Conv2d`                          `FilterConv2d`: the rank's filters
    `Conv2d` in groups                `GroupConv2d`: the rank's groups, if they are a multiple of the ranks
    activations, poolings, `Flatten`  as they are, on the rank's part
    `Dropout`, `BatchNorm`            on the rank's part, with the serial run's masks and statistics
    `Parallel`                        `PathParallel` if there is a path for every rank; else its branches are dealt
    `Siamese`                         `SiameseParallel` on two ranks; else its body is dealt
    `GRU` layers in a row             `StackParallel` if there is one for every rank
    `Residual`, `Recompute`           their bodies are dealt
    all others                        on every rank, all alike, behind a `Gather`
    ================================  ===============================================================================

    A layer with fewer neurons or filters than there are ranks stays on every rank, and so do layers that share a
    parameter with another one; a layer that stands in several places is dealt and its outputs are gathered each time.

    Parameters
    ----------
    model : Sequential
        The same on every rank. What stays on every rank is shared with it, so do not train it any more.
    comm : Communicator

    Returns
    -------
    model : TensorSequential
        Takes and returns whole activations on every rank. `account(model, input_shape)` lists what was done.

    References
    ----------
    M. Shoeybi et al. (2019), Megatron-LM, section 3.
    """
    model = unfuse(model)
    if not isinstance(model, Sequential):
        raise TypeError(f"parallelize: model is {type(model).__name__}, expected a Sequential")
    if comm.size == 1:
        return TensorSequential(comm, model.layers, ["on the only rank"] * len(model.layers))
    return _Rewriter(model, comm).sequence(model)


class _Rewriter:
    """Goes through a model once; remembers what became of layers that stand in several places."""

    def __init__(self, model, comm):
        self.comm, self.ties, self.done = comm, Ties(model), {}

    def sequence(self, model: Layer) -> TensorSequential:
        """Deal the layers of a sequence (or a single layer)."""
        layers = model.layers if isinstance(model, Sequential) else [model]
        built = Chain(self)
        i = 0
        while i < len(layers):
            stack = self._stack_at(layers, i)
            if stack:
                built.close()
                built.add(StackParallel.of(stack, self.comm))
            else:
                built.put(layers[i], layers[i + 1 :])
            i += len(stack) or 1
        made = built.finish()
        made.name = model.name
        return made

    def _stack_at(self, layers, start) -> list:
        """Return the GRU layers in a row from here on, if there is one for every rank."""
        end = start
        while end < len(layers) and type(layers[end]) is GRU:
            end += 1
        stack = layers[start:end]
        usable = len(stack) >= self.comm.size > 1 and all(map(self.ties.private, stack))
        return stack if usable else []

    def whole(self, layer: Layer) -> tuple[Layer, str]:
        """Deal a layer that gets whole activations; return what became of it, and a reason if nothing did."""
        if id(layer) in self.done:
            return self.done[id(layer)], ""
        if type(layer) in (Linear, Conv2d):
            return self._units(layer)
        if type(layer) in BLOCKS:
            made = self._block(layer)
            if any(isinstance(part, TensorLayer) for part in walk(made)):
                return made, ""
        return layer, "on every rank"

    def _units(self, layer) -> tuple[Layer, str]:
        """Deal neurons or filters."""
        dense = type(layer) is Linear
        n, what = (layer.d_out, "neurons") if dense else (layer.c_out, "filters")
        if self.ties.shared(layer):
            return layer, "on every rank: shares a parameter"
        if n < self.comm.size:
            return layer, f"on every rank: only {n} {what}"
        grouped = not dense and layer.groups > 1
        if grouped and layer.groups % self.comm.size:
            return layer, f"on every rank: {layer.groups} groups"
        repeated = self.ties.repeated(layer)
        made = (ColumnLinear if dense else GroupConv2d if grouped else FilterConv2d).of(
            layer, self.comm, gather_output=repeated
        )
        if repeated:
            self.done[id(layer)] = made
        return made, ""

    def _block(self, layer) -> Layer:
        """Deal a container's paths, branches, or what is inside."""
        comm = self.comm
        if type(layer) is Sequential:
            return self.sequence(layer)
        if type(layer) is Parallel and len(layer.layers) >= comm.size and all(map(self.ties.private, layer.layers)):
            return PathParallel.of(layer, comm)
        if type(layer) is Siamese and comm.size <= 2 and self.ties.private(layer):
            kinds = {type(part) for part in walk(layer)}
            if not kinds & {BatchNorm, Dropout}:
                return SiameseParallel.of(layer, comm)
        view = copy.copy(layer)
        view.layers = [self.sequence(child) for child in layer.layers]
        view.params = list({id(p): p for child in view.layers for p in child.params}.values())
        view.spans_itself = True
        return view
