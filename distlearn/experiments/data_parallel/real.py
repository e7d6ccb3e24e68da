"""Training steps and all-reduces measured on engines, and the network that fits them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...comm import Network
from ...train import train

MESSAGES = (2**10, 2**15, 2**18, 2**20, 2**21)
"""Sizes of the all-reduces that are timed [bytes]."""


@dataclass
class Measured:
    """What was measured on engines.

    Attributes
    ----------
    ranks : tuple of int
    steps : dict of str to dict of int to list of float
        By case and ranks: seconds of a step, for each repetition.
    all_reduces : dict of int to list of float
        By ranks: seconds of an all-reduce of each size in `messages`.
    trace : Trace
        Of a run on all ranks.
    messages : tuple of int
        [bytes]
    """

    ranks: tuple[int, ...]
    steps: dict
    all_reduces: dict
    trace: object
    messages: tuple[int, ...] = MESSAGES

    def median(self, case: str) -> dict[int, float]:
        """Return the median seconds of a step by ranks."""
        return {p: float(np.median(times)) for p, times in self.steps[case].items()}


def first_ranks(comm, p: int, fn, *args):
    """Run fn on the first p ranks; the others do nothing."""
    part = comm.split(0 if comm.rank < p else None)
    return None if part is None else fn(part, *args)


def step_seconds(comm, settings) -> float:
    """Return the seconds of a training step."""
    history = train(comm, settings).history
    return history.last.seconds / len(history.losses)


def all_reduce_seconds(comm, nbytes: int, calls: int = 15) -> float:
    """Return the median seconds of an all-reduce of float32."""
    x, times = np.zeros(nbytes // 4, "float32"), []
    for _ in range(calls):
        comm.barrier()
        start = comm.clock.now()
        comm.all_reduce(x)
        times.append(comm.clock.now() - start)
    return float(np.median(times))


def measure_engines(world, cases: dict, ranks=(1, 2, 4), repetitions: int = 3, report=None) -> Measured:
    """Measure training steps and all-reduces on the first ranks of a world.

    Parameters
    ----------
    world : EngineWorld
    cases : dict of str to Settings
    ranks : tuple of int
    repetitions : int
    report : callable, optional
        Gets `report(done, total)`.

    Returns
    -------
    measured : Measured
    """
    total, done = len(ranks) * (len(cases) * repetitions + len(MESSAGES)), 0
    steps = {case: {p: [] for p in ranks} for case in cases}
    costs = {p: [] for p in ranks}
    for p in ranks:
        for call, out, *args in [
            *[(step_seconds, steps[case][p], s) for case, s in cases.items() for _ in range(repetitions)],
            *[(all_reduce_seconds, costs[p], nbytes) for nbytes in MESSAGES],
        ]:
            out.append(world.run(first_ranks, p, call, *args)[0])
            done += 1
            if report is not None:
                report(done, total)
    world.run(step_seconds, next(iter(cases.values())))
    return Measured(tuple(ranks), steps, costs, world.trace)


def fit_network(measured: Measured, p: int) -> Network:
    """Fit alpha and beta of T = 2 (p - 1) (alpha + n / (p beta)) to the all-reduces of p ranks."""
    seconds = np.array(measured.all_reduces[p])
    slope, start = np.polyfit(measured.messages, seconds, 1, w=1 / seconds)
    return Network(max(start, 1e-7) / (2 * (p - 1)), 2 * (p - 1) / p / max(slope, 1e-12))
