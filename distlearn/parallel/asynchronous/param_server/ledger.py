"""The ledger: a parameter server without parameters. It counts versions and steps, and applies the policy.

gradient arrives --> taken or dropped? --> enough for an update? --> who may start now?

The server's memory of who did what is apart from its arrays, so that one piece of code decides in the real server, in
the client that serves engines, and in the reference event simulation; and so that it can be tested a million times.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from .policy import check_policy


class Held(NamedTuple):
    """A gradient that was taken and waits for its update."""

    worker: int
    step: int
    """Which of the worker's steps gave it, from 0."""
    used: int
    """The version that it was computed at."""


class Verdict(NamedTuple):
    """What the server does because of one arrival."""

    taken: bool
    """False: the gradient is dropped."""
    staleness: int
    """Server version - version used, on arrival."""
    merged: tuple[Held, ...]
    """The gradients that make the new version; empty if there is none yet."""
    released: tuple[int, ...]
    """Workers that may start their next step now."""


class PolicyError(RuntimeError):
    """A policy lets nobody go on."""


class Ledger:
    """Versions, steps, and who waits.

    Staleness is the server's version when a gradient is applied, less the version that it was computed at. While the
    server is at version 100, a gradient of version 97 has staleness 3, and the update makes version 101:
    W(101) = W(100) - lr dW(97).

    Parameters
    ----------
    policy : Policy
    workers : int
        All of them are computing.
    version : int
        To begin with.
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
    >>> ledger = Ledger(ssp(1), 2)
    >>> ledger.arrive(0, used=0).released, ledger.arrive(0, used=1).released       # worker 0 is 2 steps ahead: waits
    ((0,), ())
    >>> ledger.arrive(1, used=0)
    Verdict(taken=True, staleness=2, merged=(Held(worker=1, step=0, used=0),), released=(0, 1))
    """

    def __init__(self, policy, workers: int, version: int = 0, clocks: list[int] | None = None):
        if not (hasattr(workers, "__index__") and workers >= 1):
            raise ValueError(f"Ledger: workers is {workers!r}, expected a whole number, 1 or more")
        check_policy("Ledger", policy)
        self.policy = policy
        self.version, self.dropped = version, 0
        self.clocks = [0] * workers if clocks is None else list(clocks)
        self.slowest = min(self.clocks)
        self.active = set(range(workers))
        self._crowd = dict(Counter(self.clocks))  # how many active workers stand at each clock
        self._held: list[Held] = []
        self._bound: set[int] = set()  # workers that wait for the update their gradient will be in
        self._waiting: dict[int, None] = {}  # in order of arrival

    @property
    def quorum(self) -> int:
        """How many gradients make an update now.

        Where workers wait for updates, those that have left are not waited for; what is held when the last one leaves
        makes a last, smaller update.
        """
        if not self.active:
            return 1
        return self.policy.quorum(len(self.active) if self.policy.waits else len(self.clocks))

    def arrive(self, worker: int, used: int) -> Verdict:
        """Account for a gradient that `worker` computed at version `used`.

        Returns
        -------
        verdict : Verdict

        Raises
        ------
        ValueError
            If the worker has left, has no leave to be computing, or used a version that does not exist yet.
        PolicyError
            If now everybody waits, and the policy lets nobody go on.
        """
        if worker not in self.active or worker in self._waiting:
            raise ValueError(f"Ledger: a gradient from worker {worker}, which has no leave to compute one")
        if not 0 <= used <= self.version:
            raise ValueError(f"Ledger: worker {worker} used version {used}, but the server is at {self.version}")
        staleness, step, slowest = self.version - used, self.clocks[worker], self.slowest
        self._move(worker, step + 1)
        self._waiting[worker] = None
        taken = bool(self.policy.takes(staleness))
        if taken:
            self._held.append(Held(worker, step, used))
            if self.policy.waits:
                self._bound.add(worker)
        else:
            self.dropped += 1
        merged = self._merge()
        candidates = self._waiting if merged or self.slowest > slowest else (worker,)
        return Verdict(taken, staleness, merged, self._release(candidates))

    def waits(self, worker: int) -> bool:
        """Say whether the worker waits for leave to start, rather than computes."""
        return worker in self._waiting

    def leave(self, worker: int) -> Verdict:
        """Let a worker go: it ended, or died. Nobody waits for it any more; a gradient that it gave still counts."""
        if worker not in self.active:
            raise ValueError(f"Ledger: worker {worker} has left already")
        slowest = self.slowest
        self._move(worker, None)
        self.active.discard(worker)
        self._waiting.pop(worker, None)
        merged = self._merge()
        candidates = self._waiting if merged or self.slowest > slowest else ()
        return Verdict(True, 0, merged, self._release(candidates))

    def _move(self, worker: int, clock: int | None) -> None:
        """Put a worker's clock forward, or take the worker out of the crowd; find out where the slowest stands."""
        crowd, old = self._crowd, self.clocks[worker]
        crowd[old] -= 1
        if clock is not None:
            self.clocks[worker] = clock
            crowd[clock] = crowd.get(clock, 0) + 1
        while self.slowest in crowd and not crowd[self.slowest]:
            del crowd[self.slowest]
            if crowd:
                self.slowest = min(crowd) if self.slowest + 1 not in crowd else self.slowest + 1

    def _merge(self) -> tuple[Held, ...]:
        """Make an update of the gradients held, if they are enough for the workers that are left."""
        if not self._held or len(self._held) < self.quorum:
            return ()
        merged, self._held = tuple(self._held), []
        self._bound.clear()
        self.version += 1
        return merged

    def _release(self, candidates) -> tuple[int, ...]:
        """Find who of the waiting may start, in the order in which they came."""
        policy, bound, clocks, slowest = self.policy, self._bound, self.clocks, self.slowest
        released = tuple(w for w in candidates if w not in bound and policy.may_start(clocks[w] - slowest))
        for worker in released:
            del self._waiting[worker]
        if self.active and len(self._waiting) == len(self.active):
            raise PolicyError(
                f"policy {policy} lets nobody go on: all {len(self.active)} workers wait, "
                f"{len(self._held)} gradients are held, {self.quorum} make an update"
            )
        return released
