"""What `parallelize` does to a model, and what that sends: the tensor-parallel counterpart of `nn.summary`."""

from __future__ import annotations

from typing import NamedTuple

from ...comm.network.formulas import ALGORITHMS
from ...nn.layer import Layer
from ...sim import MetaArray, SimWorld
from ...tables import Table, Tabular, quantity
from ..meta import drop_arithmetic, meta_copy
from ..tensor import parallelize


class Sent(NamedTuple):
    """One collective, as a trace counts its bytes, or one message ("send")."""

    name: str
    nbytes: int


class AccountRow(NamedTuple):
    """One layer of a model that is sharded over ranks."""

    name: str
    layer: str
    how: str
    nbytes: int
    """Bytes of its parameters on this rank."""
    forward: list[Sent]
    backward: list[Sent]


class Account(Tabular):
    """How every layer was sharded, and what rank 0 sends for one batch; prints as a table."""

    def __init__(self, rows: list[AccountRow], batch: int, title: str):
        self.rows, self._batch, self._title = rows, batch, title
        self.forward = [t for row in rows for t in row.forward]
        self.backward = [t for row in rows for t in row.backward]

    @property
    def nbytes(self) -> int:
        """Bytes of all collectives and messages of one step."""
        return sum(t.nbytes for t in self.forward + self.backward)

    def table(self) -> Table:
        """Return the rows and their sum as a table; bytes are for one sample of the batch."""

        def per_sample(sent):
            return quantity(sum(t.nbytes for t in sent) / self._batch, "B") if sent else "-"

        rows = [
            [f"{r.name}  {r.layer}", r.how, quantity(r.nbytes, "B"), per_sample(r.forward), per_sample(r.backward)]
            for r in self.rows
        ]
        weights = quantity(sum(r.nbytes for r in self.rows), "B")
        rows.append(["sum", "", weights, per_sample(self.forward), per_sample(self.backward)])
        return Table(["layer", "how", "weights", "forward", "backward"], rows, self._title)


def account(model: Layer, input_shape: tuple[int, ...], size: int) -> Account:
    """Shard a model over simulated ranks, and list what each layer sends in one step (per sample, in the table).

    One forward and one backward pass run on meta arrays, so a model built with `seed=None` takes no memory. Bytes are
    those of the trace: the input of one rank to an all-reduce, those of all ranks to an all-gather or a
    reduce-scatter.

    Parameters
    ----------
    model : Sequential
        The serial model; it is not changed.
    input_shape : tuple of int
        With the batch.
    size : int
        Number of ranks.

    Examples
    --------
    >>> from distlearn.nn import MLP
    >>> account(MLP((784, 256, 10)), (128, 784), 4).forward
    [Sent(name='all_reduce', nbytes=5120)]
    """
    outline, world = meta_copy(model), SimWorld(size, collectives="formula")

    def program(comm):
        sharded = parallelize(meta_copy(outline), comm)
        drop_arithmetic(sharded)
        seen = [0, 0]

        def sent():
            """What this rank has sent since the last call."""
            spans, messages = world.trace.spans[seen[0] :], world.trace.messages[seen[1] :]
            seen[:] = seen[0] + len(spans), seen[1] + len(messages)
            calls = [Sent(s.name, s.nbytes) for s in spans if s.rank == comm.rank and s.name in ALGORITHMS]
            return calls + [Sent("send", m.nbytes) for m in messages if m.source == comm.rank]

        sent()
        x = MetaArray(input_shape, next((p.data.dtype for p in sharded.params), "float32"))
        passes, ways = [], []
        for layer in sharded.layers:
            x, saved = layer.forward(x)
            passes.append(saved)
            ways.append(sent())
        dy, rows, known = x, [], set()
        for layer, saved, how, forward in reversed(list(zip(sharded.layers, passes, sharded.hows, ways, strict=True))):
            dy = dy if dy is None else layer.backward(dy, saved)
            new = {id(p): p.nbytes for p in layer.params if id(p) not in known}
            known |= set(new)
            name = layer.name.partition(".")[0] if "." in layer.name else layer.name
            text = type(layer).__name__ if layer.children else repr(layer)
            rows.insert(0, AccountRow(name, text, how, sum(new.values()), forward, sent()))
        return rows

    title = f"{size} ranks, input {tuple(input_shape)}, bytes per sample"
    return Account(world.run(program)[0], input_shape[0], title)
