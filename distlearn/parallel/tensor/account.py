"""What `parallelize` did to a model, and what that costs: the tensor-parallel counterpart of `nn.summary`."""

from __future__ import annotations

from typing import NamedTuple

from ...nn import Recompute
from ...nn.layer import Layer
from ...tables import Table, Tabular, quantity
from .layer import TensorLayer, Traffic


class AccountRow(NamedTuple):
    """One layer of a model that is sharded over ranks."""

    name: str
    layer: str
    how: str
    nbytes: int
    """Bytes of its parameters on this rank."""
    forward: list[Traffic]
    backward: list[Traffic]


class Account(Tabular):
    """How every layer was sharded, and what it sends for one batch; prints as a table.

    Attributes
    ----------
    rows : list of AccountRow
    batch : int
    forward, backward : list of Traffic
        Of the whole model.
    """

    def __init__(self, rows: list[AccountRow], batch: int, title: str):
        self.rows, self.batch, self._title = rows, batch, title
        self.forward = [t for row in rows for t in row.forward]
        self.backward = [t for row in rows for t in row.backward]

    @property
    def nbytes(self) -> int:
        """Bytes of all collectives of one step."""
        return sum(t.nbytes for t in self.forward + self.backward)

    def table(self) -> Table:
        """Return the rows and their sum as a table; bytes are for one sample of the batch."""
        header = ["layer", "how", "weights", "forward", "backward"]
        rows = [
            [f"{r.name}  {r.layer}", r.how, quantity(r.nbytes, "B"), self._sent(r.forward), self._sent(r.backward)]
            for r in self.rows
        ]
        weights = quantity(sum(r.nbytes for r in self.rows), "B")
        return Table(
            header, [*rows, ["sum", "", weights, self._sent(self.forward), self._sent(self.backward)]], self._title
        )

    def _sent(self, traffic) -> str:
        return quantity(sum(t.nbytes for t in traffic) / self.batch, "B") if traffic else "-"


def account(model: Layer, input_shape: tuple[int, ...], itemsize: int | None = None) -> Account:
    """List how every layer of a model was sharded, with the bytes of its collectives (per sample, in the table).

    Nothing is run, and a model built with `seed=None` takes no memory. Bytes are counted as a trace counts them: the
    input of one rank to an all-reduce, those of all ranks to an all-gather or a reduce-scatter.

    Parameters
    ----------
    model : TensorSequential
        What `parallelize` returned.
    input_shape : tuple of int
        With the batch.
    itemsize : int, optional
        Bytes of a value; by default those of the parameters.

    Examples
    --------
    >>> from distlearn.sim import SimWorld
    >>> from distlearn.nn import MLP
    >>> from distlearn.parallel.tensor import parallelize
    >>> def program(comm):
    ...     return account(parallelize(MLP((784, 256, 10)), comm), (128, 784))
    >>> [(t.name, t.nbytes) for t in SimWorld(4).run(program)[0].forward]
    [('all_reduce', 5120)]
    """
    itemsize = itemsize or (model.params[0].data.dtype.itemsize if model.params else 4)
    rows, seen = [], set()
    for (layer, shape), how in zip(model.parts(tuple(input_shape)), model.hows, strict=True):
        new = [p for p in layer.params if id(p) not in seen]
        seen.update(map(id, new))
        name = layer.name.partition(".")[0] if "." in layer.name else layer.name
        text = type(layer).__name__ if layer.children else repr(layer)
        rows.append(AccountRow(name, text, how, sum(p.nbytes for p in new), *_traffic(layer, shape, itemsize)))
    return Account(rows, input_shape[0], f"{model.comm.size} ranks, input {tuple(input_shape)}, bytes per sample")


def _traffic(layer, shape, itemsize) -> tuple[list[Traffic], list[Traffic]]:
    """Add up what a layer and the layers inside it send."""
    if isinstance(layer, TensorLayer):
        return layer.traffic(shape, itemsize)
    forward, backward = [], []
    for part, inner in layer.parts(shape):
        there, back = _traffic(part, inner, itemsize)
        forward += there
        backward = back + backward
    return forward, (forward + backward if isinstance(layer, Recompute) else backward)
