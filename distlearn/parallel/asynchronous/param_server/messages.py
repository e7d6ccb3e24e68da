"""Messages between workers and servers; arrays are sent separately."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HEADER_BYTES = 32
"""A reply begins with a header: version, continue or not (int64), loss (float64), and 8 unused bytes."""


class Push(NamedTuple):
    """From a worker to every server: a gradient; this server's share of it follows as an array."""

    worker: int
    step: int
    used: int
    rows: int
    loss: float


class Leave(NamedTuple):
    """From a worker to the coordinator: it will send no more."""

    worker: int


class Lost(NamedTuple):
    """What a server gets instead of a message: workers that were lost and will send no more."""

    workers: tuple[int, ...]


class Command(NamedTuple):
    """From the coordinator to the other servers: what to do about an arrival. All execute the same commands, in order.

    Then all shares have the same version at all times, and the results do not depend on the number of servers.
    """

    arrived: int | None
    """The worker whose gradient this is about; None where one left."""
    step: int
    taken: bool
    merged: tuple[tuple[int, int, float], ...]
    """(worker, step, weight) of the gradients that make the new version."""
    version: int
    """After the command."""
    released: tuple[tuple[int, bool], ...]
    """(worker, continue?): the workers that get the parameters now."""
    loss: float
    """Of the newest update."""
    end: bool
    """Whether this is the last command."""


class Reply:
    """A server's reply to a worker: header and share of the parameters in one message."""

    def __init__(self, n: int, dtype):
        self.buffer = np.zeros(HEADER_BYTES + n * np.dtype(dtype).itemsize, np.uint8)
        self._ints = self.buffer[:16].view(np.int64)
        self._loss = self.buffer[16:24].view(np.float64)
        self.share = self.buffer[HEADER_BYTES:].view(dtype)

    @classmethod
    def of(cls, share, version: int, go: bool, loss: float) -> Reply:
        reply = cls(share.size, share.dtype)
        reply._ints[:] = version, go
        reply._loss[0] = loss
        reply.share[...] = share
        return reply

    @property
    def version(self) -> int:
        return int(self._ints[0])

    @property
    def go(self) -> bool:
        """Whether the worker should do another step."""
        return bool(self._ints[1])

    @property
    def loss(self) -> float:
        return float(self._loss[0])
