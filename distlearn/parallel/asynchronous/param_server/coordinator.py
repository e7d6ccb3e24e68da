"""The coordinator: the first server counts versions and steps, applies the policy, and commands every server.

gradient arrives --> taken or dropped? --> enough for an update? --> who may start now?

`PolicyState` is a parameter server without parameters: apart from any array, so that one piece of code decides in the
real server and in the reference event simulation, and so that it can be tested a million times. `Coordinator` adds what
a run needs: how long it lasts, the weights of gradients, the log.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from ....comm.base import CommError
from ....nn.layer import check_positive
from .messages import Command, Push
from .policy import check_policy


class Pending(NamedTuple):
    """A gradient that was accepted and waits for its update."""

    worker: int
    step: int
    """Which of the worker's steps gave it, from 0."""
    used: int
    """The version that it was computed at."""


class Decision(NamedTuple):
    """What the server does because of one arrival."""

    taken: bool
    """False: the gradient is dropped."""
    staleness: int
    """Server version - version used, on arrival."""
    merged: tuple[Pending, ...]
    """The gradients that make the new version; empty if there is none yet."""
    released: tuple[int, ...]
    """Workers that may start their next step now."""


class PolicyError(RuntimeError):
    """A policy lets no worker continue."""


class PolicyState:
    """Versions, steps, and who waits.

    Staleness is the server's version when a gradient is applied, less the version that it was computed at. While the
    server is at version 100, a gradient of version 97 has staleness 3, and the update makes version 101:
    W(101) = W(100) - lr dW(97).

    Parameters
    ----------
    workers : int
        All of them are computing.
    version : int
        Initial version.
    clocks : list of int, optional
        By worker: steps done before.

    Attributes
    ----------
    version : int
        Updates so far.
    clocks : list of int
        By worker: steps done.
    active : set of int
        Workers that have not left.
    slowest : int
        Steps done by the slowest active worker.
    dropped : int
        Gradients not taken so far.

    Examples
    --------
    >>> from distlearn.parallel.asynchronous.param_server import ssp
    >>> state = PolicyState(ssp(1), 2)
    >>> state.arrive(0, used=0).released, state.arrive(0, used=1).released       # worker 0 is 2 steps ahead: waits
    ((0,), ())
    >>> state.arrive(1, used=0)
    Decision(taken=True, staleness=2, merged=(Pending(worker=1, step=0, used=0),), released=(0, 1))
    """

    def __init__(self, policy, workers: int, version: int = 0, clocks: list[int] | None = None):
        check_positive("PolicyState", workers=workers)
        check_policy("PolicyState", policy)
        self.policy = policy
        self.version, self.dropped = version, 0
        self.clocks = [0] * workers if clocks is None else list(clocks)
        self.slowest = min(self.clocks)
        self.active = set(range(workers))
        self._workers_at = dict(Counter(self.clocks))  # how many active workers have done so many steps
        self._pending: list[Pending] = []
        self._bound: set[int] = set()  # workers that wait for the update their gradient will be in
        self._waiting: dict[int, None] = {}  # in order of arrival

    @property
    def quorum(self) -> int:
        """How many gradients make an update now."""
        # Where workers wait for updates, those that have left are not waited for; what is held when the last one leaves
        # makes a last, smaller update.
        if not self.active:
            return 1
        return self.policy.quorum(len(self.active) if self.policy.waits else len(self.clocks))

    def arrive(self, worker: int, used: int) -> Decision:
        """Account for a gradient that `worker` computed at version `used`.

        Raises
        ------
        ValueError
            If the worker has left, may not be computing, or used a version that does not exist yet.
        PolicyError
            If all workers wait, and the policy releases none.
        """
        if worker not in self.active or worker in self._waiting:
            raise ValueError(f"PolicyState: a gradient from worker {worker}, which may not be computing one")
        if not 0 <= used <= self.version:
            raise ValueError(f"PolicyState: worker {worker} used version {used}, but the server is at {self.version}")
        staleness, step, slowest = self.version - used, self.clocks[worker], self.slowest
        self._move(worker, step + 1)
        self._waiting[worker] = None
        taken = bool(self.policy.takes(staleness))
        if taken:
            self._pending.append(Pending(worker, step, used))
            if self.policy.waits:
                self._bound.add(worker)
        else:
            self.dropped += 1
        merged = self._merge()
        candidates = self._waiting if merged or self.slowest > slowest else (worker,)
        return Decision(taken, staleness, merged, self._release(candidates))

    def waits(self, worker: int) -> bool:
        """Whether the worker waits until it may start, rather than computes."""
        return worker in self._waiting

    def leave(self, worker: int) -> Decision:
        """Account for a worker that ended or died: none waits for it; a gradient that it pushed still counts."""
        if worker not in self.active:
            raise ValueError(f"PolicyState: worker {worker} has left already")
        slowest = self.slowest
        self._move(worker, None)
        self.active.discard(worker)
        self._waiting.pop(worker, None)
        merged = self._merge()
        candidates = self._waiting if merged or self.slowest > slowest else ()
        return Decision(True, 0, merged, self._release(candidates))

    def _move(self, worker: int, clock: int | None) -> None:
        """Count a step of a worker, or (None) take it out of the count; update the slowest worker's count."""
        workers_at, old = self._workers_at, self.clocks[worker]
        workers_at[old] -= 1
        if clock is not None:
            self.clocks[worker] = clock
            workers_at[clock] = workers_at.get(clock, 0) + 1
        while self.slowest in workers_at and not workers_at[self.slowest]:
            del workers_at[self.slowest]
            if workers_at:
                self.slowest = min(workers_at) if self.slowest + 1 not in workers_at else self.slowest + 1

    def _merge(self) -> tuple[Pending, ...]:
        """Make an update of the gradients held, if they are enough for the workers that are left."""
        if not self._pending or len(self._pending) < self.quorum:
            return ()
        merged, self._pending = tuple(self._pending), []
        self._bound.clear()
        self.version += 1
        return merged

    def _release(self, candidates) -> tuple[int, ...]:
        """Find the waiting workers that may start, in the order in which they arrived."""
        policy, bound, clocks, slowest = self.policy, self._bound, self.clocks, self.slowest
        released = tuple(w for w in candidates if w not in bound and policy.may_start(clocks[w] - slowest))
        for worker in released:
            del self._waiting[worker]
        if self.active and len(self._waiting) == len(self.active):
            raise PolicyError(
                f"policy {policy} releases no worker: all {len(self.active)} workers wait, "
                f"{len(self._pending)} gradients are pending, {self.quorum} make an update"
            )
        return released


class Coordinator:
    """Decides, on the first server: applies the policy, and turns arrivals into commands."""

    def __init__(self, clock, report, workers: int, policy, rate, max_gradients: float, seconds: float):
        self.clock, self.report, self.rate = clock, report, rate
        self.policy_state = PolicyState(policy, workers)
        self.log: list[tuple] = []  # rows of `run.GRADIENT`, as gradients are applied or dropped
        self._held: dict[tuple[int, int], tuple] = {}  # (worker, step) -> push and time of arrival, until applied
        self.max_gradients, self.began, self._seconds = max_gradients, clock.now(), seconds
        self._given = workers  # every worker's first step
        self._stopped: set[int] = set()  # workers that may not start another step
        self._lost = 0  # workers that were lost before
        self._loss = math.nan
        self.diverged = False

    def handle_push(self, push: Push) -> Command:
        """Turn a gradient that has arrived into a command."""
        now = self.clock.now()
        decision = self.policy_state.arrive(push.worker, push.used)
        if not math.isfinite(push.loss):
            self.diverged = True
        if decision.taken:
            self._held[push.worker, push.step] = push, now
        else:
            dropped = push.worker, push.step, push.used, 0, decision.staleness, push.rows, now, now, push.loss, 0.0
            self.log.append(dropped)
        return self._command(push.worker, push.step, decision, now)

    def handle_leave(self, worker: int) -> Command:
        """Turn the end of a worker into a command."""
        decision = self.policy_state.leave(worker)
        return self._command(None, 0, decision._replace(taken=False), self.clock.now())

    def handle_loss(self, worker: int) -> Command:
        """Turn the loss of a worker into a command; another worker may do the step that it was computing."""
        if worker not in self._stopped:
            self._lost += 1
            self._given -= not self.policy_state.waits(worker)
        return self.handle_leave(worker)

    def check_ended(self, what: str) -> None:
        """Raise if training ended because the last worker was lost, and not because the run was over."""
        if self._lost == len(self.policy_state.clocks):
            raise CommError(
                f"{what}: all {self._lost} workers are lost, after {self.policy_state.version} updates; "
                "none is left to train"
            )

    def _command(self, arrived, step, decision, now: float) -> Command:
        merged = self._weigh(decision.merged, now) if decision.merged else ()
        released = tuple((worker, self._may_go_on(now)) for worker in decision.released)
        self._stopped.update(worker for worker, go in released if not go)
        state = self.policy_state
        return Command(arrived, step, decision.taken, merged, state.version, released, self._loss, not state.active)

    def _weigh(self, merged, now: float):
        """Weigh the gradients of an update by their samples, and by their staleness."""
        version, weighed = self.policy_state.version, []
        held = [self._held.pop((gradient.worker, gradient.step)) for gradient in merged]
        rows = sum(push.rows for push, _ in held)
        self._loss = sum(push.rows * push.loss for push, _ in held) / rows if rows else math.nan
        for push, arrived in held:
            staleness = version - 1 - push.used
            factor = self.rate(staleness, version - 1)
            share = push.rows / max(1, rows) if len(held) > 1 else 1.0
            weighed.append((push.worker, push.step, factor * share))
            row = push.worker, push.step, push.used, version, staleness, push.rows, arrived, now, push.loss, factor
            self.log.append(row)
        total = len(self.log) if self.max_gradients == math.inf else self.max_gradients
        self.report(len(self.log), total, loss=self._loss, version=version)
        return tuple(weighed)

    def _may_go_on(self, now: float) -> bool:
        """Whether a worker may do one more step: the run is not over, and gradients are left to compute."""
        if self.diverged or now >= self.began + self._seconds or self._given >= self.max_gradients:
            return False
        self._given += 1
        return True
