"""Communicators without messages.

`LocalComm` is that of a lone process: collectives return what they are given; there is nobody to send to. `NoComm` is
that of ranks which nothing connects: they know their number, and any attempt to communicate says what is missing.
"""

from __future__ import annotations

import pickle

from ..trace import WallClock
from .protocol import (
    ANY,
    CommError,
    DoneWork,
    check_buffer,
    check_deal,
    check_op,
    check_output,
    check_peer,
    check_reducible,
    check_root,
    check_rows,
    ignore_report,
)


class LocalComm:
    """The `Communicator` of one rank, without MPI: the same checks, the wall clock, no messages.

    Parameters
    ----------
    clock : Clock, optional
        A new wall clock by default.
    report : callable, optional
        Gets `comm.report(step, total, **values)`.

    Examples
    --------
    >>> import numpy as np
    >>> LocalComm().all_reduce(np.array([2.0, 3.0]))
    array([2., 3.])
    """

    rank = 0
    size = 1

    def __init__(self, clock=None, report=None):
        self.clock = WallClock() if clock is None else clock
        self.report = ignore_report if report is None else report

    def __repr__(self) -> str:
        return "LocalComm()"

    # -- between two ranks: there is no second one, and `check_peer` says so -------------------------------------------
    def isend(self, x, dest, tag=0):
        """Raise: there is nobody to send to."""
        check_peer("dest", dest, 0, 1)

    def irecv(self, out, source, tag=0):
        """Raise: there is nobody to receive from."""
        check_peer("source", source, 0, 1)

    send = isend
    recv = irecv
    send_obj = isend

    def send_recv(self, x, dest, out, source, tag=0):
        """Raise: there is nobody to exchange with."""
        check_peer("dest", dest, 0, 1)

    def recv_obj(self, source=ANY, tag=0):
        """Raise: there is nobody to receive from."""
        if source == ANY:
            raise ValueError("rank 0: recv_obj(source=ANY) on a communicator of one rank: nobody can send to it")
        check_peer("source", source, 0, 1)

    # -- all ranks: this one -------------------------------------------------------------------------------------------
    def all_reduce(self, x, op="sum"):
        """Return `x`."""
        check_op(op, 0)
        check_output("all_reduce", x, 0)
        check_reducible("all_reduce", x, op, 0)
        return x

    def iall_reduce(self, x, op="sum"):
        """Return a handle that is done and holds `x`."""
        return DoneWork(self.all_reduce(x, op))

    def reduce_scatter(self, x, op="sum"):
        """Return a flat copy of `x`."""
        check_op(op, 0)
        check_buffer("reduce_scatter", x, 0)
        check_reducible("reduce_scatter", x, op, 0)
        return x.reshape(-1).copy()

    def ireduce_scatter(self, x, op="sum"):
        """Return a handle that is done and holds that copy."""
        return DoneWork(self.reduce_scatter(x, op))

    def all_gather(self, x):
        """Return a copy of `x` with an axis of length 1 in front."""
        check_buffer("all_gather", x, 0)
        return x[None].copy()

    def broadcast(self, x, root=0):
        """Return `x`."""
        check_root(root, 0, 1)
        check_buffer("broadcast", x, 0)
        return x

    def scatter(self, x, out, root=0):
        """Copy the one row of `x` into `out`."""
        check_root(root, 0, 1)
        check_deal("scatter", x, out, 0, 1)
        out[...] = x[0]
        return out

    def gather(self, x, root=0):
        """Return a copy of `x` with an axis of length 1 in front."""
        check_root(root, 0, 1)
        check_buffer("gather", x, 0)
        return x[None].copy()

    def all_to_all(self, x):
        """Return a copy of `x`, which has one row."""
        check_rows("all_to_all", x, 0, 1)
        return x.copy()

    def barrier(self):
        """Do nothing: everybody is here."""

    def broadcast_obj(self, obj, root=0):
        """Return a copy of `obj`, pickled and unpickled as between ranks."""
        check_root(root, 0, 1)
        return pickle.loads(pickle.dumps(obj, protocol=5))

    def gather_obj(self, obj, root=0):
        """Return a list of a copy of `obj`."""
        return [self.broadcast_obj(obj, root)]

    def split(self, color, key=0):
        """Return a communicator of this rank, or None for color None."""
        return None if color is None else LocalComm(self.clock, self.report)


class NoComm:
    """A rank among others without anything to reach them by: for work that needs no messages.

    Parameters
    ----------
    rank, size : int
    clock : Clock
    report : callable
    why : str
        Ends the error message of every operation.
    """

    def __init__(self, rank, size, clock, report, why: str):
        self.rank, self.size, self.clock, self.report, self._why = rank, size, clock, report, why

    def __repr__(self) -> str:
        return f"NoComm(rank {self.rank} of {self.size})"

    def __getattr__(self, name):
        if not hasattr(LocalComm, name):
            raise AttributeError(f"NoComm has no attribute {name!r}")
        raise CommError(f"rank {self.rank}: {name} needs a connection between the ranks: {self._why}")
