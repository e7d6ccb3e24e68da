"""A layout's training step, put together from what its layers take.

    stage s, micro-batch i:   forward + sends inside layers, backward + sends inside layers
    all of them, in order:    the schedule, with the cut's message from stage to stage
    last backward of a stage: buckets fill up, and are summed over replicas one after another, while it goes on
    then:                     the update

The step is as long as its slowest stage. What of that is no computing is split into the bubble, which would be there on
a network without cost, too, and communication.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

from ...data import shard
from ...nn.container import Sequential
from ...nn.memory import Memory
from ...optim import Optimizer
from ..bucket import make_buckets
from ..schedule import Action, make_schedule
from ..stages import balance, cut, layer_costs
from ..tensor import Traffic
from ..weird_trick import Halves
from .layout import Layout
from .memory import activation_bytes, rank_memory
from .timeline import timeline
from .work import WIRE, LayerTime, Rates, Seat, dealt


@dataclass(frozen=True)
class Job:
    """What is to be trained: the same for all layouts.

    Parameters
    ----------
    model : Sequential
        Of phantoms.
    shape : tuple of int
        Of a whole batch.
    rates : Rates
    rule : Rule
        Of the optimizer.
    cap_bytes : float
        Size of a bucket.
    schedule : str
        Of pipelines.
    n_microbatches : int, optional
        Of pipelines; four for every stage by default.
    """

    model: Sequential
    shape: tuple[int, ...]
    rates: Rates
    rule: object
    cap_bytes: float
    schedule: str = "1f1b"
    n_microbatches: int | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of a value."""
        return self.model.params[0].data.dtype.itemsize

    def microbatches(self, pp: int, rows: int) -> int:
        """Return into how many micro-batches a replica cuts its rows."""
        return 1 if pp == 1 else min(rows, self.n_microbatches or 4 * pp)

    def update(self, params) -> float:
        """Seconds of the optimizer's step for some parameters."""
        return self.rates.span(*Optimizer(params, self.rule, 0.0).cost())


@dataclass(frozen=True)
class Cost:
    """What a training step takes in one layout, by the model of costs.

    Attributes
    ----------
    layout : Layout
    seconds : float
        The sum of the next three.
    computing : float
        On the busiest rank [s].
    communicating : float
        What sending adds to the step [s]: what is hidden behind computing is not in it.
    bubble : float
        What the schedule of a pipeline leaves idle, or the smaller share of other stages [s].
    nbytes : float
        That the rank which sends the most sends in a step.
    memory : Memory
        Of the rank that holds the most.
    n_microbatches : int
    """

    layout: Layout
    seconds: float
    computing: float
    communicating: float
    bubble: float
    nbytes: float
    memory: Memory
    n_microbatches: int = 1


def cost_of(job: Job, layout: Layout) -> Cost:
    """Cost one layout."""
    return trick_cost(job, layout) if layout.trick else stages_cost(job, layout)


@dataclass
class Stage:
    """Some layers on one rank of a pipeline."""

    model: Sequential
    tail: tuple[int, ...]
    """Shape of a sample of its input."""
    times: dict[int, list[LayerTime]]
    """By the number of rows of a micro-batch."""

    @property
    def params(self) -> list:
        """Each once, in order."""
        return params_of(next(iter(self.times.values())))

    def seconds(self, rows: int, kind: str, *, sending: bool) -> float:
        """Seconds of a pass over so many rows, forward ("F") or backward ("B")."""
        if kind == "F":
            return sum(t.forward + sending * t.sending_forward for t in self.times[rows])
        return sum(t.backward + sending * t.exposed_backward for t in self.times[rows])


class Staged:
    """A layout data x tensor x pipeline: its stages, its micro-batches, and what they take.

    Parameters
    ----------
    job : Job
    layout : Layout
    """

    def __init__(self, job: Job, layout: Layout):
        self.job, self.layout = job, layout
        rows = -(-job.shape[0] // layout.dp)
        self.m = job.microbatches(layout.pp, rows)
        parts = [shard(rows, i, self.m) for i in range(self.m)]
        self.rows = [part.stop - part.start for part in parts]
        self.made = make_schedule(job.schedule if layout.pp > 1 else "gpipe", layout.pp, self.m)
        model = dealt(job.model, layout.tp)
        shapes = [shape for _, shape in model.parts((rows, *job.shape[1:]))]
        slices = balance(layer_costs(model, (rows, *job.shape[1:])), layout.pp)
        self.stages = [self._stage(cut(model, part), shapes[part.start][1:]) for part in slices]
        self.updates = [job.update(stage.params) for stage in self.stages]
        self.homes = layout.ranks("pp")

    def _stage(self, model, tail) -> Stage:
        tp = self.layout.ranks("tp")
        return Stage(model, tail, {n: self.job.rates.layers(model, (n, *tail), tp) for n in sorted(set(self.rows))})

    def _seconds(self, action: Action, sending: bool) -> float:
        return self.stages[action.stage].seconds(self.rows[action.microbatch], action.kind, sending=sending)

    def _bytes_at(self, action: Action) -> int:
        """Bytes that an action takes from another stage."""
        taken = self.stages[action.stage + (action.kind == "B")].tail
        return self.job.itemsize * self.rows[action.microbatch] * math.prod(taken)

    def computing(self) -> float:
        """Seconds that the busiest rank computes."""
        busy = [sum(self._seconds(a, False) for a in order) for order in self.made.orders]
        return max(b + u for b, u in zip(busy, self.updates, strict=True))

    def without_sending(self) -> float:
        """Seconds of the step on a network that costs nothing."""
        times = timeline(self.made, lambda a: self._seconds(a, False))
        return max(times[self._last(s)][1] + u for s, u in enumerate(self.updates))

    def _last(self, stage: int) -> Action:
        return Action("B", self.m - 1, stage)

    def seconds(self) -> float:
        """Seconds of the step."""
        rates, dp = self.job.rates, self.layout.ranks("dp")

        def message(taker):
            source = taker.stage + (1 if taker.kind == "B" else -1)
            return rates.route(self._bytes_at(taker), self.homes[source], self.homes[taker.stage])

        times = timeline(self.made, lambda a: self._seconds(a, True), message)
        backward = [times[self._last(s)] for s in range(self.layout.pp)]
        loss_known = max(end for _, end in backward) + rates.collective(Traffic("broadcast", 8), self.homes)
        ended = []
        for (began, _), stage, update in zip(backward, self.stages, self.updates, strict=True):
            held = loss_known - began if self.layout.pp > 1 else 0.0
            ended.append(began + summed_by(self.job, stage.times[self.rows[-1]], dp, held) + update)
        return max(loss_known, *ended)

    def nbytes(self) -> float:
        """Bytes that the rank which sends the most sends in a step."""
        return max(self._sent_by(s) for s in range(self.layout.pp))

    def _sent_by(self, s: int) -> float:
        stage = self.stages[s]
        inside = sum(t.nbytes for n in self.rows for t in stage.times[n])
        takers = [Action(kind, i, s + step) for kind, step in (("F", 1), ("B", -1)) for i in range(self.m)]
        between = sum(self._bytes_at(a) for a in takers if 0 <= a.stage < self.layout.pp)
        gradients = sum(p.nbytes for p in stage.params if not p.frozen)
        return inside + between + WIRE["all_reduce"](gradients, self.layout.dp)

    def memory(self) -> Memory:
        """That of the rank which holds the most."""
        found = []
        for i, stage in enumerate(self.stages):
            one = activation_bytes(stage.model, (self.rows[0], *stage.tail), self.job.itemsize)
            found.append(rank_memory(stage.params, self.job.rule, self.made.in_flight(i) * one))
        return max(found, key=lambda memory: memory.total)


def stages_cost(job: Job, layout: Layout) -> Cost:
    """Cost data x tensor x pipeline."""
    staged = Staged(job, layout)
    whole, computing = staged.seconds(), staged.computing()
    bubble = max(0.0, staged.without_sending() - computing)
    sending = max(0.0, whole - computing - bubble)
    return Cost(layout, whole, computing, sending, bubble, staged.nbytes(), staged.memory(), staged.m)


def summed_by(job: Job, layers: list[LayerTime], ranks: list[int], held: float = 0.0) -> float:
    """Return when the gradients have been summed over replicas, in seconds since the last backward pass began.

    Parameters
    ----------
    job : Job
    layers : list of LayerTime
    ranks : list of int
        The replicas.
    held : float
        The last bucket, in which the loss rides along, does not start before this moment.
    """
    if len(ranks) < 2:
        return sum(t.backward + t.exposed_backward for t in layers)
    params = [p for p in params_of(layers) if not p.frozen]
    buckets = make_buckets(params, job.cap_bytes, extra=1) if params else []
    bucket_of = {id(p): bucket for bucket in buckets for p in bucket.params}
    left = {id(bucket): len(bucket.params) for bucket in buckets}
    now = free = 0.0
    for layer in reversed(layers):
        now, issued = now + layer.backward, now + layer.backward - layer.hiding
        if layer.sending_backward:  # a rank's collectives run one after another
            free = max(issued, free) + layer.sending_backward
            now = max(now, free)
        for p in layer.params:
            bucket = bucket_of.pop(id(p), None)
            if bucket is None:
                continue
            left[id(bucket)] -= 1
            if not left[id(bucket)]:
                start = max(now, free, held if bucket is buckets[-1] else 0.0)
                free = start + job.rates.collective(Traffic("all_reduce", bucket.flat.nbytes), ranks)
    return max(now, free)


def params_of(layers: list[LayerTime]) -> list:
    """Parameters of some layers, each once, in order."""
    return list({id(p): p for layer in layers for p in layer.params}.values())


def has_trick(model: Sequential) -> bool:
    """Say whether "one weird trick" applies: layers to train before the first dense one."""
    try:
        Halves.of(model, Seat(1))
    except ValueError:
        return False
    return True


def trick_cost(job: Job, layout: Layout) -> Cost:
    """Cost data parallelism up to the first dense layer and tensor parallelism from there on."""
    p, ranks, rates = layout.dp, layout.ranks("dp"), job.rates
    features, dense, sums = Halves.of(copy.deepcopy(job.model), Seat(p))
    shape = (-(-job.shape[0] // p), *job.shape[1:])
    seam = features.output_shape(shape)
    whole = (job.shape[0], *seam[1:])
    before, behind = rates.layers(features, shape, ranks), rates.layers(dense, whole, ranks)
    nbytes = job.itemsize * p * math.prod(seam)
    turns = ["all_gather", "reduce_scatter"][: 1 + sums]
    params = params_of([*before, *behind])
    computing = sum(t.forward + t.backward for t in [*before, *behind]) + job.update(params)
    sending = sum(t.sending_forward + t.exposed_backward for t in behind)
    sending += sum(rates.collective(Traffic(name, nbytes), ranks) for name in turns)
    sending += summed_by(job, before, ranks) - sum(t.backward for t in before)
    gradients = sum(q.nbytes for q in params_of(before) if not q.frozen)
    sent = sum(t.nbytes for t in behind) + WIRE["all_reduce"](gradients, p)
    sent += sum(WIRE[name](nbytes, p) for name in turns)
    kept = activation_bytes(features, shape, job.itemsize) + activation_bytes(dense, whole, job.itemsize)
    memory = rank_memory(params, job.rule, kept)
    return Cost(layout, computing + sending, computing, sending, 0.0, sent, memory)
