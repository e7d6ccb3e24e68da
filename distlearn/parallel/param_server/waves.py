r"""The event simulation on arrays: a step of all workers, or a round of the server, at a time.

Policies without waiting for updates (ASP, SSP, soft-sync). Let F(c, w) be when worker w ends its step c, T(c, w) how
long that takes, and b the lead that the policy allows. A step begins when the worker's last one has ended and the
slowest worker has done c - b steps:

.. math:: F(c, w) = \max\bigl(F(c-1, w),\ \max_v F(c-b-1, v)\bigr) + T(c, w)

That is one operation on arrays for all workers, and says everything but the order of events, for which they are sorted.

Policies whose workers wait for updates (BSP, backup workers) go round by round. An update comes when the quorum-th
gradient of the current version is in: a sort. Late gradients are dropped when they come; their workers begin anew, and
may still be in time for the same update.
"""

from __future__ import annotations

import numpy as np

from .events import Events, play, start
from .speeds import Speeds


def free_running(policy, speeds: Speeds, steps: int) -> Events:
    """Simulate a policy under which nobody waits for an update and nothing is dropped."""
    n, tickets = speeds.workers, steps * speeds.workers
    rate = 1 / speeds.mean
    quickest = tickets * float(rate.max() / rate.sum())  # steps that the quickest does, about, if nobody waits
    waves = int(1.05 * quickest) + 8
    while True:
        finish, cause, complete = _waves(policy, speeds, waves)
        chosen, place = _choose(finish, cause, tickets, complete)
        if chosen is not None:
            break
        waves += max(8, waves // 4)
    order = place[
        chosen
    ]  # arrivals so far before each: with the chosen ones alone there are no gaps up to the last start
    rank = np.empty(tickets, np.int64)
    by_time = np.argsort(order)
    rank[by_time] = np.arange(tickets)
    event = chosen[by_time]
    quorum = policy.quorum(n)
    version = np.arange(tickets) // quorum + 1
    why = cause.reshape(-1)[event]
    used = np.where(why < 0, 0, (place[np.maximum(why, 0)] + 1) // quorum)
    return Events(str(policy), n, event % n, event // n, used, version, version - 1 - used, finish.reshape(-1)[event])


def _waves(policy, speeds: Speeds, waves: int):
    """Compute when steps end, and which event let each begin.

    Returns
    -------
    finish : (waves, workers) array
    cause : (waves, workers) array of int
        Flat index of the arrival that let the step begin; -1 for the first.
    complete : float
        No step that is left out begins before that time.
    """
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
            last = n - 1 - int(np.argmax(gate[::-1]))  # of those that come last, the one that is served last
            held = (begin < gate[last]) | ((begin == gate[last]) & (workers < last))
            begin, why = np.where(held, gate[last], begin), np.where(held, (c - bound - 1) * n + last, why)
        if c < waves:
            np.add(begin, speeds.wave(c), out=finish[c])
            cause[c] = why
    return finish, cause, float(begin.min())


def _choose(finish, cause, tickets: int, complete: float):
    """Pick the steps that get a ticket; None if more waves must be computed first.

    Returns
    -------
    chosen : (tickets,) array of int, or None
        Flat indices of the steps.
    place : array of int
        By flat index: how many arrivals come before.
    """
    flat, n = finish.reshape(-1), finish.shape[1]
    order = _by_time(flat, np.arange(len(flat)) % n)
    place = np.empty(len(flat), np.int64)
    place[order] = np.arange(len(flat))
    why = cause.reshape(-1)
    starts = np.where(why < 0, -1, place[np.maximum(why, 0)])  # number of the arrival that let each step begin
    begun = np.cumsum(np.bincount(starts + 1, minlength=len(flat) + 1))  # steps begun by each arrival
    last = int(np.searchsorted(begun, tickets))  # the arrival at which tickets run out
    if last > len(flat) or (last and flat[order[last - 1]] >= complete):
        return None, place
    chosen = np.flatnonzero(starts < last - 1)
    at_last = np.flatnonzero(starts == last - 1)
    if last:  # who waited longest goes first
        at_last = at_last[np.argsort(place[at_last - n])]
    return np.concatenate([chosen, at_last[: tickets - len(chosen)]]), place


def _by_time(times, workers):
    """Return the order of arrivals: by time, and at the same time by worker."""
    order = np.argsort(times)
    ordered = times[order]
    return np.lexsort((workers, times)) if (ordered[1:] == ordered[:-1]).any() else order


def rounds(policy, speeds: Speeds, steps: int) -> Events:
    """Simulate a policy under which workers wait for the update that their gradient is in."""
    n, tickets = speeds.workers, steps * speeds.workers
    quorum, workers, flight, table = policy.quorum(n), np.arange(n), start(speeds), _Table(speeds)
    parts: list[tuple] = []
    while flight.given + 2 * n <= tickets:
        used, version = flight.used, flight.version
        late = ~np.asarray(policy.takes(version - used))
        arrival = flight.finish.copy()
        if late.any():
            arrival[late] += table(flight.step[late] + 1, workers[late])
        order = np.argsort(arrival, kind="stable")
        merged, last = order[:quorum], order[quorum - 1]
        now = arrival[last]
        gone = late & ((flight.finish < now) | ((flight.finish == now) & (workers < last)))
        dropped = np.flatnonzero(gone)
        zeros = np.zeros(len(dropped), np.int64)
        parts.append(
            (dropped, flight.step[dropped], used[dropped], zeros, version - used[dropped], flight.finish[dropped])
        )
        flight.step[dropped] += 1
        used[dropped] = version
        flight.finish[dropped] = arrival[dropped]
        stale = version - used[merged]
        made = np.full(quorum, version + 1)
        parts.append((merged, flight.step[merged].copy(), used[merged].copy(), made, stale, arrival[merged]))
        flight.step[merged] += 1
        used[merged] = flight.version = version + 1
        flight.finish[merged] = now + table(flight.step[merged], merged)
        flight.given += len(dropped) + quorum
    rest = play(policy, speeds, steps, flight=flight)
    parts.append((rest.worker, rest.step, rest.used, rest.version, rest.staleness, rest.time))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = _by_time(columns[5], columns[0])
    return Events(str(policy), n, *(column[order] for column in columns))


class _Table:
    """Durations by (step, worker), drawn as far as they are needed."""

    def __init__(self, speeds: Speeds):
        self._speeds, self._rows = speeds, speeds.table(16)

    def __call__(self, step, worker):
        """Return the seconds of steps, by arrays of step and worker."""
        have, need = len(self._rows), int(step.max(initial=0)) + 1
        if need > have:
            more = [self._speeds.wave(c) for c in range(have, max(need, 2 * have))]
            self._rows = np.concatenate([self._rows, more])
        return self._rows[step, worker]
