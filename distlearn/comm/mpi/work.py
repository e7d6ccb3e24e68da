"""Handles of MPI operations under way: `Work` over a request.

A request's buffers must live until MPI is done with them, also when the user's code was interrupted meanwhile or never
waits. So every handle stays in its communicator's `Activity` until its request is complete.
"""

from __future__ import annotations

import time

from ..protocol import CommError


class Activity:
    """What a rank has under way, on a communicator and all that were split from it.

    Attributes
    ----------
    pending : set of MPIWork
    waits_for : object or None
        What the rank is blocked in; printing it says what that is. Stays when the wait is broken off.
    on_wait : callable or None
        Called as `on_wait(waits_for, nbytes, seconds)`, again and again, while the rank naps in a wait, and as
        `on_wait(None, 0, 0.0)` when a wait is over.
    """

    def __init__(self):
        self.pending: set[MPIWork] = set()
        self.waits_for = None
        self.on_wait = None

    def poke(self, seconds: float = 0.0) -> None:
        """Let MPI move data, for about so long: asking for any one operation moves all of them."""
        until = time.perf_counter() + seconds
        while self.pending:
            next(iter(self.pending)).done()
            if time.perf_counter() >= until:
                break


class MPIWork:
    """One operation under way: an MPI request, what it is for, and what to do when it is done.

    Parameters
    ----------
    comm : MPIComm
    name : str or None
        Name of its span; None records none.
    nbytes : int
    start : float
        When it began, on the communicator's clock.
    request : mpi4py.MPI.Request
    finish : callable, optional
        Called once when the request is done; returns the operation's result.
    """

    __slots__ = ("_comm", "_error", "_finish", "_name", "_nbytes", "_request", "_result", "_start")

    def __init__(self, comm, name, nbytes, start, request, finish=None):
        self._comm, self._name, self._nbytes = comm, name, nbytes
        self._start, self._request, self._finish = start, request, finish
        self._result = self._error = None
        comm.activity.pending.add(self)

    def __str__(self) -> str:
        return f"{self._call()} of {self._nbytes} bytes" if self._nbytes else self._call()

    def _call(self) -> str:
        return self._name

    def _test(self) -> bool:
        return self._request.Test()

    def _explain(self, error):
        """Return the exception that a user should see for one that MPI raised."""
        if hasattr(error, "Get_error_string"):
            return CommError(f"rank {self._comm.rank}: {self} failed: {error.Get_error_string()}")
        return error

    def done(self) -> bool:
        """Say whether it is done, without blocking."""
        if self._request is None:
            return True
        try:
            if not self._test():
                return False
            self._result = self._finish() if self._finish else None
        except Exception as error:  # raised in wait(), every time
            self._error = self._explain(error)
        self._request = self._finish = None  # let go of the buffers
        self._comm.activity.pending.discard(self)
        if self._name:
            self._comm.record(self._name, self._start, self._nbytes)
        return True

    def wait(self):
        """Block until it is done; return its result."""
        if not self.done():
            self._comm.block(self.done, self, self._nbytes)
        if self._error is not None:
            raise self._error
        return self._result


class SendWork(MPIWork):
    """A send under way."""

    __slots__ = ("_dest", "_tag")

    def __init__(self, comm, name, nbytes, start, request, dest, tag):
        super().__init__(comm, name, nbytes, start, request)
        self._dest, self._tag = dest, tag

    def _call(self) -> str:
        return f"{self._name or 'send'}(dest={self._dest}, tag={self._tag})"


class RecvWork(MPIWork):
    """A receive under way: a message of any other size than the buffer's is an error, not cut and not half a buffer."""

    __slots__ = ("_out", "_source", "_status", "_tag")

    def __init__(self, comm, name, start, request, out, finish, source, tag):
        super().__init__(comm, name, out.nbytes, start, request, finish)
        self._out, self._source, self._tag, self._status = out, source, tag, comm.mpi.Status()

    def _call(self) -> str:
        return f"{self._name or 'recv'}(source={self._source}, tag={self._tag})"

    def _test(self) -> bool:
        if not self._request.Test(self._status):
            return False
        nbytes = self._status.Get_count(self._comm.mpi.BYTE)
        if nbytes != self._nbytes:
            raise self._wrong_size(f"{nbytes} bytes")
        return True

    def _explain(self, error):
        mpi = self._comm.mpi
        if isinstance(error, mpi.Exception) and error.Get_error_class() == mpi.ERR_TRUNCATE:
            return self._wrong_size(f"more than {self._nbytes} bytes")
        return super()._explain(error)

    def _wrong_size(self, found: str) -> ValueError:
        out = self._out
        return ValueError(
            f"rank {self._comm.rank}: recv(source={self._source}, tag={self._tag}) expected {out.size} {out.dtype}, "
            f"but the message holds {found}"
        )
