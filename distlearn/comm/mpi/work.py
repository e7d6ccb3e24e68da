"""Handles of MPI operations in progress: `Work` over a request.

A request's buffers must live until MPI is done with them, even if the user's code was interrupted meanwhile or never
waits. So every handle stays in its communicator's `Activity` until its request is complete.
"""

from __future__ import annotations

import time
from collections import defaultdict

from ...backend import same_bytes
from ..protocol import CommError

LOOK_SECONDS = 0.02
"""Time between two probes for a message of another kind than the awaited one [s]."""
ABANDONED: list = []
"""Requests that may never complete, with their buffers: a message that arrives late is still written there."""


class Activity:
    """A rank's operations in progress, on a communicator and all that were split from it."""

    def __init__(self):
        self.pending: set[MPIWork] = set()
        self.unwaited: set[MPIWork] = set()
        self.parts: list = []  # communicators that were split off
        self.copies: dict = defaultdict(list)  # arrays to copy into, by shape and dtype: new memory is slow
        self.waits_for = None
        self.on_wait = None

    def make_progress(self, seconds: float = 0.0) -> None:
        """Let MPI move data for about `seconds`: testing any one operation advances all of them."""
        until = time.perf_counter() + seconds
        while self.pending:
            next(iter(self.pending)).test()
            if time.perf_counter() >= until:
                break


class MPIWork:
    """One operation in progress: an MPI request, what it is for, and what to do when it is done."""

    __slots__ = (
        "_agreement",
        "_comm",
        "_error",
        "_finish",
        "_name",
        "_nbytes",
        "_request",
        "_result",
        "_start",
        "site",
    )

    def __init__(self, comm, name, nbytes, start, request, finish=None, agreement=None):
        self._comm, self._name, self._nbytes = comm, name, nbytes
        self._start, self._request, self._finish = start, request, finish
        self._agreement, self.site = agreement, None
        self._result = self._error = None
        comm.activity.pending.add(self)

    def __str__(self) -> str:
        return f"{self._call()} of {self._nbytes} bytes" if self._nbytes else self._call()

    def _call(self) -> str:
        return self._name or "a message"

    @property
    def rank(self) -> int:
        """The rank that started it."""
        return self._comm.rank

    def give_back(self, copy) -> None:
        """Let the next call use the memory of an array that `copy` of the communicator made."""
        self._comm.activity.copies[copy.shape, copy.dtype].append(copy)

    def started_at(self, site):
        """Note that a call on the user's line `site` returned this; it must be waited for."""
        self.site = site
        self._comm.activity.unwaited.add(self)
        return self

    def _test(self) -> bool:
        return self._request.Test()

    def _explain(self, error):
        """Return the exception that a user should see for one that MPI raised."""
        if hasattr(error, "Get_error_string"):
            return CommError(f"rank {self._comm.rank}: {self} failed: {error.Get_error_string()}")
        return error

    def test(self) -> bool:
        """Let MPI move data; say whether the operation is done."""
        if self._request is None:
            return True
        try:
            if self._agreement is not None:
                # the calls are compared first: MPI may raise its own error for calls that differ
                if not self._agreement.done():
                    return False
                self._agreement = None
            if not self._test():
                return False
            self._result = self._finish() if self._finish else None
        except Exception as error:  # raised in wait(), every time
            self._error = self._explain(error)
            if self._agreement is not None:  # MPI continues the operation: its buffers must stay
                ABANDONED.append((self._request, self._finish))
        self._request = self._finish = self._agreement = None  # let go of the buffers
        self._comm.activity.pending.discard(self)
        if self._name:
            self._comm.record(self._name, self._start, self._nbytes)
        return True

    def done(self) -> bool:
        """Return whether it is done, without blocking."""
        if not self.test():
            return False
        self._comm.activity.unwaited.discard(self)
        return True

    def wait(self):
        """Block until it is done; return its result."""
        self._comm.activity.unwaited.discard(self)
        if not self.test():
            self._comm.block(self.test, self, self._nbytes)
        if self._error is not None:
            raise self._error
        return self._result


class GuardedWork:
    """An operation on a copy of the array `x`, with which `wait` compares it: it must not change in between."""

    __slots__ = ("_before", "_name", "_result", "_work", "_x")

    def __init__(self, work: MPIWork, name: str, x, before, result=None):
        self._work, self._name, self._x, self._before, self._result = work, name, x, before, result

    def done(self) -> bool:
        """Return whether it is done, without blocking."""
        return self._work.done()

    def wait(self):
        """Block until it is done; return its result."""
        found = self._work.wait()
        if self._before is not None:
            if not same_bytes(self._x, self._before):
                who = f"rank {self._work.rank}"
                raise CommError(f"{who}: the array given to {self._name} was changed before wait() ({self._work.site})")
            if self._result is not None:
                self._x[...] = self._result
                self._work.give_back(self._result)
            self._work.give_back(self._before)
            self._before = None
        return found if self._result is None else self._x


class SendWork(MPIWork):
    """A send in progress."""

    __slots__ = ("_dest", "_tag")

    def __init__(self, comm, name, nbytes, start, request, dest, tag):
        super().__init__(comm, name, nbytes, start, request)
        self._dest, self._tag = dest, tag

    def _call(self) -> str:
        return f"{self._name or 'send'}(dest={self._dest}, tag={self._tag})"


class RecvWork(MPIWork):
    """A receive in progress: a message whose size differs from the buffer's, longer or shorter, is an error."""

    __slots__ = ("_look", "_next_look", "_out", "_source", "_status", "_tag")

    def __init__(self, comm, name, start, request, out, finish, source, tag, look):
        super().__init__(comm, name, out.nbytes, start, request, finish)
        self._out, self._source, self._tag, self._status = out, source, tag, comm.mpi.Status()
        self._look, self._next_look = look, time.perf_counter() + LOOK_SECONDS

    def _call(self) -> str:
        return f"{self._name or 'recv'}(source={self._source}, tag={self._tag})"

    def _test(self) -> bool:
        if not self._request.Test(self._status):
            if time.perf_counter() > self._next_look:
                try:
                    self._look()
                except ValueError:
                    ABANDONED.append((self._request, self._finish))
                    raise
                self._next_look = time.perf_counter() + LOOK_SECONDS
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
