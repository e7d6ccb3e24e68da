"""The cost of one training step in a layout: the strategy's own code runs on meta arrays, in a `SimWorld`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ...comm import Network
from ...comm.network.formulas import sent_bytes
from ...nn.costs.summary import Memory
from ...nn.layer import nbytes
from ...optim import Momentum, Optimizer
from ...sim import SimWorld
from ...trace import Trace
from ..data.data_parallel import DataParallel
from ..hybrid import Hybrid
from ..meta import drop_arithmetic, meta_batch, meta_copy, meta_loss
from ..pipeline.strategy import Pipeline
from ..tensor import TensorParallel
from ..tensor.one_weird_trick import OneWeirdTrick
from .layout import Layout
from .named import compute_of, model_and_sample

CAP_BYTES = 25 << 20
"""Size of a bucket of gradients: PyTorch's default."""

MOST_RANKS = 64
"""Of a larger layout some replicas are simulated; sums over all of them take the seconds of the network's formula."""


@dataclass(frozen=True)
class Cost:
    """Cost of a training step in one layout.

    Attributes
    ----------
    seconds : float
        The sum of the next three.
    computing : float
        On the busiest rank [s].
    communicating : float
        What sending adds to the step [s]: what is hidden behind computing is not in it.
    bubble : float
        What the slowest rank would wait on a network that costs nothing [s].
    nbytes : float
        That the rank which sends the most sends in a step.
    memory : Memory
        Of the rank that holds the most.
    trace : Trace
        Of the step.
    """

    layout: Layout
    seconds: float
    computing: float
    communicating: float
    bubble: float
    nbytes: float
    memory: Memory
    trace: Trace = field(repr=False)


class ReplicatedNetwork:
    """A network on which collectives of replicas take as long as with more replicas than are simulated.

    It also counts what each rank sends in collectives: `sent`, by rank.
    """

    def __init__(self, network, layout: Layout, replicas: int):
        self.network, self.sent = network, Counter()
        self._stride, self._times = layout.tp * layout.pp, layout.dp // replicas

    def __getattr__(self, name):
        return getattr(self.network, name)

    def collective(self, name, nbytes, ranks):
        """Return the seconds among the ranks that the simulated ones stand for."""
        if self._times > 1 and ranks[1] - ranks[0] == self._stride:  # ranks of one replica are closer together
            ranks = range(ranks[0], ranks[0] + self._stride * len(ranks) * self._times, self._stride)
        for rank in ranks:
            self.sent[rank] += sent_bytes(name, nbytes, len(ranks))
        return self.network.collective(name, nbytes, ranks)


def simulate_layout(
    model,
    layout: Layout,
    network,
    *,
    batch_size: int,
    input_shape: tuple[int, ...] | None = None,
    compute="V100",
    rule=None,
    cap_bytes: float = CAP_BYTES,
    n_microbatches: int | None = None,
) -> Cost:
    """Simulate one training step in a layout; the parameters are those of `plan`.

    `DataParallel`, `TensorParallel`, `Pipeline` (1F1B), `OneWeirdTrick` or `Hybrid` runs, on meta arrays.
    """
    model, sample = model_and_sample(model, input_shape)
    outline, rule = meta_copy(model), Momentum() if rule is None else rule
    replicas = layout.dp
    if layout.size > MOST_RANKS and not layout.trick and layout.dp > 2:
        replicas = next(k for k in range(2, layout.dp + 1) if layout.dp % k == 0)  # each stands for equally many
    small, rows = layout._replace(dp=replicas), -(-batch_size // layout.dp) * replicas

    def program(comm):
        own = meta_copy(outline)
        optimizer = Optimizer(own.params, rule, 0.01)
        shape = (-(-rows // replicas), *sample)
        strategy, parts = _strategy(comm, small, own, optimizer, shape, cap_bytes, n_microbatches)
        saved = [_saved_bytes(part) for part in parts]
        batch = meta_batch(rows, sample, strategy.rank, strategy.size)
        comm.barrier()
        network.sent.clear()
        began = comm.clock.now()
        strategy.step(batch)
        ended = comm.clock.now()
        params = list({id(p): p for part in parts for p in part.params}.values())
        weights = sum(p.nbytes for p in params)
        learned = sum(p.nbytes for p in params if not p.frozen)
        in_flight = getattr(strategy, "pipeline", strategy).peak_in_flight if layout.pp > 1 else 1
        kept = in_flight * sum(max(of, default=0) for of in saved)
        return began, ended, Memory(weights, learned, nbytes(list(strategy.optimizer.states)), kept)

    def run(network):
        world = SimWorld(small.size, network, compute_of(compute), collectives="formula")
        results = world.run(program)
        step = world.trace.window(results[0][0])
        return max(ended for _, ended, _ in results) - results[0][0], step, max((m for *_, m in results), key=sum)

    network = ReplicatedNetwork(Network.of(network), layout, replicas)
    seconds, step, memory = run(network)
    for message in step.messages:
        network.sent[message.source] += message.nbytes
    sent, busy = max(network.sent.values(), default=0), Counter()
    for span in step.select(lane="compute"):
        busy[span.rank] += span.seconds
    computing, idle = max(busy.values()), 0.0
    if layout.pp > 1:
        network = ReplicatedNetwork(Network(), layout, replicas)
        idle = max(0.0, run(network)[0] - computing)
    communicating = max(0.0, seconds - computing - idle)
    return Cost(layout, seconds, computing, communicating, idle, sent, memory, step)


def _strategy(comm, layout: Layout, model, optimizer, shape, cap_bytes, m):
    """Make the strategy of a layout; return it, and its models that compute, without their arithmetic."""
    if layout.trick:
        strategy = OneWeirdTrick(comm, model, meta_loss, optimizer, cap_bytes=cap_bytes)
        parts = [strategy.split.features, strategy.split.dense]
    elif layout.size == layout.dp:
        strategy, parts = DataParallel(comm, model, meta_loss, optimizer, cap_bytes=cap_bytes), [model]
    elif layout.size == layout.tp:
        strategy = TensorParallel(comm, model, meta_loss, optimizer)
        parts = [strategy.model]
    else:
        options = {"n_microbatches": m if layout.pp > 1 else 1, "shape": shape}
        if layout.size == layout.pp:
            strategy = pipeline = Pipeline(comm, model, meta_loss, optimizer, **options)
        else:
            axes = {"dp": layout.dp, "pp": layout.pp, "tp": layout.tp}
            strategy = Hybrid(comm, model, meta_loss, optimizer, cap_bytes=cap_bytes, **axes, **options)
            pipeline = strategy.pipeline
        parts = list(pipeline.stages.values())
    for part in parts:
        drop_arithmetic(part)
    return strategy, parts


def _saved_bytes(part) -> list[int]:
    """Return a list to which every forward pass of a model appends the bytes that it saved."""
    found, forward = [], part.forward

    def measured(x, *args, **kwargs):
        y, saved = forward(x, *args, **kwargs)
        found.append(nbytes(saved))
        return y, saved

    part.forward = measured
    return found
