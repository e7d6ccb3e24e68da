"""Communicators without messages.

`LocalComm` is for a single process: collectives return what they are given, and there is no other rank to send to.
`DisconnectedComm` is for ranks without a connection: they know their rank and size, and any attempt to communicate
raises an error that says what is missing.
"""

from __future__ import annotations

import pickle

from ..trace import WallClock
from .base import BaseComm, check_report
from .protocol import ANY, CommError, DoneWork, ignore_report


class LocalComm(BaseComm):
    """The `Communicator` of one rank, without MPI: the same checks, the wall clock, no messages."""

    rank = 0
    size = 1

    def __init__(self, clock=None, report=None):
        self.clock = WallClock() if clock is None else clock
        self._report = ignore_report if report is None else report

    def report(self, step, total, **values):
        """Pass the progress on."""
        check_report(0, step, total)
        self._report(step, total, **values)

    def __repr__(self) -> str:
        return "LocalComm()"

    # between two ranks: there is no second one, so the base class refuses every `dest` and every `source` but ANY
    def _recv_obj(self, source, tag):
        assert source == ANY
        raise ValueError("rank 0: recv_obj(source=ANY) on a communicator of one rank: no other rank can send")

    def _iall_reduce(self, call, x, op):
        return DoneWork(x)

    def _ireduce_scatter(self, call, x, op):
        return DoneWork(x.reshape(-1).copy())

    def _all_gather(self, call, x):
        return x[None].copy()

    def _broadcast(self, call, x, root):
        return x

    def _scatter(self, call, x, out, root):
        out[...] = x[0]
        return out

    def _gather(self, call, x, root):
        return x[None].copy()

    def _all_to_all(self, call, x):
        return x.copy()

    def _barrier(self, call):
        pass

    def _broadcast_obj(self, call, obj, root):
        return pickle.loads(pickle.dumps(obj, protocol=5))  # a copy, as between ranks

    def _gather_obj(self, call, obj, root):
        return [self._broadcast_obj(call, obj, root)]

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
