"""Which layout trains a model fastest on n ranks: every layout simulated, ranked, one recommended.

- `layout`: the ways to split n ranks into data, tensor and pipeline parallel ones
- `simulate`: the cost of a layout, by a step of the strategies' own code on meta arrays
- `plan`: the answer
- `account`: the bytes that each layer of a tensor-parallel model sends
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ...bounds import check_number, check_positive
from ...comm import Network
from ...comm.collectives import ALGORITHMS
from ...comm.network.cost import sent_bytes
from ...nn.container import Sequential
from ...nn.layer import Layer
from ...nn.models import model_named
from ...optim import Momentum, Optimizer
from ...sim import MetaArray, Roofline, SimWorld
from ...tables import Table, Tabular, format_time, quantity
from ...trace import Trace
from ..data.data_parallel import DataParallel
from ..hybrid import Hybrid
from ..memory import Ledger, Sample
from ..meta import input_dtype, meta_batch, meta_copy, meta_loss
from ..pipeline.stages import inseparable
from ..pipeline.strategy import Pipeline
from ..strategy import Serial
from ..tensor import OneWeirdTrick, TensorParallel, boundary, parallelize

if TYPE_CHECKING:
    from ...cuda.cards import Card
    from ...sim.clock import ComputeModel

# -- layout ------------------------------------------------------------------------------------------------------------
# Layouts: over how many ranks the batch, the parameters of each layer, and the layers are split.


class Layout(NamedTuple):
    """A way to arrange n = dp tp pp ranks; tp changes fastest, so that its ranks are neighbours.

    Examples
    --------
    >>> str(Layout(2, 4)), str(Layout(pp=3)), str(Layout(8, trick=True)), str(Layout())
    ('data 2 x tensor 4', 'pipeline 3', 'one weird trick 8', 'serial')
    """

    dp: int = 1
    """Replicas that share out the batch."""
    tp: int = 1
    """Ranks that share out neurons and filters."""
    pp: int = 1
    """Stages of consecutive layers."""
    trick: bool = False
    """All dp ranks share out the batch up to the first dense layer, and neurons from there on."""

    @property
    def size(self) -> int:
        return self.dp * self.tp * self.pp

    def __str__(self) -> str:
        if self.trick:
            return f"one weird trick {self.dp}"
        parts = (("data", self.dp), ("tensor", self.tp), ("pipeline", self.pp))
        return " x ".join(f"{name} {k}" for name, k in parts if k > 1) or "serial"


def layouts(n: int, *, batch_size: int, n_layers: int, trick: bool = False) -> list[Layout]:
    """List the layouts of n ranks in which every rank has something to do.

    Examples
    --------
    >>> [str(layout) for layout in layouts(4, batch_size=2, n_layers=3)]
    ['data 2 x tensor 2', 'data 2 x pipeline 2', 'tensor 4', 'tensor 2 x pipeline 2']
    """
    # batch_size limits dp, n_layers pp; trick: whether the model has convolutions before dense layers
    check_positive("layouts", n=n)
    divisors = [k for k in range(n, 0, -1) if n % k == 0]
    found = [
        Layout(dp, tp, n // dp // tp)
        for dp in divisors
        for tp in divisors
        if n % (dp * tp) == 0 and dp <= batch_size and n // dp // tp <= n_layers
    ]
    return found + ([Layout(n, trick=True)] if trick and 1 < n <= batch_size else [])


# -- named -------------------------------------------------------------------------------------------------------------
# Models and graphics cards by name.


def model_and_sample(model, sample=None):
    """Return a model, built without numbers if it is a name, and the shape of a sample of its input."""
    if isinstance(model, str):
        known = model_named(model)
        return known.build(seed=None), known.sample if sample is None else tuple(sample)
    if not isinstance(model, Layer):
        raise TypeError(f"the model is {model!r}, expected a model or the name of one")
    if not isinstance(model, Sequential) or not model.params:
        raise TypeError(f"the model is {model!r}, expected a Sequential of layers that learn")
    if sample is None:
        raise ValueError(f"the shape of a sample is None, expected that of the input of this {type(model).__name__}")
    return model, tuple(sample)


def name_of(model) -> str:
    """Name of a model, for titles."""
    return model if isinstance(model, str) else type(model).__name__


def compute_of(compute):
    """Return a compute model: the roofline, if it is a card or the name of one."""
    return compute if hasattr(compute, "seconds") else Roofline.of(compute)


# -- simulate ----------------------------------------------------------------------------------------------------------
# The cost of one training step in a layout: the strategy's own code runs on meta arrays, in a `SimWorld`.

CAP_BYTES = 25 << 20
"""Size of a bucket of gradients: PyTorch's default."""

MOST_RANKS = 16
"""Of a larger layout two replicas are simulated; sums over all of them take the seconds of the network's formula.
`plan` leaves out layouts of which even those have more ranks."""


@dataclass(frozen=True)
class Cost:
    """Cost of a training step in one layout, in seconds and bytes."""

    layout: Layout
    seconds: float
    computing: float  # on the busiest rank
    nbytes: float  # that the rank which sends the most sends in a step
    memory: Sample  # when a rank holds the most
    trace: Trace = field(repr=False)

    @property
    def waiting(self) -> float:
        """Seconds that computing does not hide: communication, and in a pipeline the bubble."""
        return max(0.0, self.seconds - self.computing)


def _simulated(layout: Layout) -> Layout:
    """The part of a layout that is simulated."""
    few = layout.trick or layout.size <= MOST_RANKS
    return layout if few else layout._replace(dp=min(layout.dp, 2))


class ReplicatedNetwork:
    """A network on which collectives of replicas take as long as with more replicas than are simulated."""

    def __init__(self, network, layout: Layout, replicas: int):
        self.network, self.sent = network, Counter()  # bytes that each rank sends in collectives
        self._stride, self._replicas, self._all = layout.tp * layout.pp, replicas, layout.dp

    def __getattr__(self, name):
        return getattr(self.network, name)

    def collective(self, name, nbytes, ranks):
        if self._replicas < self._all and ranks[1] - ranks[0] == self._stride:  # ranks of one replica are closer
            ranks = range(ranks[0], ranks[0] + self._stride * self._all, self._stride)
        for rank in ranks:
            self.sent[rank] += sent_bytes(name, nbytes, len(ranks))
        return self.network.collective(name, nbytes, ranks)


def simulate_layout(
    model: str | Sequential,
    layout: Layout,
    network: Network | str,
    *,
    batch_size: int,
    input_shape: tuple[int, ...] | None = None,
    compute: str | Card | ComputeModel = "V100",
    n_microbatches: int | None = None,
) -> Cost:
    """Simulate one training step in a layout; the parameters are those of `plan`.

    `DataParallel`, `TensorParallel`, `Pipeline` (1F1B), `OneWeirdTrick` or `Hybrid` runs, on meta arrays.
    """
    model, sample = model_and_sample(model, input_shape)
    outline = meta_copy(model)
    each = -(-batch_size // layout.dp)  # rows of a replica

    small = _simulated(layout)
    network = ReplicatedNetwork(Network.of(network), layout, small.dp)

    def program(comm):
        strategy = _strategy(comm, small, meta_copy(outline), (each, *sample), n_microbatches)
        batch = meta_batch(each * small.dp, sample, strategy.rank, strategy.size, input_dtype(model))
        comm.barrier()
        network.sent.clear()
        ledger.begin(comm, strategy, batch)
        began = comm.clock.now()
        strategy.step(batch)
        return began, comm.clock.now()

    world = SimWorld(small.size, network, compute_of(compute), collectives="formula")
    with Ledger(world) as ledger:
        results = world.run(program)
    began, step = results[0][0], world.trace.window(results[0][0])
    for message in step.messages:
        network.sent[message.source] += message.nbytes
    busy = Counter()
    for span in step.select(lane="compute"):
        busy[span.rank] += span.seconds
    seconds, sent = max(ended for _, ended in results) - began, max(network.sent.values(), default=0)
    memory = max(ledger.samples, key=lambda s: s.total)
    return Cost(layout, seconds, max(busy.values()), sent, memory, step)


def _strategy(comm, layout: Layout, model, shape, m):
    optimizer = Optimizer(model.params, Momentum(), 0.01)
    if layout.trick:
        return OneWeirdTrick(comm, model, meta_loss, optimizer, cap_bytes=CAP_BYTES)
    if layout.size == 1:
        return Serial(comm, model, meta_loss, optimizer)
    if layout.size == layout.dp:
        return DataParallel(comm, model, meta_loss, optimizer, cap_bytes=CAP_BYTES)
    if layout.size == layout.tp:
        return TensorParallel(comm, model, meta_loss, optimizer)
    options = {"n_microbatches": m if layout.pp > 1 else 1, "shape": shape}
    if layout.size == layout.pp:
        return Pipeline(comm, model, meta_loss, optimizer, **options)
    axes = {"dp": layout.dp, "pp": layout.pp, "tp": layout.tp}
    return Hybrid(comm, model, meta_loss, optimizer, cap_bytes=CAP_BYTES, **axes, **options)


# -- plan --------------------------------------------------------------------------------------------------------------
# `plan`: which layout trains a model fastest on n ranks.


class Plan(Tabular):
    """The layouts of a model on n ranks with their costs; prints as a table, the fastest that fits first."""

    def __init__(self, costs: list[Cost], n: int, *, name: str, memory: float | None, left_out: int):
        self.n, self.name, self.memory, self.left_out = n, name, memory, left_out
        self.costs = sorted(costs, key=lambda c: (not self.fits(c), c.seconds, c.layout.tp, c.layout.pp))

    def __getitem__(self, layout: Any) -> Cost:
        """Return the cost of a layout, given as one or as its text."""
        for c in self.costs:
            if layout in (c.layout, str(c.layout)):
                return c
        raise KeyError(f"no layout {layout}, there are {', '.join(str(c.layout) for c in self.costs)}")

    def fits(self, cost: Cost) -> bool:
        return self.memory is None or cost.memory.total <= self.memory

    @property
    def best(self) -> Cost | None:
        """The recommended layout: the fastest one that fits; None if none does."""
        return self.costs[0] if self.costs and self.fits(self.costs[0]) else None

    def why(self) -> str:
        """Return the recommendation, or what the layout that needs the least memory would need."""
        if self.best is not None:
            return f"{self.best.layout}: {format_time(self.best.seconds)} a step."
        least = min(self.costs, key=lambda c: c.memory.total)
        return (
            f"Nothing fits into {quantity(self.memory, 'B')} a rank; {least.layout} needs the least, "
            f"{quantity(least.memory.total, 'B')}: take more ranks, or smaller micro-batches."
        )

    def table(self) -> Table:
        header = ["layout", "step", "computing", "waiting", "sent by a rank", "memory of a rank", ""]
        rows = [
            [
                str(c.layout),
                *(format_time(t) if t else "-" for t in (c.seconds, c.computing, c.waiting)),
                quantity(c.nbytes, "B") if c.nbytes else "-",
                quantity(c.memory.total, "B"),
                "<-" if c is self.best else "" if self.fits(c) else "does not fit",
            ]
            for c in self.costs
        ]
        more = f" {self.left_out} layouts of too many ranks to simulate are left out." if self.left_out else ""
        return Table(header, rows, f"{self.name} on {self.n} ranks. {self.why()}{more}")


def plan(
    model: str | Sequential,
    network: Network | str,
    n: int,
    *,
    batch_size: int,
    input_shape: tuple[int, ...] | None = None,
    compute: str | Card | ComputeModel = "V100",
    memory: float | None = None,
    n_microbatches: int | None = None,
) -> Plan:
    """Simulate a training step in all layouts of n ranks, and recommend one.

    Each layout's strategy runs its own code on meta arrays: about a second for 4 ranks, three for 8. Small networks
    come out data-parallel, large ones model-parallel.

    Parameters
    ----------
    model : str or Sequential
        A name such as "alexnet", or any model; it is not changed.
    network : Network or str
        A name is that of a preset.
    n : int
        Number of ranks. Beyond 16, two replicas of a layout are simulated, and sums over all its replicas take the
        seconds of the network's formula; layouts whose replicas have more than 8 ranks are left out, and so is "one
        weird trick" beyond 64.
    batch_size : int
        Samples of all ranks together.
    input_shape : tuple of int, optional
        Of one sample; known for models by name.
    compute : str, Card or ComputeModel
        A name is that of a graphics card, at its roofline.
    memory : float, optional
        Bytes that a rank has.
    n_microbatches : int, optional
        What you give to the strategy, too.

    Notes
    -----
    The layouts are data x tensor x pipeline with dp tp pp = n, and for models with convolutions before dense layers
    "one weird trick". What the simulation leaves out: that communication slows computing down, and time outside layers.
    Memory is that of strict mode, which keeps two copies of an array that is being summed.

    References
    ----------
    A. Krizhevsky (2014), One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997.
    Z. Jia, M. Zaharia, A. Aiken (2019), Beyond data and model parallelism for deep neural networks, MLSys (layouts
    compared by simulation). L. Zheng et al. (2022), Alpa, OSDI.

    Examples
    --------
    >>> str(plan("lenet", "ethernet-10g", 4, batch_size=512).best.layout)
    'data 4'
    >>> str(plan("alexnet", "ethernet-10g", 4, batch_size=128).best.layout)
    'one weird trick 4'
    """
    name = name_of(model)
    model, input_shape = model_and_sample(model, input_shape)
    check_positive("plan", batch_size=batch_size, n_microbatches=1 if n_microbatches is None else n_microbatches)
    check_number("plan", above=0, memory=1 if memory is None else memory)
    n_layers = len(model.layers) - inseparable(model) + 1
    possible = layouts(n, batch_size=batch_size, n_layers=n_layers, trick=boundary(model) is not None)
    few = [c for c in possible if _simulated(c).size <= (4 if c.trick else 1) * MOST_RANKS]  # the trick is quick
    if not few:
        found = f"{n} ranks for {batch_size} samples would take replicas of more than {MOST_RANKS // 2} ranks"
        raise ValueError(f"plan: {found}; take a larger batch, or fewer ranks")
    options = {"input_shape": input_shape, "compute": compute, "n_microbatches": n_microbatches}
    costs = [simulate_layout(model, layout, network, batch_size=batch_size, **options) for layout in few]
    return Plan(costs, n, name=name, memory=memory, left_out=len(possible) - len(few))


# -- account -----------------------------------------------------------------------------------------------------------
# What `parallelize` does to a model, and what that sends.


class Sent(NamedTuple):
    """One collective, as a trace counts its bytes, or one message ("send")."""

    name: str
    nbytes: int


class AccountRow(NamedTuple):
    """One layer of a model that is sharded over ranks."""

    name: str
    layer: str
    layout: str
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
        return sum(t.nbytes for t in self.forward + self.backward)

    def table(self) -> Table:
        """Return the rows and their sum as a table; bytes are for one sample of the batch."""

        def per_sample(sent):
            return quantity(sum(t.nbytes for t in sent) / self._batch, "B") if sent else "-"

        rows = [
            [f"{r.name}  {r.layer}", r.layout, quantity(r.nbytes, "B"), per_sample(r.forward), per_sample(r.backward)]
            for r in self.rows
        ]
        weights = quantity(sum(r.nbytes for r in self.rows), "B")
        rows.append(["sum", "", weights, per_sample(self.forward), per_sample(self.backward)])
        return Table(["layer", "layout", "weights", "forward", "backward"], rows, self._title)


def account(model: Layer, input_shape: tuple[int, ...], size: int) -> Account:
    """Shard a model over simulated ranks, and list the bytes that each layer sends in a step (in the table per sample).

    One forward and one backward pass run on meta arrays, so a model built with `seed=None` takes no memory. Bytes are
    those of the trace: the input of one rank to an all-reduce, those of all ranks to an all-gather or a
    reduce-scatter.

    Parameters
    ----------
    input_shape : tuple of int
        With the batch.

    Examples
    --------
    >>> from distlearn.nn import MLP
    >>> account(MLP((784, 256, 10)), (128, 784), 4).forward
    [Sent(name='all_reduce', nbytes=5120)]
    """
    outline, world = meta_copy(model), SimWorld(size, collectives="formula")

    def program(comm):
        sharded = parallelize(meta_copy(outline), comm)
        seen = [0, 0]

        def sent():
            spans, messages = world.trace.spans[seen[0] :], world.trace.messages[seen[1] :]
            seen[:] = seen[0] + len(spans), seen[1] + len(messages)
            calls = [Sent(s.name, s.nbytes) for s in spans if s.rank == comm.rank and s.name in ALGORITHMS]
            return calls + [Sent("send", m.nbytes) for m in messages if m.source == comm.rank]

        sent()
        x = MetaArray(input_shape, input_dtype(outline))
        passed = []
        for layer, layout in zip(sharded.layers, sharded.layouts, strict=True):
            x, saved = layer.forward(x)
            passed.append((layer, layout, saved, sent()))
        dy, rows, known = x, [], set()
        for layer, layout, saved, forward in reversed(passed):
            dy = dy if dy is None else layer.backward(dy, saved)
            new = {id(p): p.nbytes for p in layer.params if id(p) not in known}
            known |= set(new)
            text = type(layer).__name__ if layer.children else repr(layer)
            rows.append(AccountRow(layer.name.partition(".")[0], text, layout, sum(new.values()), forward, sent()))
        return rows[::-1]

    title = f"{size} ranks, input {tuple(input_shape)}, bytes per sample"
    return Account(world.run(program)[0], input_shape[0], title)
