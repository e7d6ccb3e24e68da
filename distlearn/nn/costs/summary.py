"""What a model costs, without running it: operations, parameters and bytes, layer by layer."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...tables import Table, Tabular, quantity
from ..layer import Layer, parameter_count


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
