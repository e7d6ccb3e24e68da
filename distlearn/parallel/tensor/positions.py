"""Norms, sums and dropout beside tensor-parallel layers: every rank works on its part of the positions.

Between the sharded layers tensor parallelism has the same activations on every rank. Here each rank has 1 / p of the
positions of them instead, and what an all-reduce did is done in two halves, one at each end:

    part --> RMSNorm --> part --> GatherPositions --> whole --> heads (a summand each) --> CutPositions --> part
                                  all-gather                                               reduce-scatter
"""

from __future__ import annotations

import copy

import numpy as np

from ...backend import get_xp
from ...nn import (
    GELU,
    Dropout,
    Embedding,
    Identity,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    Recompute,
    ReLU,
    Residual,
    RMSNorm,
    Sequential,
    Sigmoid,
    Tanh,
)
from ...nn.layer import Layer, check_shape, describe, walk
from ..sequence import cut, positions, put_together
from .attention import HeadParallelAttention
from .column_parallel import ColumnParallelLinear
from .layer import TensorLayer, TensorSequential
from .row_parallel import RowParallelLinear, ShardDropout

NORMS = (LayerNorm, RMSNorm)
ON_ANY_PART = (GELU, Identity, ReLU, Sigmoid, Tanh, ShardDropout)
"""Layers that run on some neurons or some positions alike."""
BLOCKS = (Sequential, Residual, Recompute)
KINDS = (*NORMS, Dropout, Embedding, GELU, Identity, Linear, MultiHeadAttention, ReLU, Sigmoid, Tanh)
AXES = "batch", "length", "width"


class CutPositions(TensorLayer):
    r"""Keeps this rank's part of the positions."""

    def __init__(self, comm, partial: bool):
        super().__init__(comm)
        self.partial, self.how = partial, "summed, cut along positions" if partial else "cut along positions"

    def forward(self, x):
        self.output_shape(x.shape)
        return (_reduce_scatter if self.partial else _own)(self.comm, x), None

    def backward(self, dy, saved):
        return _all_gather(self.comm, dy)

    def output_shape(self, shape):
        check_shape(self, shape, *AXES)
        mine = positions(shape[1], self.comm.rank, self.comm.size, "contiguous")[0]
        return shape[0], mine.stop - mine.start, shape[2]

    def __repr__(self):
        return f"CutPositions({'partial' if self.partial else ''})"


class GatherPositions(TensorLayer):
    r"""Gathers the positions of all ranks: the transpose of `CutPositions`."""

    how = "positions gathered"

    def __init__(self, comm, partial: bool):
        super().__init__(comm)
        self.partial = partial

    def forward(self, x):
        return _all_gather(self.comm, x), None

    def backward(self, dy, saved):
        return (_reduce_scatter if self.partial else _own)(self.comm, dy)

    def output_shape(self, shape):
        check_shape(self, shape, *AXES)
        return shape[0], shape[1] * self.comm.size, shape[2]

    def __repr__(self):
        return f"GatherPositions({'partial' if self.partial else ''})"


class PositionDropout(Dropout):
    """`Dropout` of the positions that a rank has, with the masks of the serial run, of which it uses its part."""

    def __init__(self, dropout, comm):
        super().__init__(dropout.p, dropout.rng)
        self.comm, self.name = comm, dropout.name

    def forward(self, x):
        xp, (batch, length, width) = get_xp(x), x.shape
        rng = self.rng if xp is np else xp.random.default_rng(int(self.rng.integers(2**63)))
        whole = rng.random((batch, length * self.comm.size, width), dtype=np.float32)
        kept = _own(self.comm, whole) >= self.p
        return self._mask(x.copy(), kept), kept


def cut_positions(model: TensorSequential, comm) -> TensorSequential:
    """Let norms, sums and dropout of a model that is sharded over ranks work on 1 / p of the positions."""
    return _Cutter(comm, part=False).sequence(model, part=False)


def check_positions(model: Layer) -> None:
    """Raise a TypeError for a layer of a serial model that `cut_positions` does not know."""
    if type(model) in KINDS:
        return
    if type(model) not in BLOCKS:
        raise TypeError(
            f"TensorParallel(sequence=True): {describe(model)} cannot be cut along positions, expected "
            f"{', '.join(kind.__name__ for kind in (*KINDS, *BLOCKS))}"
        )
    for child in model.children:
        check_positions(child)


def partial_params(model: Layer) -> list:
    """Return the parameters that see only this rank's positions, each once: those of the norms."""
    return list({id(p): p for layer in walk(model) if type(layer) in NORMS for p in layer.params}.values())


class _Cutter:
    """Goes through a sequence; `part` says whether the activations at its end are this rank's positions."""

    def __init__(self, comm, part: bool):
        self.comm, self.part, self.layers, self.hows = comm, part, [], []

    def sequence(self, model: Layer, part: bool | None = None) -> TensorSequential:
        """Rewrite the layers of a sequence (or a single layer); its output is a part or whole, as asked."""
        layers = model.layers if isinstance(model, Sequential) else [model]
        hows = getattr(model, "hows", ["on every rank"] * len(layers))
        for layer, how in zip(layers, hows, strict=True):
            self._layer(layer, how)
        if part is not None:
            self._move(part, [model, *layers][-1])
        made = TensorSequential(self.comm, self.layers, self.hows)
        made.name = model.name
        return made

    def _layer(self, layer, how) -> None:
        """Append a layer, after what brings the activations to it, and before what sums its output."""
        kind = type(layer)
        if kind in (*NORMS, Dropout, Residual, Recompute):
            self._move(True, layer)
            self._append(self._on_part(layer), "on the rank's positions")
        elif isinstance(layer, Sequential):
            inner = _Cutter(self.comm, self.part)
            self._append(inner.sequence(layer), how)
            self.part = inner.part
        elif kind in ON_ANY_PART:
            self._append(layer, how)
        elif kind is HeadParallelAttention or (kind is ColumnParallelLinear and not layer.gather_output):
            layer.sum_input_gradient = layer.sum_input_gradient and not self.part  # a part's gather sums it
            self._move(False, layer, partial=self.part)
            self._append(layer, how)
            if kind is HeadParallelAttention:
                self._sum_to_part(layer)
        else:
            self._move(False, layer)
            self._append(layer, how)
            if kind is RowParallelLinear:
                self._sum_to_part(layer)

    def _on_part(self, layer) -> Layer:
        """Return the form of a layer that works on a part of the positions."""
        if type(layer) is Dropout:
            return PositionDropout(layer, self.comm)
        if type(layer) in NORMS:
            return layer
        view = copy.copy(layer)
        view.layers = [_Cutter(self.comm, part=True).sequence(child, part=True) for child in layer.layers]
        view.spans_itself = True
        return view

    def _sum_to_part(self, layer) -> None:
        """Let what follows a layer sum its output over ranks, of which a rank keeps its part."""
        layer.sum_output = False
        self._move(True, layer, partial=True)

    def _move(self, part: bool, at, partial: bool = False) -> None:
        """Bring the activations from the whole to parts, or back."""
        if part != self.part:
            move = (CutPositions if part else GatherPositions)(self.comm, partial)
            move.name = f"{at.name.partition('.')[0]}.{type(move).__name__}"
            self._append(move, move.how)
        self.part = part

    def _append(self, layer, how) -> None:
        self.layers.append(layer)
        self.hows.append(how)


def _own(comm, x):
    """Return this rank's positions, as a copy."""
    return cut(x, comm.rank, comm.size, "contiguous")


def _all_gather(comm, x):
    """Return the positions of all ranks."""
    return put_together(comm.all_gather(get_xp(x).ascontiguousarray(x)), "contiguous")


def _reduce_scatter(comm, x):
    """Sum an array over ranks and keep this rank's positions."""
    blocks = get_xp(x).stack([cut(x, rank, comm.size, "contiguous") for rank in range(comm.size)])
    return comm.reduce_scatter(blocks.reshape(-1)).reshape(blocks.shape[1:])
