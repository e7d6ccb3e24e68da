"""Whole runs without arrays: who pushed when, of which version, and who waited. For up to tens of thousands of workers.

`play` asks `PolicyState` about one arrival after another, in the order of time: slow, for any policy, the reference.
`simulate` gives the same events, bit for bit, from a few operations on arrays of workers (`simulation`), wherever
the policy is of a kind that allows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from .coordinator import PolicyState
from .speeds import Speeds


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
        """Time of the last arrival."""
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


@dataclass
class RunState:
    """The state of a run just after an event, when all workers compute."""

    finish: np.ndarray
    used: np.ndarray
    step: np.ndarray
    version: int
    given: int


@dataclass
class _Log:
    """Rows of events; versions of gradients that wait for their update are filled in later."""

    rows: list[list] = field(default_factory=list)
    open: dict[tuple[int, int], list] = field(default_factory=dict)

    def add(self, now, worker, step, used, decision, version) -> None:
        """Write an arrival down, and the update that it completes."""
        row = [worker, step, used, 0, decision.staleness, now]
        self.rows.append(row)
        if decision.taken:
            self.open[worker, step] = row
        self.close(decision.merged, version)

    def close(self, merged, version: int) -> None:
        """Fill in which version gradients have made."""
        for gradient in merged:
            row = self.open.pop((gradient.worker, gradient.step))
            row[3], row[4] = version, version - 1 - gradient.used

    def events(self, policy, workers: int) -> Events:
        columns = [np.array(column) for column in zip(*self.rows, strict=True)] if self.rows else [np.zeros(0, int)] * 6
        return Events(str(policy), workers, *columns)


def play(policy, speeds: Speeds, steps: int, *, state: RunState | None = None) -> Events:
    """Play a run, arrival by arrival, without a network and without gradients."""
    n, total_steps = speeds.workers, steps * speeds.workers
    state = state or initial_state(speeds)
    policy_state, log = PolicyState(policy, n, state.version, state.step.tolist()), _Log()
    used, given = state.used.tolist(), state.given
    calendar = list(zip(state.finish.tolist(), range(n), strict=True))
    heapify(calendar)
    while calendar:
        now, worker = heappop(calendar)
        step = policy_state.clocks[worker]
        decision = policy_state.arrive(worker, used[worker])
        log.add(now, worker, step, used[worker], decision, policy_state.version)
        ready = list(decision.released)
        while ready:
            w = ready.pop(0)
            if given < total_steps:
                given += 1
                used[w] = policy_state.version
                heappush(calendar, (now + speeds(w, policy_state.clocks[w]), w))
            else:
                farewell = policy_state.leave(w)
                log.close(farewell.merged, policy_state.version)
                ready += farewell.released
    return log.events(policy, n)


def initial_state(speeds: Speeds) -> RunState:
    """Return the initial state of a run: all workers compute at version 0."""
    n = speeds.workers
    zeros = np.zeros(n, np.int64)
    return RunState(speeds.wave(0).copy(), zeros, zeros.copy(), 0, n)
