"""Data x tensor x pipeline: a training step, composed of the times of its layers.

    stage s, micro-batch i:   forward + sends inside layers, backward + sends inside layers
    all of them, in order:    the schedule, with the cut's message from stage to stage
    last backward of a stage: buckets fill up, and are summed over replicas one after another, while it goes on
    then:                     the update

The step is as long as its slowest stage. The part that is not computing is split into the bubble, which would be there
on a network without cost, too, and communication.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...comm.network.formulas import sent_bytes
from ...data import shard
from ...nn.container import Sequential
from ...nn.costs.memory import Memory
from ..pipeline.schedule import Action, make_schedule
from ..pipeline.schedule.play import play
from ..pipeline.stages import as_stages, cut
from ..tensor import Traffic
from .buckets import params_of, summed_by
from .job import Cost, Job
from .layout import Layout
from .memory import activation_bytes, rank_memory
from .work import LayerTime, first_shard


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
    """A layout data x tensor x pipeline: its stages, its micro-batches, and their times.

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
        model = first_shard(job.model, layout.tp)
        shapes = [shape for _, shape in model.parts((rows, *job.shape[1:]))]
        slices = as_stages(None, model, layout.pp, (rows, *job.shape[1:]))
        self.stages = [self._stage(cut(model, part), shapes[part.start][1:]) for part in slices]
        self.updates = [job.update(stage.params) for stage in self.stages]
        self.homes = layout.ranks("pp")

    def _stage(self, model, tail) -> Stage:
        tp = self.layout.ranks("tp")
        return Stage(model, tail, {n: self.job.rates.layers(model, (n, *tail), tp) for n in sorted(set(self.rows))})

    def _seconds(self, action: Action, sending: bool) -> float:
        return self.stages[action.stage].seconds(self.rows[action.microbatch], action.kind, sending=sending)

    def _bytes_at(self, action: Action) -> int:
        """Bytes that an action consumes from another stage."""
        taken = self.stages[action.stage + (action.kind == "B")].tail
        return self.job.itemsize * self.rows[action.microbatch] * math.prod(taken)

    def computing(self) -> float:
        """Seconds that the busiest rank computes."""
        busy = [sum(self._seconds(a, False) for a in order) for order in self.made.orders]
        return max(b + u for b, u in zip(busy, self.updates, strict=True))

    def without_sending(self) -> float:
        """Seconds of the step on a network that costs nothing."""
        times = play(self.made, lambda a: self._seconds(a, False)).times
        return max(times[self._last(s)][1] for s in range(self.layout.pp)) + max(self.updates)

    def _last(self, stage: int) -> Action:
        return Action("B", self.m - 1, stage)

    def seconds(self) -> float:
        """Seconds of the step."""
        rates, dp = self.job.rates, self.layout.ranks("dp")

        def message(consumer):
            source = consumer.stage + (1 if consumer.kind == "B" else -1)
            return rates.route(self._bytes_at(consumer), self.homes[source], self.homes[consumer.stage])

        times = play(self.made, lambda a: self._seconds(a, True), message).times
        backward = [times[self._last(s)] for s in range(self.layout.pp)]
        loss_known = max(end for _, end in backward) + rates.collective(Traffic("broadcast", 8), self.homes)
        ended = []
        for (began, _), stage, update in zip(backward, self.stages, self.updates, strict=True):
            held = loss_known - began if self.layout.pp > 1 else 0.0
            summed = began + summed_by(self.job, stage.times[self.rows[-1]], dp, held)
            ended.append(max(loss_known, summed) + update)
        return max(ended)

    def nbytes(self) -> float:
        """Bytes that the rank which sends the most sends in a step."""
        return max(self._sent_by(s) for s in range(self.layout.pp))

    def _sent_by(self, s: int) -> float:
        stage = self.stages[s]
        inside = sum(t.nbytes for n in self.rows for t in stage.times[n])
        consumers = [Action(kind, i, s + step) for kind, step in (("F", 1), ("B", -1)) for i in range(self.m)]
        between = sum(self._bytes_at(a) for a in consumers if 0 <= a.stage < self.layout.pp)
        gradients = sum(p.nbytes for p in stage.params if not p.frozen)
        return inside + between + sent_bytes("all_reduce", gradients, self.layout.dp)

    def memory(self) -> Memory:
        """Memory of the rank that holds the most."""
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
