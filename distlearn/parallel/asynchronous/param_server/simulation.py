r"""The event simulation on arrays: a step of all workers, or a round of the server, at a time.

Policies without waiting for updates (ASP, SSP, soft-sync). Let F(c, w) be when worker w ends its step c, T(c, w) how
long that takes, and b the lead that the policy allows. A step begins when the worker's last one has ended and the
slowest worker has done c - b steps:

.. math:: F(c, w) = \max\bigl(F(c-1, w),\ \max_v F(c-b-1, v)\bigr) + T(c, w)

That is one operation on arrays for all workers, and gives everything but the order of events, which comes from
sorting them.

Policies whose workers wait for updates (BSP, backup workers) go round by round. An update comes when the quorum-th
gradient of the current version is in: a sort. Late gradients are dropped when they arrive; their workers start
again, and may still be in time for the same update.

Why this exists beside `parallel.play` and `play` below: 10,000 workers take some 100 steps each, and the course's
figures repeat that for several policies and seeds. On one core this makes 3 to 6 million events a second; the common
`play_queues` makes 0.6 million where no step waits for another worker and nothing has to be sorted, and `play`, which
asks `PolicyState` about every arrival, 0.15 million. The goal is one million (`tests/benchmarks/bench_async.py`).
Tests check that all three give the same events, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

from ....nn.layer import check_positive
from .policy import PolicyState, check_policy
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


def play(policy, speeds: Speeds, steps: int, *, state: RunState | None = None) -> Events:
    """Play a run, arrival by arrival, without a network and without gradients."""
    n, total_steps = speeds.workers, steps * speeds.workers
    state = state or initial_state(speeds)
    policy_state = PolicyState(policy, n, state.version, state.step.tolist())
    used, given = state.used.tolist(), state.given
    rows, open_rows = [], {}  # a gradient's version is filled in when its update comes

    def merge(gradients) -> None:
        for gradient in gradients:
            version, row = policy_state.version, open_rows.pop((gradient.worker, gradient.step))
            row[3], row[4] = version, version - 1 - gradient.used

    calendar = list(zip(state.finish.tolist(), range(n), strict=True))
    heapify(calendar)
    while calendar:
        now, worker = heappop(calendar)
        step = policy_state.clocks[worker]
        decision = policy_state.arrive(worker, used[worker])
        rows.append([worker, step, used[worker], 0, decision.staleness, now])
        if decision.taken:
            open_rows[worker, step] = rows[-1]
        merge(decision.merged)
        ready = list(decision.released)
        while ready:
            w = ready.pop(0)
            if given < total_steps:
                given += 1
                used[w] = policy_state.version
                heappush(calendar, (now + speeds(w, policy_state.clocks[w]), w))
            else:
                farewell = policy_state.leave(w)
                merge(farewell.merged)
                ready += farewell.released
    return Events(str(policy), n, *(np.array(column) for column in zip(*rows, strict=True)))


def initial_state(speeds: Speeds) -> RunState:
    """Return the initial state of a run: all workers compute at version 0."""
    n = speeds.workers
    zeros = np.zeros(n, np.int64)
    return RunState(speeds.wave(0).copy(), zeros, zeros.copy(), 0, n)


def simulate(policy, speeds: Speeds, steps: int) -> Events:
    """Simulate a run: the same events as `play`, at millions of them per second.

    Parameters
    ----------
    steps : int
        Gradients to compute, per worker, on average.

    Examples
    --------
    >>> from distlearn.parallel.asynchronous.param_server import ssp
    >>> simulate(ssp(2), Speeds(10_000, law="pareto"), steps=10)
    Events(SSP(2), 10000 workers: 100000 updates in 3.89e+03 s, mean staleness 6.59e+03, 0 dropped)
    """
    check_policy("simulate", policy)
    check_positive("simulate", steps=steps)
    # The library's policies run on arrays of workers, and so does any other that never waits for updates and drops
    # nothing, or that waits for updates and lets all workers start then. The rest are played one by one.
    far = 1 << 40
    if policy.waits and policy.may_start(far):
        return _rounds(policy, speeds, steps)
    if not policy.waits and policy.takes(far):
        return _free_running(policy, speeds, steps)
    return play(policy, speeds, steps)


def _free_running(policy, speeds: Speeds, steps: int) -> Events:
    """Simulate a policy under which no worker waits for an update and nothing is dropped."""
    n, total_steps = speeds.workers, steps * speeds.workers
    rate = 1 / speeds.mean
    quickest = total_steps * float(rate.max() / rate.sum())  # steps of the fastest worker, roughly, if none waits
    waves = int(1.05 * quickest) + 8
    event = None
    while event is None:
        finish, cause, complete = _waves(policy, speeds, waves)
        if n + int((finish < complete).sum()) >= total_steps:  # else too few: add waves before sorting
            event, place = _choose(finish, cause, total_steps, complete)
        waves += max(8, waves // 4)
    quorum = policy.quorum(n)
    version = np.arange(total_steps) // quorum + 1  # every `quorum` arrivals make an update
    why = cause.reshape(-1)[event]
    # the version after the arrival that let the step begin
    used = np.where(why < 0, 0, (place[np.maximum(why, 0)] + 1) // quorum)
    return Events(str(policy), n, event % n, event // n, used, version, version - 1 - used, finish.reshape(-1)[event])


def _waves(policy, speeds: Speeds, waves: int):
    """Compute when steps end, and which event let each begin."""
    n = speeds.workers
    allowed = np.asarray(policy.may_start(np.arange(waves + 1)))
    bound = waves if allowed.all() else int(np.argmin(allowed)) - 1
    finish, cause = np.empty((waves, n)), np.empty((waves, n), np.int64)
    finish[0], cause[0] = speeds.wave(0), -1
    workers = np.arange(n)
    for c in range(1, waves + 1):
        begin, why = finish[c - 1], (c - 1) * n + workers
        if c > bound:
            gate = finish[c - bound - 1]
            last = n - 1 - int(np.argmax(gate[::-1]))  # the slowest worker; of equal ones, the one served last
            held = (begin < gate[last]) | ((begin == gate[last]) & (workers < last))
            begin, why = np.where(held, gate[last], begin), np.where(held, (c - bound - 1) * n + last, why)
        if c < waves:
            np.add(begin, speeds.wave(c), out=finish[c])
            cause[c] = why
    return finish, cause, float(begin.min())


def _choose(finish, cause, total_steps: int, complete: float):
    """Pick the first `total_steps` steps to begin; None if more waves must be computed first."""
    flat, n = finish.reshape(-1), finish.shape[1]
    order = _by_time(flat, np.arange(len(flat)) % n)
    place = np.empty(len(flat), np.int64)
    place[order] = np.arange(len(flat))
    why = cause.reshape(-1)
    starts = np.where(why < 0, -1, place[np.maximum(why, 0)])  # number of the arrival that let each step begin
    begun = np.cumsum(np.bincount(starts + 1, minlength=len(flat) + 1))  # steps begun by each arrival
    last = int(np.searchsorted(begun, total_steps))  # the arrival at which total_steps run out
    if last > len(flat) or (last and flat[order[last - 1]] >= complete):
        return None, place
    begins = starts < last - 1
    at_last = np.flatnonzero(starts == last - 1)
    if last:  # the longest-waiting worker goes first
        at_last = at_last[np.argsort(place[at_last - n])]
    begins[at_last[: total_steps - int(begins.sum())]] = True
    return order[begins[order]], place


def _by_time(times, workers):
    """Return the order of arrivals: by time, and at the same time by worker."""
    order = np.argsort(times)
    ordered = times[order]
    return np.lexsort((workers, times)) if (ordered[1:] == ordered[:-1]).any() else order


def _rounds(policy, speeds: Speeds, steps: int) -> Events:
    """Simulate a policy under which workers wait for the update that their gradient is in."""
    n, total_steps = speeds.workers, steps * speeds.workers
    quorum, state, table = policy.quorum(n), initial_state(speeds), _Table(speeds)
    parts: list[tuple] = []
    while True:
        late = ~np.asarray(policy.takes(state.version - state.used))
        if state.given + quorum + int(late.sum()) > total_steps:  # more than a round can begin at most
            break
        parts += _round(state, late, quorum, table)
    if quorum == n and not late.any():  # the last round is like the others, except that no worker continues
        used, stale = state.used, state.version - state.used
        parts.append((np.arange(n), state.step, used, np.full(n, state.version + 1), stale, state.finish))
    else:
        rest = play(policy, speeds, steps, state=state)
        parts.append((rest.worker, rest.step, rest.used, rest.version, rest.staleness, rest.time))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = _by_time(columns[5], columns[0])
    return Events(str(policy), n, *(column[order] for column in columns))


def _round(state: RunState, late, quorum: int, table: _Table) -> list[tuple]:
    """Simulate one update; return (worker, step, used, version, staleness, time) of gradients dropped and used."""
    used, step, version = state.used, state.step, state.version
    workers, arrival = np.arange(len(used)), state.finish.copy()
    if late.any():  # a late worker's next gradient is of the current version
        arrival[late] += table(step[late] + 1, workers[late])
    order = _by_time(arrival, workers)
    merged, last = order[:quorum], order[quorum - 1]
    now = arrival[last]
    gone = np.flatnonzero(late & ((state.finish < now) | ((state.finish == now) & (workers < last))))
    nothing = np.zeros(len(gone), np.int64)
    dropped = (gone, step[gone], used[gone], nothing, version - used[gone], state.finish[gone])
    step[gone] += 1
    used[gone], state.finish[gone] = version, arrival[gone]
    made = np.full(quorum, version + 1)
    taken = (merged, step[merged], used[merged], made, version - used[merged], arrival[merged])
    step[merged] += 1
    used[merged] = state.version = version + 1
    state.finish[merged] = now + table(step[merged], merged)
    state.given += len(gone) + quorum
    return [dropped, taken]


class _Table:
    """Durations by (step, worker), drawn as far as they are needed."""

    def __init__(self, speeds: Speeds):
        self._speeds, self._rows = speeds, speeds.table(16)

    def __call__(self, step, worker):
        have, need = len(self._rows), int(step.max(initial=0)) + 1
        if need > have:
            more = [self._speeds.wave(c) for c in range(have, max(need, 2 * have))]
            self._rows = np.concatenate([self._rows, more])
        return self._rows[step, worker]
