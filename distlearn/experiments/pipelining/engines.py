"""Schedules on real ranks: stages that take a given time, and what was measured beside what was simulated."""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from ...data import Batch
from ...nn import Sequential
from ...nn.layer import Layer, Param
from ...optim import SGD, Optimizer
from ...parallel import Pipeline
from ...parallel.pipeline.schedule import Simulated, make_schedule, measured_bubble, simulate
from ...parallel.pipeline.schedule.timing import stage_costs
from ...trace import Trace


class StandIn(Layer):
    """A layer that takes a given time and passes its input on: a stand-in for work on an accelerator.

    The process sleeps meanwhile, as it would while a GPU computes, so that more ranks than cores do not take turns.

    Parameters
    ----------
    forward, input_gradient_seconds, weight_gradient_seconds : float
        Seconds of one micro-batch.
    """

    def __init__(self, forward: float, input_gradient_seconds: float, weight_gradient_seconds: float):
        self.seconds = forward, input_gradient_seconds, weight_gradient_seconds
        self.b = Param(np.zeros(1, "float32"), "b")
        self.params = [self.b]

    def forward(self, x):
        time.sleep(self.seconds[0])
        return x + self.b.data, None

    def backward(self, dy, saved):
        time.sleep(self.seconds[1] + self.seconds[2])
        return dy

    def backward_input(self, dy, saved):
        time.sleep(self.seconds[1])
        return dy, dy

    def backward_weights(self, kept):
        time.sleep(self.seconds[2])


class Measured(NamedTuple):
    """One step of a schedule on real ranks, beside the simulated one."""

    simulated: Simulated
    trace: Trace
    """Of the step."""
    in_flight: list[int]
    """By rank: the most micro-batches (per stage) whose activations were held at one time."""

    @property
    def makespan(self) -> float:
        """Seconds from the first start of an action to the last end."""
        return max(s.end for s in self.trace) - min(s.start for s in self.trace)

    @property
    def bubble(self) -> float:
        """Share of the ranks' time in which they ran no action."""
        return measured_bubble(self.trace)


def run_stand_ins(comm, schedule: str, seconds) -> tuple[float, int]:
    """Train one step on stand-ins; return when it began, and this rank's activations in flight.

    Parameters
    ----------
    comm : Communicator
    schedule : str
        A text or CSV.
    seconds : list of (float, float, float)
        Of every stage: forward, gradient of the input, of the weights.
    """
    made = make_schedule(schedule)
    model = Sequential(*(StandIn(*three) for three in seconds))
    stages = [slice(i, i + 1) for i in range(len(seconds))]
    optimizer = Optimizer(model.params, SGD(), 0.1)
    strategy = Pipeline(comm, model, _mean, optimizer, schedule=made, stages=stages)
    m = made.n_microbatches
    batch = Batch(np.zeros((m, 1), "float32"), np.zeros(m, int), m)
    strategy.predict(batch.x)  # agrees on shapes
    comm.barrier()
    start = comm.clock.now()
    strategy.step(batch)
    return start, strategy.peak_in_flight


def _mean(output, labels, n):
    return float(output.sum()) / n, np.full_like(output, 1 / n)


def measure_schedule(world, schedule, *, unit: float = 0.01, transfer: float = 0.0, **costs) -> Measured:
    """Run one step of a schedule on the ranks of a world, with stages that take as long as in the simulation.

    Parameters
    ----------
    world : EngineWorld
        With as many ranks as the schedule, or more: the others do nothing.
    schedule : str, list or Schedule
        Any form that `make_schedule` takes without further arguments.
    unit : float
        Real seconds of one second of the costs.
    transfer : float
        Of the simulation alone: real messages take what they take.
    **costs
        `forward=`, `backward=`, `weight_share=` as for `simulate`.

    Returns
    -------
    measured : Measured
    """
    made = make_schedule(schedule)
    simulated = simulate(made, transfer=transfer, **costs)
    by_kind = stage_costs(made, **costs)
    seconds = [tuple(unit * t for t in three) for three in zip(*(by_kind[kind] for kind in "FIW"), strict=True)]
    found = world.run(_first_ranks, made.n_ranks, made.csv, seconds)[: made.n_ranks]
    start = min(begin for begin, _ in found)
    spans = [s for s in world.trace.select(lane="stage") if s.start >= start]
    return Measured(simulated, Trace(spans), [held for _, held in found])


def _first_ranks(comm, n_ranks: int, *args):
    part = comm.split(0 if comm.rank < n_ranks else None)
    return None if part is None else run_stand_ins(part, *args)
