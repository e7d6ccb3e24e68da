"""Handles of a simulated rank's operations in progress: `Work` over an event."""

from __future__ import annotations

from ..backend import same_bytes
from ..comm.base import call_site
from ..comm.protocol import CommError


class SimWork:
    """A handle on an event, for one rank, which must wait for it."""

    __slots__ = ("_comm", "_event", "rank", "site")

    def __init__(self, comm, event, site=None):
        self._comm, self._event, self.rank = comm, event, comm.rank
        self.site = call_site() if site is None else site
        comm._transport.unwaited[self] = None

    def __str__(self) -> str:
        return self._event.waiting(self._comm._fibre)

    def _wait(self) -> None:
        self._comm._transport.unwaited.pop(self, None)
        self._comm._transport.wait_for(self._comm._fibre, self._event)

    def done(self) -> bool:
        """Return whether it is done; the call takes a moment of virtual time."""
        self._comm._poll(self._event)
        if self._event.when is None or self._event.when > self._comm._fibre.now:
            return False
        self._comm._transport.unwaited.pop(self, None)
        return True


class SendWork(SimWork):
    """A send in progress."""

    __slots__ = ("_eager", "_snapshot", "_x")

    def __init__(self, comm, op, eager, x=None):
        super().__init__(comm, op)
        self._eager, self._x = eager, x
        self._snapshot = None if x is None else x.copy()
        if eager:
            comm._transport.unwaited.pop(self)

    def wait(self) -> None:
        """Block until it is received."""
        if not self._eager:
            self._wait()
        if self._snapshot is not None and not same_bytes(self._x, self._snapshot):
            call = self._event.shown()
            raise CommError(f"rank {self.rank}: the array given to i{call} was changed before wait() ({self.site})")
        self._snapshot = None

    def done(self) -> bool:
        """Return whether it is done; the call takes a moment of virtual time."""
        return super().done() or self._eager


class RecvWork(SimWork):
    """A receive in progress."""

    __slots__ = ()

    def wait(self):
        """Block until the data is there; return the buffer."""
        self._wait()
        return self._event.out


class CollectiveWork(SimWork):
    """A collective in progress whose array `x` must not change before `wait`, which checks it."""

    __slots__ = ("_call", "_result", "_snapshot", "_x")

    def __init__(self, comm, event, call, x, snapshot):
        super().__init__(comm, event, call.site)
        self._call, self._x, self._snapshot, self._result = call, x, snapshot, None

    def __str__(self) -> str:
        return f"{self._call.name} of {self._x.nbytes} bytes"

    def wait(self):
        """Block until it has ended; return what the collective returns."""
        if self._snapshot is None:
            return self._result  # waited for before
        self._wait()
        if not same_bytes(self._x, self._snapshot):
            name = self._call.name
            raise CommError(f"rank {self.rank}: the array given to i{name} was changed before wait() ({self.site})")
        self._result, self._snapshot = self._event.results[self.rank], None
        if self._call.name == "all_reduce":
            self._x[...] = self._result
            self._result = self._x
        return self._result
