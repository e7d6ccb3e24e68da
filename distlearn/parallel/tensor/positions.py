"""Norms, sums and dropout beside tensor-parallel layers: every rank works on its part of the positions.

Between the sharded layers tensor parallelism has the same activations on every rank. Here each rank has 1 / p of the
positions of them instead, and the all-reduce becomes its two halves, one at each end:

    part --> RMSNorm --> part --> GatherPositions --> whole --> heads (a summand each) --> CutPositions --> part
                                  all-gather                                               reduce-scatter
"""

from __future__ import annotations

import copy
from typing import Any

from ... import nn
from ...nn.layer import Layer, check_shape, describe, walk
from ...shares import shares
from ..sharding import gather_parts, reduce_scatter_parts, take_part
from .layers import (
    AxisSharding,
    ColumnParallelLinear,
    HeadParallelAttention,
    RowParallelLinear,
    ShardDropout,
    TensorLayer,
    TensorSequential,
    unique_params,
)

NORMS = (nn.LayerNorm, nn.RMSNorm)
ACTIVATIONS = (nn.GELU, nn.ReLU, nn.Sigmoid, nn.Tanh)
ON_ANY_PART = (*ACTIVATIONS, nn.Identity, ShardDropout)
"""Layers that run equally well on a part of the neurons or of the positions."""
BLOCKS = (nn.Sequential, nn.Planned, nn.Residual, nn.Recompute)
KINDS = (*NORMS, *ACTIVATIONS, nn.Dropout, nn.Embedding, nn.Identity, nn.Linear, nn.MultiHeadAttention)
AXES = "batch", "length", "width"


class CutPositions(TensorLayer):
    """Keeps this rank's part of the positions; a partial sum is reduce-scattered."""

    def __init__(self, comm, partial: bool, name: str):
        super().__init__(comm, f"{name}.{type(self).__name__}")
        self.partial = partial

    @property
    def layout(self):
        return "summed, cut along positions" if self.partial else "cut along positions"

    def _cut(self, x):
        parts = self._parts(x.shape, 1)
        if self.partial:
            return reduce_scatter_parts(self.comm, x, 1, parts)
        return take_part(x, 1, parts[self.comm.rank])

    def _gather(self, x):
        return gather_parts(self.comm, x, 1, self._parts(x.shape, self.comm.size))

    def _parts(self, shape, times) -> list[slice]:
        check_shape(self, shape, *AXES)
        n, size = times * shape[1], self.comm.size
        if n % size:
            raise ValueError(f"sequence parallelism: the length is {n}, expected a multiple of {size} (ranks)")
        return shares(n, size)

    def forward(self, x):
        return self._cut(x), None

    def backward(self, dy, saved):
        return self._gather(dy)

    def output_shape(self, shape):
        part = self._parts(shape, 1)[0]
        return shape[0], part.stop, shape[2]


class GatherPositions(CutPositions):
    """Gathers the positions of all ranks: the transpose of `CutPositions`."""

    layout = "positions gathered"

    def forward(self, x):
        return self._gather(x), None

    def backward(self, dy, saved):
        return self._cut(dy)

    def output_shape(self, shape):
        check_shape(self, shape, *AXES)
        return shape[0], shape[1] * self.comm.size, shape[2]


def cut_positions(model: TensorSequential, comm) -> TensorSequential:
    """Make the norms, sums and dropout of a sharded model work on 1 / p of the positions."""
    return _Cutter(comm, part=False).sequence(model, part=False)


def check_positions(model: Layer) -> None:
    """Raise a TypeError for a layer of a serial model that `cut_positions` does not know."""
    if type(model) in KINDS:
        return
    if type(model) not in BLOCKS:
        raise TypeError(f"TensorParallel(sequence=True): {describe(model)} cannot be cut along positions")
    for child in model.children:
        check_positions(child)


def partial_params(model: Layer) -> list[Any]:
    """Return the parameters of the norms, each once: their gradients are of this rank's positions alone."""
    return unique_params(layer for layer in walk(model) if type(layer) in NORMS)


class _Cutter:
    """Goes through a sequence; `part` says whether the activations at its end are this rank's positions."""

    def __init__(self, comm, part: bool):
        self.comm, self.part, self.layers, self.layouts = comm, part, [], []

    def sequence(self, model: Layer, part: bool | None = None) -> TensorSequential:
        """Rewrite the layers of a sequence (or a single layer); its output is a part or whole, as asked."""
        layers = model.layers if isinstance(model, nn.Sequential) else [model]
        layouts = getattr(model, "layouts", ["on every rank"] * len(layers))
        for layer, layout in zip(layers, layouts, strict=True):
            self._layer(layer, layout)
        if part is not None:
            self._move(part, [model, *layers][-1])
        made = TensorSequential(self.comm, self.layers, self.layouts)
        made.name = model.name
        return made

    def _layer(self, layer, layout) -> None:
        """Append a layer between the layers that distribute its input and sum its output."""
        kind = type(layer)
        if kind in (*NORMS, nn.Dropout, nn.Residual, nn.Recompute):
            self._move(True, layer)
            self._append(self._on_part(layer), "on the rank's positions")
        elif isinstance(layer, nn.Sequential):
            inner = _Cutter(self.comm, self.part)
            self._append(inner.sequence(layer), layout)
            self.part = inner.part
        elif kind in ON_ANY_PART:
            self._append(layer, layout)
        elif kind in (HeadParallelAttention, ColumnParallelLinear) and not layer.used_again:
            layer.sum_input_gradient = layer.sum_input_gradient and not self.part  # a part's gather sums it
            self._move(False, layer, partial=self.part)
            self._append(layer, layout)
            if kind is HeadParallelAttention:
                self._sum_to_part(layer)
        else:
            self._move(False, layer)
            self._append(layer, layout)
            if kind is RowParallelLinear:
                self._sum_to_part(layer)

    def _on_part(self, layer) -> Layer:
        """Return the form of a layer that works on a part of the positions."""
        if type(layer) is nn.Dropout:
            size = self.comm.size
            return ShardDropout(layer, 1, lambda n: AxisSharding.even(n * size, size), self.comm.rank)
        if type(layer) in NORMS:
            return layer
        view = copy.copy(layer)
        view.layers = [_Cutter(self.comm, part=True).sequence(child, part=True) for child in layer.layers]
        view.spans_itself = True
        return view

    def _sum_to_part(self, layer) -> None:
        """Replace the sum of a layer's output by a reduce-scatter behind it."""
        layer.sum_output = False
        self._move(True, layer, partial=True)

    def _move(self, part: bool, at, partial: bool = False) -> None:
        if part != self.part:
            move = (CutPositions if part else GatherPositions)(self.comm, partial, at.name.partition(".")[0])
            self._append(move, move.layout)
        self.part = part

    def _append(self, layer, layout) -> None:
        self.layers.append(layer)
        self.layouts.append(layout)
