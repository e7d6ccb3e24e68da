"""Where the bytes of a training step are: memory over time, by owner, predicted on meta arrays or measured on data.

    make(comm, copy of the model) --> strategy.step(batch) --> after every span: bytes of each rank, by owner

Nothing is estimated. On meta arrays the strategy and the layers run their own code, make and drop the same arrays as on
data, and `sim.meta.Block` reports each one. On data `tracemalloc` is asked how many bytes NumPy has allocated. Both are
read when a span ends; arrays that a layer allocates and frees within its own pass are not seen.
"""

from __future__ import annotations

import copy
import gc
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data import Batch
from ..nn.container import Sequential
from ..shares import share
from ..sim import MetaArray, SimWorld
from ..sim.meta import Block
from ..tables import Table, Tabular, quantity
from ..trace import Span, Trace
from .meta import meta_copy

if TYPE_CHECKING:
    from ..comm.network.alpha_beta import Network


class Sample(NamedTuple):
    """Memory at one moment."""

    rank: int
    seconds: float
    at: str  # The span that has just ended.
    owners: dict[str, int]  # Bytes that the rank holds, by owner.
    everywhere: int  # Bytes of all ranks together; what NumPy has allocated included while `tracemalloc` traces.

    @property
    def total(self) -> int:
        return sum(self.owners.values())


class MemoryRecord(Tabular):
    """Memory of one training step, at the end of every span; prints the peak of the fullest rank as a table.

    Owners: "parameters", "gradients", "optimizer", "batch"; "saved by L" for arrays made by the forward pass of
    layer L; "gradients of activations"; "communication", with the copies by which simulated collectives find arrays
    that change before `wait`; "other". Memory measured on data has one owner, "measured": the bytes of all ranks
    together.

    Attributes
    ----------
    samples : list of Sample
        Of all ranks, in the order in which their spans ended.
    trace : Trace
        Of the step.
    """

    def __init__(self, samples: list[Sample], trace: Trace, title: str):
        self.samples, self._title = samples, title
        self.trace = trace.window(min(s.seconds for s in samples if s.at == "start"))

    def __getitem__(self, rank: int) -> list[Sample]:
        return [s for s in self.samples if s.rank == rank]

    @property
    def peak(self) -> Sample:
        """The moment at which a rank holds the most."""
        return max(self.samples, key=lambda s: s.total)

    def table(self) -> Table:
        peak = self.peak
        rows = [
            [owner, f"{n:,}", quantity(n, "B"), f"{n / max(1, peak.total):.0%}"]
            for owner, n in [*peak.owners.items(), ("sum", peak.total)]
        ]
        return Table(["owner", "bytes", "", "share"], rows, f"{self._title}, rank {peak.rank} after {peak.at}")


def record_memory(
    make: Callable[..., Any],
    model: Sequential,
    batch: Any,
    *,
    size: int = 1,
    network: Network | str | None = None,
    compute: Any = None,
) -> MemoryRecord:
    """Record the memory of one training step on simulated ranks.

    Parameters
    ----------
    make : callable
        `make(comm, model) -> Strategy`; it gets a copy of the model.
    batch : Batch
        The whole one; every rank takes its part. On `MetaArray` the memory is predicted: nothing is computed, and the
        size of the model does not matter. On NumPy arrays it is measured.
    size : int
        Number of ranks.
    network, compute
        As for `SimWorld`; with free ones all moments are second 0.

    Examples
    --------
    >>> from distlearn.nn import MLP, SoftmaxCrossEntropy
    >>> from distlearn.optim import Momentum, Optimizer
    >>> from distlearn.parallel import Serial
    >>> def make(comm, model):
    ...     return Serial(comm, model, SoftmaxCrossEntropy(), Optimizer(model.params, Momentum(), 0.1))
    >>> batch = Batch(MetaArray((32, 784)), MetaArray(32, np.int64), 32)
    >>> record = record_memory(make, MLP((784, 256, 10)), batch)
    >>> record.peak.owners["parameters"] == 4 * (784 * 256 + 256 + 256 * 10 + 10)
    True
    """
    predicted = isinstance(batch.x, MetaArray)
    world = SimWorld(size, network, compute)
    ledger = Ledger(world) if predicted else _Traced(world)

    def program(comm):
        strategy = make(comm, meta_copy(model) if predicted else copy.deepcopy(model))
        mine = share(len(batch.x), strategy.rank, strategy.size)
        part = Batch(batch.x[mine].copy(), batch.y[mine].copy(), batch.n)
        ledger.begin(comm, strategy, part)
        strategy.step(part)

    gc.collect()
    gc.disable()  # arrays in cycles of references would be freed at any time
    if not predicted:
        tracemalloc.start()
    try:
        with ledger:
            world.run(program)
    finally:
        if not predicted:
            tracemalloc.stop()
        gc.enable()
    return MemoryRecord(ledger.samples, world.trace, f"{size} rank{'s' * (size > 1)}")


class Ledger:
    """Counts the bytes of meta arrays by rank and owner."""

    # An array has no owner when it is made: the span that it is made in is known only when it ends. Until then its
    # owner is the number of that span.

    def __init__(self, world):
        self.world, self.samples, self.strategies = world, [], {}
        self.bytes = defaultdict(Counter)  # by rank: bytes by owner
        self.total = 0
        self.names, self.numbers = defaultdict(dict), Counter()  # by rank: owners of spans by number, spans so far

    def __enter__(self):
        Block.watched = self
        return self

    def __exit__(self, *exc):
        Block.watched = None

    def take(self, block) -> None:
        block.rank = self.world._transport.scheduler.running_rank() or 0
        block.owner = self.numbers[block.rank]
        self._count(block, block.nbytes)

    def free(self, block) -> None:
        self._count(block, -block.nbytes)

    def _count(self, block, nbytes: int) -> None:
        held = self.bytes[block.rank]
        held[block.owner] += nbytes
        self.total += nbytes
        if not held[block.owner]:
            del held[block.owner]

    def begin(self, comm, strategy, batch) -> None:
        if not self.strategies:
            self.world.trace.spans = _Spans(self.world.trace.spans, self.look)
        self.strategies[comm.rank] = strategy
        state = strategy.state_dict().items()
        self.give([held.array for name, held in state if name.startswith("optimizer/")], "optimizer")
        self.give([held.array for name, held in state], "parameters")
        self.give([batch.x, batch.y], "batch")
        self.look(Span(comm.rank, "compute", "start", comm.clock.now(), comm.clock.now()))

    def look(self, span: Span) -> None:
        """Take a sample at the end of a span."""
        rank = span.rank
        if rank not in self.strategies:  # it is still being made
            return
        params = [*self.strategies[rank].model.params, *self.strategies[rank].optimizer.params]
        self.give([p.data for p in params], "parameters")
        self.give([p._grad for p in params], "gradients")
        self.names[rank][self.numbers[rank]] = _owner(span)
        self.numbers[rank] += 1
        owners = Counter()
        for owner, n in self.bytes[rank].items():
            owners[self.names[rank].get(owner, owner)] += n
        self.samples.append(Sample(rank, span.end, span.name, dict(owners), self.total + _allocated()))

    def give(self, arrays, owner: str) -> None:
        """Name the owner of arrays that have none so far."""
        for array in arrays:
            if isinstance(array, MetaArray) and not isinstance(array.block.owner, str):
                block = array.block
                self.free(block)
                block.owner = owner
                self._count(block, block.nbytes)


def _owner(span: Span) -> str:
    kind, _, layer = span.name.partition("[")
    if span.lane == "comm":
        return "communication"
    if kind == "forward":
        return f"saved by {layer[:-1]}"
    return "gradients of activations" if kind.startswith("backward") else "other"


class _Traced(Ledger):
    """Measures, where arrays have data and so no owner."""

    def look(self, span):
        if span.rank in self.strategies:
            n = _allocated()
            self.samples.append(Sample(span.rank, span.end, span.name, {"measured": n}, n))


def _allocated() -> int:
    """Bytes of NumPy's arrays in this process that were made since `tracemalloc` was started; 0 if it was not."""
    # what `take_snapshot().filter_traces([DomainFilter(...)])` does, in a hundredth of its time
    ours = np.lib.tracemalloc_domain
    return sum(trace[1] for trace in tracemalloc._get_traces() if trace[0] == ours)


class _Spans(list):
    """The spans of a trace; calls `on_span` with each new one."""

    def __init__(self, spans, on_span):
        super().__init__(spans)
        self._on_span = on_span

    def append(self, span):
        super().append(span)
        self._on_span(span)
