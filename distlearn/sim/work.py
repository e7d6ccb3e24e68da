"""Handles of a simulated rank's operations under way: `Work` over an event."""

from __future__ import annotations

from ..comm.protocol import CommError
from .meta import Phantom


class _SimWork:
    """A handle on an event, for one rank."""

    __slots__ = ("_comm", "_event")

    def __init__(self, comm, event):
        self._comm, self._event = comm, event

    def _wait(self) -> None:
        self._comm._post.wait_for(self._comm._fibre, self._event)

    def done(self) -> bool:
        """Look, which takes a moment of virtual time."""
        self._comm._poll(self._event)
        return self._event.when is not None and self._event.when <= self._comm._fibre.now


class SendWork(_SimWork):
    """A send under way.

    Parameters
    ----------
    comm : SimComm
    letter : Letter
    eager : bool
        The message is buffered: nobody waits for its receiver.
    x : array, optional
        Look at `wait` whether this array is still what it was.
    """

    __slots__ = ("_eager", "_snapshot", "_x")

    def __init__(self, comm, letter, eager, x=None):
        super().__init__(comm, letter)
        self._eager, self._x = eager, x
        self._snapshot = None if x is None else x.copy()

    def wait(self) -> None:
        """Block until it is received."""
        if not self._eager:
            self._wait()
        if self._snapshot is not None and not same_bytes(self._x, self._snapshot):
            call = self._event.shown()
            raise CommError(f"rank {self._comm.rank}: the array given to i{call} was changed before wait()")
        self._snapshot = None

    def done(self) -> bool:
        """Look, which takes a moment of virtual time."""
        return super().done() or self._eager


class RecvWork(_SimWork):
    """A receive under way."""

    __slots__ = ()

    def wait(self):
        """Block until the data is there; return the buffer."""
        self._wait()
        return self._event.out


class MeetingWork(_SimWork):
    """A collective under way; with `into`, the result is copied there."""

    __slots__ = ("_into", "_seq")

    def __init__(self, comm, meeting, seq, into=None):
        super().__init__(comm, meeting)
        self._seq, self._into = seq, into

    def wait(self):
        """Block until it has ended; return this rank's result."""
        comm, meeting = self._comm, self._event
        self._wait()
        result = meeting.results[comm.rank]
        meeting.left += 1
        if meeting.left == comm.size:
            del comm._post.meetings[comm._context, self._seq]
        if self._into is None:
            return result
        self._into[...] = result
        return self._into


class UntouchedWork:
    """A collective whose array must not change before `wait`: the simulator looks."""

    __slots__ = ("_result", "_snapshot", "_what", "_work", "_x", "done")

    def __init__(self, work, x, snapshot, what):
        self._work, self._x, self._snapshot, self._what, self._result = work, x, snapshot, what, None
        self.done = work.done

    def wait(self):
        """Block until it has ended; return what the collective returns."""
        if self._snapshot is None:
            return self._result  # waited for before
        if not same_bytes(self._x, self._snapshot):
            raise CommError(f"{self._what} was changed before wait()")
        self._snapshot, self._result = None, self._work.wait()
        return self._result


def same_bytes(x, y) -> bool:
    """Compare bit for bit, so that NaN equals itself."""
    return x.size == 0 or isinstance(x, Phantom) or bool((x.reshape(-1).view("u1") == y.reshape(-1).view("u1")).all())
