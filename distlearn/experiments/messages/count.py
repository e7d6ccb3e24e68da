"""What a collective sends: messages and bytes counted, and rounds, on simulated ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...comm import Network
from ...sim import SimWorld

ROUNDS = Network(alpha=1.0, contention="ports")
"""A network on which a message takes one second, whatever its size: seconds are rounds."""


class Counted(NamedTuple):
    """What was sent.

    Attributes
    ----------
    messages : int
    nbytes : int
    busiest : int
        Bytes that the rank with the most traffic sends and receives.
    rounds : float
        Messages that had to wait for each other, one after another.
    """

    messages: int
    nbytes: int
    busiest: int
    rounds: float

    @classmethod
    def of(cls, world: SimWorld) -> Counted:
        """Count the last run of a world."""
        sent = world.trace.messages
        traffic = [sum(m.nbytes for m in sent if rank in (m.source, m.dest)) for rank in range(world.size)]
        return cls(len(sent), sum(m.nbytes for m in sent), max(traffic), world.makespan)


def counted(all_reduce, size: int, n: int) -> Counted:
    """Count what an all-reduce sends.

    Parameters
    ----------
    all_reduce : callable
        `all_reduce(comm, x)`.
    size : int
        Number of ranks.
    n : int
        Elements of x, of 8 bytes each.

    Examples
    --------
    >>> from distlearn.comm.collectives import ring_all_reduce
    >>> counted(ring_all_reduce, 4, 1000)
    Counted(messages=24, nbytes=48000, busiest=24000, rounds=6.0)
    """
    world = SimWorld(size, ROUNDS)
    world.run(lambda comm: all_reduce(comm, np.ones(n)) is None)
    return Counted.of(world)
