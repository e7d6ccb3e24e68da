"""Failures as parameters of a simulated world: which rank fails when, how, and for how long.

Four kinds: a rank is *killed* (its process ends), *hangs* (it runs no further, as under SIGSTOP), is *cut* off (it
runs, but no message reaches it or leaves it), or is *slow*. A failure shorter than the detection time
is only a delay, which no rank notices. A longer one makes the detector tell the others that the rank is lost; this is
final, even if the rank recovers: it would otherwise continue work that the others have abandoned.

There is one detector for all ranks, like a cluster manager: it never errs, all ranks learn of a loss at the same
moment, and a rank that is cut off from the others is cut off from the detector too, and so knows that it is lost.

    >>> from distlearn.sim import Failure, SimWorld
    >>> from distlearn.comm import PeerLostError
    >>> def survive(comm):
    ...     total = np.zeros(1)
    ...     try:
    ...         while True:
    ...             comm.clock.sleep(1.0)
    ...             comm.all_reduce(total)
    ...     except PeerLostError as error:
    ...         comm.revoke()
    ...         return error.ranks, comm.shrink().size, round(comm.clock.now(), 3)
    >>> SimWorld(3, failures=[Failure(rank=1, at=2.5)], detection=1.0).run(survive)
    [((1,), 2, 3.5), None, ((1,), 2, 3.5)]
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..scheduler import Fibre, GreenletExit

KINDS = ("kill", "hang", "cut", "slow")


@dataclass(frozen=True)
class Failure:
    """One failure of one rank of a simulated world.

    Parameters
    ----------
    rank : int
        Of the world.
    at : float
        When it begins [virtual s].
    kind : {"kill", "hang", "cut", "slow"}
    until : float
        When it ends [s]; never, by default. A kill never ends.
    factor : float
        How much slower "slow" computes.

    Examples
    --------
    >>> Failure(2, at=3.5, kind="hang", until=4.0)
    Failure(rank=2, at=3.5, kind='hang', until=4.0, factor=10.0)
    """

    rank: int
    at: float
    kind: str = "kill"
    until: float = math.inf
    factor: float = 10.0

    def __post_init__(self):
        if self.kind not in KINDS:
            raise ValueError(f"Failure: kind is {self.kind!r}, expected one of {', '.join(KINDS)}")
        if not self.at >= 0 or not self.until > self.at:
            raise ValueError(
                f"Failure of rank {self.rank}: from {self.at!r} until {self.until!r}, expected 0 <= at < until"
            )
        if not self.factor > 0:
            raise ValueError(f"Failure of rank {self.rank}: factor is {self.factor!r}, expected a number above 0")

    def is_noticed(self, detection: float) -> bool:
        """Return whether it lasts long enough for the rank to be declared lost, after `detection` seconds."""
        return self.kind == "kill" or (self.kind != "slow" and self.until - self.at > detection)


class Loss(NamedTuple):
    """A rank that was declared lost: how it failed, when, and when the others were told [s]."""

    rank: int
    kind: str
    at: float
    noticed: float

    def __str__(self) -> str:
        done = {"kill": "was killed", "hang": "hung", "cut": "was cut off"}[self.kind]
        return f"rank {self.rank} {done} at {self.at:.6g} s"


@dataclass(frozen=True)
class FailureSchedule:
    r"""Failures at random times: every node fails on its own, on average once in `mtbf` seconds.

    Parameters
    ----------
    mtbf : float
        Mean time between the failures of *one* node [s]; n nodes together fail n times as often.
    kinds : sequence of {"kill", "hang", "cut", "slow"}
        Possible failures, all equally likely.
    repair : float
        How long a hang, a cut and a slowness last [s].
    ranks_per_node : int
        A node fails with all its ranks.
    shape : float
        Of the Weibull distribution: 1 is the exponential (a node does not age); production machines are nearer to 0.7:
        their failures come in clusters.

    References
    ----------
    B. Schroeder, G. A. Gibson (2006), A large-scale study of failures in high-performance computing systems, DSN,
    section 5.

    Examples
    --------
    >>> schedule = FailureSchedule(mtbf=100.0, seed=1)
    >>> [f.rank for f in schedule.draw(4)] == [f.rank for f in schedule.draw(4)]
    True
    """

    mtbf: float
    seed: int = 0
    kinds: tuple[str, ...] = ("kill",)
    repair: float = math.inf
    ranks_per_node: int = 1
    shape: float = 1.0

    def __post_init__(self):
        for name in ("mtbf", "repair", "shape", "ranks_per_node"):
            if not getattr(self, name) > 0:
                raise ValueError(f"FailureSchedule: {name} is {getattr(self, name)!r}, expected a number above 0")
        if not self.kinds or set(self.kinds) - set(KINDS):
            raise ValueError(f"FailureSchedule: kinds are {self.kinds!r}, expected some of {', '.join(KINDS)}")

    def draw(self, size: int, horizon: float | None = None) -> list[Failure]:
        """Draw the failures of a world of `size` ranks, in the order of time.

        Parameters
        ----------
        horizon : float, optional
            All failures up to then [s]; by default the first one of every node.
        """
        found = []
        for node in range(-(-size // self.ranks_per_node)):
            ranks = range(node * self.ranks_per_node, min(size, (node + 1) * self.ranks_per_node))
            found += self._of_node(np.random.default_rng([self.seed, node]), ranks, horizon)
        return sorted(found, key=lambda f: (f.at, f.rank))

    def _of_node(self, rng, ranks, horizon) -> list[Failure]:
        """Draw one node's failures: until it is killed, past the horizon, or (without one) has failed once."""
        found, now = [], 0.0
        scale = self.mtbf / math.gamma(1 + 1 / self.shape)
        while True:
            now += scale * rng.weibull(self.shape)
            kind = str(rng.choice(self.kinds))
            if horizon is not None and now > horizon:
                return found
            until = math.inf if kind == "kill" else now + self.repair
            found += [Failure(rank, now, kind, until) for rank in ranks]
            if horizon is None or until == math.inf:
                return found
            now = until


class FailureTimeline:
    """The failure timeline of one rank: the times of everything that will go wrong on it."""

    def __init__(self, rank: int, failures: Iterable[Failure] = (), detection: float = 1.0):
        mine = sorted((f for f in failures if f.rank == rank), key=lambda f: f.at)
        noticed = [f for f in mine if f.is_noticed(detection)]
        self.rank = rank
        self.loss = Loss(rank, noticed[0].kind, noticed[0].at, noticed[0].at + detection) if noticed else None
        self.lost_at = self.loss.at if self.loss else math.inf
        self.noticed_at = self.loss.noticed if self.loss else math.inf
        gone = [f.at for f in mine if f.kind == "kill" or (f.kind == "hang" and f.until == math.inf)]
        self.ends_at = min(gone, default=math.inf)
        self.pauses = [(f.at, f.until) for f in mine if f.kind == "hang" and f.until < math.inf]
        self.cuts = [(f.at, f.until) for f in mine if f.kind == "cut"]
        slow = [(f.at, f.until, 1 / f.factor) for f in mine if f.kind == "slow"]
        self._windows = sorted(slow + [(start, end, 0.0) for start, end in self.pauses])  # with their speeds

    def apply(self, fibre: Fibre) -> None:
        """End the rank's fibre if the rank has been killed by now; move its clock on to the end of a hang."""
        if fibre.now >= self.ends_at:
            fibre.now = self.ends_at
            raise GreenletExit
        for start, end in self.pauses:
            if start <= fibre.now < end:
                fibre.now = end

    def finish(self, start: float, seconds: float) -> float:
        """Return when work of this many seconds that begins at `start` is done, or when the rank ends."""
        now, left = start, seconds
        for begin, end, rate in self._windows:
            if end <= now:
                continue
            if now < begin:
                if now + left <= begin:
                    break
                left -= begin - now
                now = begin
            if rate and now + left / rate <= end:
                return min(now + left / rate, self.ends_at)
            left -= (end - now) * rate
            now = end
        return min(now + left, self.ends_at)
