"""What a model costs, without running it: operations, parameters and memory, layer by layer."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...tables import Table, Tabular, quantity
from ..layer import Layer, nbytes, parameter_count

# -- memory ------------------------------------------------------------------------------------------------------------
# Memory of a training step, by use.


class Memory(NamedTuple):
    """Bytes in use at the end of a forward pass, the maximum of a training step."""

    parameters: int
    gradients: int
    optimizer: int  # The optimizer's state: 0 for SGD, as much as the parameters for Momentum, twice that for Adam.
    activations: int  # What the layers saved for the backward pass; the only part that grows with the batch.

    @property
    def total(self) -> int:
        return sum(self)

    def table(self) -> Table:
        rows = [
            [name, f"{value:,}", quantity(value, "B"), f"{value / max(1, self.total):.0%}"]
            for name, value in [*self._asdict().items(), ("sum", self.total)]
        ]
        return Table(["part", "bytes", "", "share"], rows)

    def __str__(self):
        return str(self.table())

    def _repr_html_(self):
        return self.table()._repr_html_()


def memory_report(model: Layer, x, optimizer=None) -> Memory:
    """Measure the memory of a training step: run the model forward and count what it keeps.

    Parameters
    ----------
    optimizer : Optimizer, optional
        Its states are counted.

    Examples
    --------
    >>> import numpy as np
    >>> from distlearn.nn import MLP
    >>> memory_report(MLP((784, 256, 10)), np.zeros((32, 784), "float32")).activations == 4 * 32 * (784 + 256)
    True
    """
    _, saved = model.forward(x)
    return Memory(
        nbytes([p.data for p in model.params]),
        nbytes([p.grad for p in model.params]),
        nbytes([] if optimizer is None else optimizer.states),
        nbytes(saved),
    )


# -- summary -----------------------------------------------------------------------------------------------------------
# Layers of a model and their cost, without running it.


class Row(NamedTuple):
    """One layer of a model."""

    name: str
    layer: str
    output_shape: tuple[int, ...]
    params: int  # Learned values.
    flops: int  # Floating-point operations of a forward pass.
    nbytes: int  # Bytes of the learned values.
    moved: int  # Bytes that a forward pass moves at least.
    activations: int  # Bytes of the output, which the backward pass will need.


class Summary(Tabular):
    """A model layer by layer; prints as a table.

    Attributes
    ----------
    params, flops, nbytes, moved, activations : int
        Sums over the model.
    """

    def __init__(self, rows: list[Row], params: int, title: str):
        self.rows, self.params, self._title = rows, params, title
        self.flops, self.nbytes, self.moved, self.activations = (
            sum(getattr(r, field) for r in rows) for field in ("flops", "nbytes", "moved", "activations")
        )

    def table(self) -> Table:
        header = ["layer", "output", "parameters", "flops", "weights", "moved", "activations"]
        rows = [self._cells(f"{r.name}  {r.layer}", str(r.output_shape), r) for r in self.rows]
        return Table(header, [*rows, self._cells("sum", "", self)], self._title)

    @staticmethod
    def _cells(name, shape, r):
        sizes = [quantity(v, "B") for v in (r.nbytes, r.moved, r.activations)]
        return [name, shape, f"{r.params:,}", quantity(r.flops), *sizes]


def summary(model: Layer, input_shape: tuple[int, ...]) -> Summary:
    """List a model's layers with shape, parameters, flops, bytes and activation memory.

    Nothing is run, and a model built with `seed=None` takes no memory, so this is quick for AlexNet too.

    Parameters
    ----------
    input_shape : tuple of int
        With the batch, as in (128, 227, 227, 3).

    Examples
    --------
    >>> from distlearn.nn import build
    >>> net = summary(build("alexnet", seed=None), (1, 227, 227, 3))
    >>> net.params, net.nbytes, net.flops // 2 * 2 == net.flops
    (60965224, 243860896, True)
    """
    shape, rows = tuple(input_shape), []
    itemsize = model.params[0].data.dtype.itemsize if model.params else 4
    for layer, inner in model.parts(shape) or [(model, shape)]:
        out = layer.output_shape(inner)
        rows.append(
            Row(
                layer.name.partition(".")[0] if "." in layer.name else layer.name,
                type(layer).__name__ if layer.children else repr(layer),
                out,
                parameter_count(layer),
                layer.flops(inner),
                sum(p.nbytes for p in layer.params if not p.frozen),
                layer.bytes_moved(inner, itemsize),
                itemsize * math.prod(out),
            )
        )
    return Summary(rows, parameter_count(model), f"{type(model).__name__} on {shape}")
