"""Policies: when a worker may start its next step, and how the server treats a gradient that arrives.

A policy is a small object without state. Four questions decide everything, and they are asked by the server,
and by the event simulation of lab 11:

============================  =======  ==========  =================  =============  ==============
                              ASP      SSP(s)      soft-sync(k)       BSP            backup(gamma)
============================  =======  ==========  =================  =============  ==============
how many gradients an update  1        1           workers // k       all            ceil(gamma n)
is a stale gradient taken?    yes      yes         yes                there is none  no
does its worker wait for it?  no       no          no                 yes            yes
how far ahead may one start?  any far  s steps     any far            (it waits)     (it waits)
============================  =======  ==========  =================  =============  ==============
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ....bounds import check_number, check_positive


@dataclass(frozen=True)
class ASP:
    """Asynchronous: every gradient is its own update, at once, and no worker waits.

    A policy of your own overrides some of its methods.

    References
    ----------
    J. Dean et al. (2012), Large scale distributed deep networks, NeurIPS, section 4.1 (Downpour SGD).
    """

    waits: ClassVar[bool] = False  # whether a worker whose gradient was taken waits until it is in an update
    name: ClassVar[str] = "ASP"

    def quorum(self, workers: int) -> int:
        """Return how many gradients make an update while `workers` are in training."""
        return 1

    def takes(self, staleness: int) -> bool:
        """Say whether a gradient is taken that was computed `staleness` versions ago; else it is dropped."""
        return True

    def may_start(self, lead: int) -> bool:
        """Say whether a worker may start that has done `lead` steps more than the slowest one."""
        return True

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class SSP(ASP):
    """Stale synchronous: asynchronous, but no worker starts more than `bound` steps ahead of the slowest.

    Parameters
    ----------
    bound : int
        s, 0 or more. During one step of a worker every other one can finish 2 s + 1 steps at most (from s behind to s
        ahead), so staleness is (2 s + 1) (workers - 1) at most. SSP(0) moves in lockstep, like BSP, but each of its
        gradients is its own update.

    References
    ----------
    Q. Ho et al. (2013), More effective distributed ML via a stale synchronous parallel parameter server, NeurIPS,
    section 2.
    """

    bound: int

    def __post_init__(self):
        check_number("ssp", whole=True, least=0, bound=self.bound)

    @property
    def name(self) -> str:
        return f"SSP({self.bound})"

    def may_start(self, lead: int) -> bool:
        return lead <= self.bound


@dataclass(frozen=True)
class SoftSync(ASP):
    """Soft synchronous: an update once a share of the gradients is in, but no worker waits for it."""

    splits: int = 1

    def __post_init__(self):
        check_positive("softsync", splits=self.splits)

    @property
    def name(self) -> str:
        return f"soft-sync({self.splits})"

    def quorum(self, workers: int) -> int:
        return max(1, workers // self.splits)


@dataclass(frozen=True)
class BSP(ASP):
    """Bulk synchronous: an update is the mean of all workers' gradients, and all wait for it. Equal to serial SGD.

    References
    ----------
    L. G. Valiant (1990), A bridging model for parallel computation, CACM 33(8).
    """

    waits: ClassVar[bool] = True
    name: ClassVar[str] = "BSP"

    def quorum(self, workers: int) -> int:
        return workers


@dataclass(frozen=True)
class Backup(BSP):
    """Synchronous with backup workers: an update once a share of the gradients is in; late ones are dropped."""

    share: float

    def __post_init__(self):
        check_number("backup", above=0, most=1, share=self.share)

    @property
    def name(self) -> str:
        return f"backup({self.share:.3g})"

    def quorum(self, workers: int) -> int:
        return max(1, math.ceil(self.share * workers - 1e-9))  # 0.55 * 100 is a little more than 55

    def takes(self, staleness: int) -> bool:
        return staleness == 0


def check_policy(what: str, policy) -> None:
    """Raise unless `policy` has the methods of a policy."""
    if isinstance(policy, type) or not all(hasattr(policy, name) for name in ("waits", "quorum", "takes", "may_start")):
        name = getattr(policy, "__name__", None)
        hint = f": write {name.lower()}(...)" if name else ""
        raise TypeError(f"{what}: policy is {policy!r}, expected an object such as asp() or ssp(4){hint}")


asp, bsp, ssp, softsync, backup = ASP, BSP, SSP, SoftSync, Backup  # as a run names them: `ssp(4)`


class Pending(NamedTuple):
    """A gradient that was accepted and waits for its update."""

    worker: int
    step: int  # which of the worker's steps gave it, from 0
    used: int  # the version that it was computed at


class Decision(NamedTuple):
    """The server's reaction to one arrival."""

    taken: bool  # False: the gradient is dropped
    staleness: int  # server version - version used, on arrival
    merged: tuple[Pending, ...]  # the gradients that make the new version; empty if there is none yet
    released: tuple[int, ...]  # workers that may start their next step now


class PolicyError(RuntimeError):
    """A policy lets no worker continue."""


class PolicyState:
    """Versions, steps, and who waits.

    Staleness is the server's version when a gradient is applied, less the version that it was computed at. While the
    server is at version 100, a gradient of version 97 has staleness 3, and the update makes version 101:
    W(101) = W(100) - lr dW(97).

    Attributes
    ----------
    version : int
        Updates so far.
    clocks : list of int
        By worker: steps done.
    active : set of int
        Workers that have not left.
    slowest, dropped : int
        Steps done by the slowest active worker; gradients not taken so far.

    Examples
    --------
    >>> from distlearn.parallel.asynchronous.param_server import ssp
    >>> state = PolicyState(ssp(1), 2)
    >>> state.arrive(0, used=0).released, state.arrive(0, used=1).released       # worker 0 is 2 steps ahead: waits
    ((0,), ())
    >>> state.arrive(1, used=0)
    Decision(taken=True, staleness=2, merged=(Pending(worker=1, step=0, used=0),), released=(0, 1))
    """

    def __init__(self, policy, workers: int):
        check_positive("PolicyState", workers=workers)
        check_policy("PolicyState", policy)
        self.policy = policy
        self.version = self.dropped = self.slowest = 0
        self.clocks = [0] * workers
        self.active = set(range(workers))
        self._workers_at = dict(Counter(self.clocks))  # steps done -> number of active workers
        self._pending: list[Pending] = []
        self._bound: set[int] = set()  # workers that wait for the update their gradient will be in
        self._waiting: dict[int, None] = {}  # in order of arrival

    @property
    def quorum(self) -> int:
        """How many gradients make an update now."""
        # Where workers wait for updates, those that have left do not count; gradients that are pending when the
        # last one leaves make a last, smaller update.
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
            raise ValueError(f"PolicyState: worker {worker} sent a gradient while it must wait, or after it has left")
        if not 0 <= used <= self.version:
            raise ValueError(f"PolicyState: worker {worker} used version {used}, but the server is at {self.version}")
        staleness, step, slowest = self.version - used, self.clocks[worker], self.slowest
        self._move(worker, step + 1)
        self._waiting[worker] = None
        taken = self.policy.takes(staleness)
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
            held = f"{len(self._pending)} gradients are pending, {self.quorum} make an update"
            raise PolicyError(f"policy {policy} releases no worker: all {len(self.active)} workers wait, {held}")
        return released


# -- staleness-aware learning rates ------------------------------------------------------------------------------------
# How much an old gradient still counts: `rate(staleness, step) -> factor`, 1 for a fresh gradient. The factor
# multiplies the gradient on its way into the update, not the whole step: with plain SGD that is the same as a smaller
# learning rate; with momentum the velocity, which fresh gradients have built, is left as it is.
#
# Momentum is kept on the server: one velocity, which all workers' gradients update.
# Asynchrony itself acts like momentum, of 1 - 1/n with n workers (Mitliagkas et al., 2016), so the explicit one
# should be smaller.


def constant(staleness: int, step: int) -> float:
    """Return 1: plain asynchronous SGD, in which an old gradient counts like a fresh one."""
    return 1.0


def inverse(staleness: int, step: int) -> float:
    r"""Divide by the staleness: :math:`\alpha_\tau = \alpha / \tau` for :math:`\tau > 0`.

    References
    ----------
    W. Zhang, S. Gupta, X. Lian, J. Liu (2016), Staleness-aware async-SGD for distributed deep learning, IJCAI.

    Examples
    --------
    >>> [inverse(staleness, 0) for staleness in (0, 1, 2, 4)]
    [1.0, 1.0, 0.5, 0.25]
    """
    return 1.0 / max(1, staleness)


RATES = {"constant": constant, "inverse": inverse}
"""Rates without parameters, by name."""
