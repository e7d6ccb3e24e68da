"""A run of a parameter server as events: its arrivals, one by one, without a network and without gradients.

Some 100,000 arrivals a second. A test checks that simulated ranks, which send real messages, give the same events, bit
for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from distlearn.bounds import check_positive
from distlearn.parallel.asynchronous.param_server import PolicyState, Speeds
from distlearn.parallel.asynchronous.param_server.policy import check_policy


@dataclass
class Events:
    """The gradients of one run, in the order of their arrival."""

    policy: str
    workers: int
    worker: np.ndarray
    step: np.ndarray
    used: np.ndarray
    version: np.ndarray
    staleness: np.ndarray
    time: np.ndarray

    def __len__(self) -> int:
        return len(self.time)

    @property
    def updates(self) -> int:
        return int(self.version.max(initial=0))

    @property
    def dropped(self) -> int:
        return int((self.version == 0).sum())

    @property
    def seconds(self) -> float:
        return float(self.time.max(initial=0.0))

    @property
    def throughput(self) -> float:
        return self.updates / self.seconds

    @property
    def gradients_per_second(self) -> float:
        """Gradients that were applied, per second, until the first worker found no step left to do."""
        # What comes after that says more about the last steps of a few than about the policy.
        last = max(0, len(self) - self.workers - 1)
        return int((self.version[: last + 1] > 0).sum()) / float(self.time[last])

    def histogram(self) -> np.ndarray:
        """Return how many applied gradients had staleness 0, 1, 2, ..."""
        return np.bincount(self.staleness[self.version > 0])

    def __repr__(self) -> str:
        stale = self.staleness[self.version > 0]
        mean = f"{stale.mean():.3g}" if len(stale) else "none"
        return (
            f"Events({self.policy}, {self.workers} workers: {self.updates} updates in {self.seconds:.3g} s, "
            f"mean staleness {mean}, {self.dropped} dropped)"
        )


def simulate(policy, speeds: Speeds, steps: int, until: float = np.inf) -> Events:
    """Simulate a run, arrival by arrival.

    Parameters
    ----------
    steps : int
        Gradients to compute, per worker, on average.
    until : float
        When it is broken off: what has not arrived by then is in no update [s].

    Examples
    --------
    >>> from distlearn.parallel.asynchronous.param_server import ssp
    >>> simulate(ssp(2), Speeds(1000, law="pareto"), steps=10)
    Events(SSP(2), 1000 workers: 10000 updates in 244 s, mean staleness 623, 0 dropped)
    """
    check_policy("simulate", policy)
    check_positive("simulate", steps=steps)
    n, total_steps = speeds.workers, steps * speeds.workers
    state, used, given = PolicyState(policy, n), [0] * n, n
    rows, open_rows = [], {}  # a gradient's version is filled in when its update comes

    def merge(gradients) -> None:
        for gradient in gradients:
            row = open_rows.pop((gradient.worker, gradient.step))
            row[3], row[4] = state.version, state.version - 1 - gradient.used

    calendar = [(speeds(w, 0), w) for w in range(n)]
    heapify(calendar)
    while calendar and calendar[0][0] <= until:
        now, worker = heappop(calendar)
        step = state.clocks[worker]
        decision = state.arrive(worker, used[worker])
        rows.append([worker, step, used[worker], 0, decision.staleness, now])
        if decision.taken:
            open_rows[worker, step] = rows[-1]
        merge(decision.merged)
        ready = list(decision.released)
        while ready:
            w = ready.pop(0)
            if given < total_steps:
                given += 1
                used[w] = state.version
                heappush(calendar, (now + speeds(w, state.clocks[w]), w))
            else:
                farewell = state.leave(w)
                merge(farewell.merged)
                ready += farewell.released
    return Events(str(policy), n, *(np.array(column) for column in zip(*rows, strict=True)))
