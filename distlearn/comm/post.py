"""What simulated ranks share during a run: letters, posted receives, meetings, and the handles that wait for them.

The rule of time: a letter that leaves at t arrives at t + alpha + n / beta, and is received when it has arrived *and*
the receive has been posted; a synchronous send ends at that moment, too. A collective ends one network cost after the
last rank came to its meeting.

A letter, a slot and a meeting are *events*: their attribute `when` is None until it is settled at which virtual time
they happen. A fibre that waits for an event is blocked until then (`Post.wait_for`), and woken by `Post.settle`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from ..trace import Message
from .protocol import CommError
from .scheduler import Fibre, Scheduler, Waits

if TYPE_CHECKING:
    from .sim import SimWorld


class Letter:
    """A message on its way; it happens when it is received."""

    __slots__ = ("arrival", "nbytes", "payload", "sender", "sent", "seq", "source", "when")

    def __init__(self, source, sender, payload, nbytes, sent, arrival, seq):
        self.source, self.sender, self.payload, self.nbytes = source, sender, payload, nbytes
        self.sent, self.arrival, self.seq = sent, arrival, seq
        self.when = None


class Slot:
    """A posted receive; it happens when the data is there."""

    __slots__ = ("out", "posted", "problem", "waiter", "when")

    def __init__(self, out, posted, waiter):
        self.out, self.posted, self.waiter = out, posted, waiter
        self.when = None
        self.problem = None  # what was wrong with the message, raised in the receiver


class Meeting:
    """One collective call under way: who came, when, with what; it happens when all have come and it has ended."""

    __slots__ = ("came", "left", "results", "whats", "when")

    def __init__(self):
        self.came: dict[int, tuple[float, object]] = {}  # rank -> (time, payload)
        self.whats: dict[int, tuple] = {}  # rank -> the call's name and arguments, which must agree
        self.results = None  # by rank
        self.when = None
        self.left = 0


class Post:
    """What the ranks of one run share: letters, posted receives, meetings."""

    def __init__(self, world: SimWorld, scheduler: Scheduler):
        self.world, self.network, self.scheduler, self.trace = world, world.network, scheduler, world.trace
        self.letters = defaultdict(deque)  # (context, source, dest, tag) -> letters that wait for a receive
        self.slots = defaultdict(deque)  # the same key -> receives that wait for a letter
        self.objects = defaultdict(list)  # (context, dest, tag) -> pickled letters
        self.listeners = {}  # (context, dest, tag) -> (fibre, source) blocked in recv_obj
        self.meetings = defaultdict(Meeting)  # (context, sequence number)
        self.contexts = 0
        self.sequence = 0

    def new_context(self) -> int:
        """Number a new communicator: messages of different ones never meet."""
        self.contexts += 1
        return self.contexts

    def letter(self, fibre: Fibre, source, dest_fibre, payload, nbytes, tag) -> Letter:
        """Put a message on the wire: the sender's network card sends one after another."""
        start = fibre.now if fibre.now > fibre.nic_free else fibre.nic_free
        seconds = self.network.message(nbytes)
        fibre.nic_free = start + seconds - self.network.alpha
        self.sequence += 1
        arrival = start + seconds
        self.trace.messages.append(Message(fibre.rank, dest_fibre.rank, nbytes, fibre.now, arrival, tag))
        return Letter(source, fibre, payload, nbytes, fibre.now, arrival, self.sequence)

    def deliver(self, letter: Letter, slot: Slot) -> None:
        """Copy the data over, settle when it was there, and wake whoever waits for that."""
        when = letter.arrival if letter.arrival > slot.posted else slot.posted
        x, out = letter.payload, slot.out
        if x.dtype != out.dtype or x.size != out.size:
            slot.problem = f"expected {out.size} {out.dtype}, but the message holds {x.size} {x.dtype}"
        else:
            out.reshape(-1)[...] = x.reshape(-1)
        letter.payload = None
        self.settle(slot, when, slot.waiter)
        self.settle(letter, when, letter.sender)

    def settle(self, event, when: float, fibre: Fibre) -> None:
        """Let `event` happen at `when`, and wake the fibre if it waits for that."""
        event.when = when
        waits = fibre.waits
        if waits is not None and waits.event is event:
            self.scheduler.wake(fibre, when if when > fibre.now else fibre.now)

    def wait_for(self, fibre: Fibre, event, text) -> None:
        """Block the fibre until `event` has happened; `text` (or what it returns) says what it waits for."""
        if event.when is None:
            self.scheduler.block(fibre, Waits(event, text))
        elif event.when > fibre.now:
            fibre.now = event.when

    def check_empty(self) -> None:
        """Raise if a message was sent that nobody received."""
        left = [(key, letter) for key, box in self.letters.items() for letter in box]
        left += [((c, letter.source, d, t), letter) for (c, d, t), box in self.objects.items() for letter in box]
        if left:
            (_, source, dest, tag), letter = left[0]
            more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
            raise CommError(
                f"rank {dest} never received the message of {letter.nbytes} bytes from rank {source}, tag {tag}{more}"
            )


class _SimWork:
    """A handle on an event, for one rank."""

    __slots__ = ("_comm", "_event")

    def __init__(self, comm, event):
        self._comm, self._event = comm, event

    def _wait_for(self, text) -> None:
        self._comm._post.wait_for(self._comm._fibre, self._event, text)

    def done(self) -> bool:
        """Look, which takes a moment of virtual time."""
        self._comm._poll()
        return self._event.when is not None and self._event.when <= self._comm._fibre.now


class SendWork(_SimWork):
    """A send under way.

    Parameters
    ----------
    comm : SimComm
    letter : Letter
    call : str
        The call, as messages show it.
    eager : bool
        The message is buffered: nobody waits for its receiver.
    x : array, optional
        Look at `wait` whether this array is still what it was.
    """

    __slots__ = ("_call", "_eager", "_snapshot", "_x")

    def __init__(self, comm, letter, call, eager, x=None):
        super().__init__(comm, letter)
        self._call, self._eager, self._x = call, eager, x
        self._snapshot = None if x is None else x.copy()

    def wait(self) -> None:
        """Block until it is received."""
        if not self._eager:
            self._wait_for(lambda: f"{self._call} of {self._event.nbytes} bytes")
        if self._snapshot is not None and not same_bytes(self._x, self._snapshot):
            raise CommError(f"rank {self._comm.rank}: the array given to i{self._call} was changed before wait()")
        self._snapshot = None

    def done(self) -> bool:
        """Look, which takes a moment of virtual time."""
        return super().done() or self._eager


class RecvWork(_SimWork):
    """A receive under way."""

    __slots__ = ("_source", "_tag")

    def __init__(self, comm, slot, source, tag):
        super().__init__(comm, slot)
        self._source, self._tag = source, tag

    def wait(self):
        """Block until the data is there; return the buffer."""
        slot = self._event
        self._wait_for(lambda: f"recv(source={self._source}, tag={self._tag}) of {slot.out.nbytes} bytes")
        if slot.problem:
            raise ValueError(f"rank {self._comm.rank}: recv(source={self._source}, tag={self._tag}) {slot.problem}")
        return slot.out


class MeetingWork(_SimWork):
    """A collective under way; with `into`, the result is copied there."""

    __slots__ = ("_into", "_seq")

    def __init__(self, comm, meeting, seq, into=None):
        super().__init__(comm, meeting)
        self._seq, self._into = seq, into

    def wait(self):
        """Block until it has ended; return this rank's result."""
        comm, meeting = self._comm, self._event
        self._wait_for(lambda: f"{meeting.whats[comm.rank][0]} ({len(meeting.came)} of {comm.size} ranks are there)")
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

    __slots__ = ("_snapshot", "_what", "_work", "_x", "done")

    def __init__(self, work, x, snapshot, what):
        self._work, self._x, self._snapshot, self._what = work, x, snapshot, what
        self.done = work.done

    def wait(self):
        """Block until it has ended; return the array."""
        if self._snapshot is None:
            return self._x  # waited for before
        if not same_bytes(self._x, self._snapshot):
            raise CommError(f"{self._what} was changed before wait()")
        self._snapshot = None
        return self._work.wait()


def same_bytes(x, y) -> bool:
    """Compare bit for bit, so that NaN equals itself."""
    return x.size == 0 or bool((x.reshape(-1).view("u1") == y.reshape(-1).view("u1")).all())
