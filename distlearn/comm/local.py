"""Communicators without messages.

`LocalComm` is for a single process: collectives return what they are given, and there is no other rank to send to.
`DisconnectedComm` is for ranks without a connection: they know their rank and size, and any attempt to communicate
raises an error that says what is missing.
"""

from __future__ import annotations

from ..trace import WallClock
from .base import ANY, CommError, ignore_report
from .point_to_point import PointToPoint


class LocalComm(PointToPoint):
    """The `Communicator` of one rank, without MPI: the same checks, the wall clock, no messages."""

    rank = 0
    size = 1

    def __init__(self, clock=None, report=None):
        self.clock = WallClock() if clock is None else clock
        self._report = ignore_report if report is None else report

    def __repr__(self) -> str:
        return "LocalComm()"

    # between two ranks: there is no second one, so the base class refuses every `dest` and every `source` but ANY
    def _recv_obj(self, source, tag):
        assert source == ANY
        raise ValueError("rank 0: recv_obj(source=ANY) on a communicator of one rank: no other rank can send")

    def _split(self, call, color, key):
        return None if color is None else LocalComm(self.clock, self._report)


class DisconnectedComm:
    """A rank without a connection to the others: for work that needs no messages."""

    def __init__(self, rank, size, clock, report, why: str):
        self.rank, self.size, self.clock, self.report, self._why = rank, size, clock, report, why

    def __repr__(self) -> str:
        return f"DisconnectedComm(rank {self.rank} of {self.size})"

    def abort(self) -> None:
        """Do nothing: no operation is in progress."""

    def __getattr__(self, name):
        if not hasattr(LocalComm, name):
            raise AttributeError(f"DisconnectedComm has no attribute {name!r}")
        raise CommError(f"rank {self.rank}: {name} needs a connection between the ranks: {self._why}")
