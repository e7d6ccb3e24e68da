"""`LocalComm`, for a single process: collectives return what they are given, and there is no rank to send to."""

from __future__ import annotations

from ..trace import WallClock
from .base import ANY, ignore_report
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
