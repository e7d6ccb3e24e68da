"""What a simulated rank can wait for: letters, posted receives, meetings."""

from __future__ import annotations

from numpy import ndarray

from .meta import Phantom
from .scheduler import Fibre


class Channel:
    """What travels from one rank to another with one tag, in order: letters or slots that wait for their other half."""

    __slots__ = ("context", "dest", "letters", "receiver", "sender", "slots", "source", "tag")

    def __init__(self, context: int, sender: Fibre, receiver: Fibre, source: int, dest: int, tag: int):
        self.context = context
        self.sender, self.receiver = sender, receiver
        self.source, self.dest, self.tag = source, dest, tag  # as ranks of the communicator
        self.letters: list[Letter] = []
        self.slots: list[Slot] = []


class Event:
    """Something that a rank can wait for.

    Its attribute `when` is None until it is settled at what virtual time it happens; `waiting(fibre)` says in words
    what a fibre waits for, for the report of a deadlock.
    """

    __slots__ = ()

    problem: str | None = None
    """What was wrong with it, to be raised in whoever waits for it."""


class Letter(Event):
    """A message on its way; it happens when it is received."""

    __slots__ = ("arrival", "channel", "payload", "when")

    def __init__(self, channel: Channel, payload, arrival: float, when: float | None = None):
        self.channel, self.payload, self.arrival, self.when = channel, payload, arrival, when

    @property
    def nbytes(self) -> int:
        """Length of the message."""
        return self.payload.nbytes

    def waiting(self, fibre) -> str:
        """Say what its sender waits for."""
        return f"{self.shown()} of {self.nbytes} bytes"

    def shown(self) -> str:
        """Return the call that sent it."""
        return f"send(dest={self.channel.dest}, tag={self.channel.tag})"


class Parcel(Letter):
    """A pickled object on its way."""

    __slots__ = ("seq",)

    @property
    def nbytes(self) -> int:
        """Length of the message."""
        return len(self.payload)

    def shown(self) -> str:
        """Return the call that sent it."""
        return f"send_obj(dest={self.channel.dest}, tag={self.channel.tag})"


class Slot(Event):
    """A posted receive; it happens when the data is there."""

    __slots__ = ("channel", "out", "posted", "problem", "when")

    def __init__(self, channel: Channel, out, posted: float, when: float | None = None, problem: str | None = None):
        self.channel, self.out, self.posted, self.when, self.problem = channel, out, posted, when, problem

    def waiting(self, fibre) -> str:
        """Say what its receiver waits for."""
        return f"{self.shown()} of {self.out.nbytes} bytes"

    def shown(self) -> str:
        """Return the call that posted it."""
        return f"recv(source={self.channel.source}, tag={self.channel.tag})"


class Meeting(Event):
    """One collective call under way: who came, when, with what; it happens when all have come and it has ended."""

    __slots__ = ("came", "left", "members", "results", "whats", "when")

    def __init__(self):
        self.members: list[Fibre] = []
        self.came: dict[int, tuple[float, object]] = {}  # rank -> (time, payload)
        self.whats: dict[int, tuple] = {}  # rank -> the call's name and arguments, which must agree
        self.results = None  # by rank
        self.when = None
        self.left = 0

    def waiting(self, fibre) -> str:
        """Say what a member waits for."""
        name = self.whats[self.members.index(fibre)][0]
        return f"{name} ({len(self.came)} of {len(self.members)} ranks are there)"


def deliver(x, out) -> str | None:
    """Copy `x` into `out`; return what is wrong if it does not fit."""
    if x.dtype is out.dtype and x.shape == out.shape and out.__class__ is ndarray is x.__class__:
        out[...] = x  # nearly always
        return None
    if x.dtype != out.dtype or x.size != out.size:
        return f"expected {out.size} {out.dtype}, but the message holds {x.size} {x.dtype}"
    if isinstance(x, Phantom) or isinstance(out, Phantom):
        if type(x) is type(out):
            return None
        return f"expected a {type(out).__name__}, but the message holds a {type(x).__name__}"
    out.reshape(-1)[...] = x.reshape(-1)
    return None
