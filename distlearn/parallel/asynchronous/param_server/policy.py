"""Policies: when a worker may start its next step, and what the server does with a gradient that arrives.

A policy is a small object without state. Four questions decide everything, and they are asked by the real server
and (with arrays of workers) by the event simulation:

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
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, Protocol

from ....nn.layer import check_positive


class Policy(Protocol):
    """What the server asks; `takes` and `may_start` also answer for whole arrays."""

    name: str
    waits: bool
    """Whether a worker whose gradient was taken waits until it is in an update."""

    def quorum(self, workers: int) -> int:
        """Return how many gradients make an update, with so many workers in training."""

    def takes(self, staleness):
        """Say whether a gradient is taken that was computed `staleness` versions ago; else it is dropped."""

    def may_start(self, lead):
        """Say whether a worker may start that has done `lead` steps more than the slowest one."""


@dataclass(frozen=True)
class ASP:
    """Asynchronous: every gradient is its own update, at once, and no worker waits.

    References
    ----------
    J. Dean et al. (2012), Large scale distributed deep networks, NeurIPS, section 4.1 (Downpour SGD).
    """

    waits: ClassVar[bool] = False
    name: ClassVar[str] = "ASP"

    def quorum(self, workers):
        return 1

    def takes(self, staleness):
        return staleness >= 0

    def may_start(self, lead):
        return lead >= 0

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
        if not (hasattr(self.bound, "__index__") and self.bound >= 0):
            raise ValueError(f"ssp: bound is {self.bound!r}, expected a whole number of steps, 0 or more")

    @property
    def name(self) -> str:
        return f"SSP({self.bound})"

    def may_start(self, lead):
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

    def quorum(self, workers):
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

    def quorum(self, workers):
        return workers


@dataclass(frozen=True)
class Backup(BSP):
    """Synchronous with backup workers: an update once a share of the gradients is in; late ones are dropped."""

    share: float

    def __post_init__(self):
        if not (isinstance(self.share, Real) and 0 < self.share <= 1):
            raise ValueError(f"backup: share is {self.share!r}, expected a share of the gradients, 0 < share <= 1")

    @property
    def name(self) -> str:
        return f"backup({self.share:.3g})"

    def quorum(self, workers):
        return max(1, math.ceil(self.share * workers - 1e-9))  # 0.55 * 100 is a little more than 55

    def takes(self, staleness):
        return staleness == 0


def check_policy(what: str, policy) -> None:
    """Raise unless `policy` implements `Policy`."""
    if isinstance(policy, type) or not all(hasattr(policy, name) for name in ("waits", "quorum", "takes", "may_start")):
        name = getattr(policy, "__name__", None)
        hint = f": write {name.lower()}(...)" if name else ""
        raise TypeError(f"{what}: policy is {policy!r}, expected an object such as asp() or ssp(4){hint}")


asp, bsp, ssp, softsync, backup = ASP, BSP, SSP, SoftSync, Backup  # as a run names them: `ssp(4)`
