"""What simulated ranks share during a run: letters, posted receives, meetings, and the handles that wait for them.

The rule of time: a letter that leaves at t arrives at t + alpha + n / beta, and is received when it has arrived *and* the
receive has been posted; a synchronous send ends at that moment, too. A collective ends one network cost after the last
rank came to its meeting.
"""

from __future__ import annotations

from collections import defaultdict, deque

from ..trace import Message
from .protocol import CommError
from .scheduler import Fibre, Scheduler


class Letter:
    """A message on its way."""

    __slots__ = ("arrival", "dtype", "nbytes", "payload", "received", "sender", "sent", "seq", "size", "source")

    def __init__(self, source, sender, payload, nbytes, sent, arrival, seq):
        self.source, self.sender, self.payload, self.nbytes = source, sender, payload, nbytes
        self.sent, self.arrival, self.seq = sent, arrival, seq
        self.received = None  # virtual time at which the receiver took it


class Slot:
    """A posted receive."""

    __slots__ = ("done", "out", "posted", "problem", "waiter")

    def __init__(self, out, posted, waiter):
        self.out, self.posted, self.waiter = out, posted, waiter
        self.done = None  # virtual time at which the data is there
        self.problem = None  # what was wrong with the message, raised in the receiver


class Meeting:
    """One collective call under way: who came, when, with what."""

    __slots__ = ("came", "end", "left", "results", "what", "whats")

    def __init__(self):
        self.came: dict[int, tuple[float, object]] = {}
        self.whats: dict[int, tuple] = {}
        self.results = None
        self.end = None
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
        letter.received = slot.done = when
        x, out = letter.payload, slot.out
        if x.dtype != out.dtype or x.size != out.size:
            slot.problem = f"expected {out.size} {out.dtype}, but the message holds {x.size} {x.dtype}"
        else:
            out.reshape(-1)[...] = x.reshape(-1)
        letter.payload = None
        for fibre, waits_for in ((slot.waiter, slot), (letter.sender, letter)):
            waits = fibre.waits
            if waits is not None and getattr(waits, "event", None) is waits_for:
                self.scheduler.wake(fibre, when if when > fibre.now else fibre.now)

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


class Waits:
    """Why a fibre is blocked: the event that will wake it, and how to say so."""

    __slots__ = ("event", "text")

    def __init__(self, event, text):
        self.event, self.text = event, text

    def __call__(self) -> str:
        return self.text() if callable(self.text) else self.text


class SendWork:
    __slots__ = ("_comm", "_dest", "_eager", "_letter", "_snapshot", "_tag", "_x")

    def __init__(self, comm, letter, dest, tag, eager, x=None):
        self._comm, self._letter, self._dest, self._tag, self._eager = comm, letter, dest, tag, eager
        self._x = x
        self._snapshot = None if x is None else x.copy()

    def wait(self):
        letter, comm = self._letter, self._comm
        fibre = comm._fibre
        if not self._eager:
            if letter.received is None:
                text = f"send(dest={self._dest}, tag={self._tag}) of {letter.nbytes} bytes"
                comm._post.scheduler.block(fibre, Waits(letter, text))
            elif letter.received > fibre.now:
                fibre.now = letter.received
        if self._snapshot is not None and not same_bytes(self._x, self._snapshot):
            raise CommError(
                f"rank {comm.rank}: the array given to isend(dest={self._dest}, tag={self._tag}) was changed before wait()"
            )
        self._snapshot = None

    def done(self) -> bool:
        self._comm._poll()
        return self._eager or (self._letter.received is not None and self._letter.received <= self._comm._fibre.now)


class RecvWork:
    __slots__ = ("_comm", "_slot", "_source", "_tag")

    def __init__(self, comm, slot, source, tag):
        self._comm, self._slot, self._source, self._tag = comm, slot, source, tag

    def wait(self):
        slot, comm = self._slot, self._comm
        fibre = comm._fibre
        if slot.done is None:
            text = f"recv(source={self._source}, tag={self._tag}) of {slot.out.nbytes} bytes"
            comm._post.scheduler.block(fibre, Waits(slot, text))
        elif slot.done > fibre.now:
            fibre.now = slot.done
        if slot.problem:
            raise ValueError(f"rank {comm.rank}: recv(source={self._source}, tag={self._tag}) {slot.problem}")
        return slot.out

    def done(self) -> bool:
        self._comm._poll()
        return self._slot.done is not None and self._slot.done <= self._comm._fibre.now


class MeetingWork:
    __slots__ = ("_comm", "_into", "_meeting", "_seq")

    def __init__(self, comm, meeting, seq, into=None):
        self._comm, self._meeting, self._seq, self._into = comm, meeting, seq, into

    def wait(self):
        comm, meeting = self._comm, self._meeting
        fibre = comm._fibre
        if meeting.end is None:
            text = lambda: f"{meeting.whats[comm.rank][0]} ({len(meeting.came)} of {comm.size} ranks are there)"  # noqa: E731
            comm._post.scheduler.block(fibre, Waits(meeting, text))
        elif meeting.end > fibre.now:
            fibre.now = meeting.end
        result = meeting.results[comm.rank]
        meeting.left += 1
        if meeting.left == comm.size:
            comm._post.meetings.pop((comm._context, self._seq), None)
        if self._into is None:
            return result
        self._into[...] = result
        return self._into

    def done(self) -> bool:
        self._comm._poll()
        return self._meeting.end is not None and self._meeting.end <= self._comm._fibre.now


class UntouchedWork:
    """A collective whose array must not change before `wait`: the simulator looks."""

    __slots__ = ("_snapshot", "_what", "_work", "_x", "done")

    def __init__(self, work, x, snapshot, what):
        self._work, self._x, self._snapshot, self._what = work, x, snapshot, what
        self.done = work.done

    def wait(self):
        if self._snapshot is None:
            return self._x  # waited for before
        if not same_bytes(self._x, self._snapshot):
            raise CommError(f"{self._what} was changed before wait()")
        self._snapshot = None
        return self._work.wait()


def same_bytes(x, y) -> bool:
    """Compare bit for bit, so that NaN equals itself."""
    as_bytes = lambda q: q.reshape(-1).view("u1")  # noqa: E731
    return x.size == 0 or bool((as_bytes(x) == as_bytes(y)).all())
