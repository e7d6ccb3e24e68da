"""What a simulated rank can wait for: its sends and receives, and collective calls."""

from __future__ import annotations

from numpy import ndarray

from ..comm.base import Call
from .meta import Phantom
from .scheduler import Fibre


class Channel:
    """What travels from one rank to another with one tag, in order: sends or receives that wait for their other half.

    Attributes
    ----------
    source, dest : int
        Ranks of the communicator.
    sender, receiver : int
        The same as ranks of the world.
    label : int
        The tag that the trace shows.
    """

    __slots__ = ("context", "dest", "label", "receiver", "recvs", "sender", "sends", "source", "tag")

    def __init__(self, context: int, sender: int, receiver: int, source: int, dest: int, tag: int):
        self.context = context
        self.sender, self.receiver = sender, receiver
        self.source, self.dest, self.tag = source, dest, tag
        self.label = tag if context >= 0 else COLLECTIVE_TAG
        self.sends: list[SendOp] = []
        self.recvs: list[RecvOp] = []


COLLECTIVE_TAG = -1
"""The tag, in traces, of the messages that a collective sends."""


class Event:
    """Something that a rank can wait for.

    Its attribute `when` is None until it is known at what virtual time it happens; `waiting(fibre)` says in words what
    a fibre waits for, for the report of a deadlock.
    """

    __slots__ = ()

    problem: str | None = None
    """What was wrong with it, to be raised in whoever waits for it."""


class SendOp(Event):
    """A message on its way; it happens when it is received."""

    __slots__ = ("arrival", "channel", "fibre", "payload", "when")

    def __init__(self, fibre: Fibre, channel: Channel, payload, arrival: float, when: float | None = None):
        self.fibre, self.channel, self.payload, self.arrival, self.when = fibre, channel, payload, arrival, when

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


class ObjectSendOp(SendOp):
    """A pickled object on its way."""

    __slots__ = ("seq",)

    @property
    def nbytes(self) -> int:
        """Length of the message."""
        return len(self.payload)

    def shown(self) -> str:
        """Return the call that sent it."""
        return f"send_obj(dest={self.channel.dest}, tag={self.channel.tag})"


class RecvOp(Event):
    """A posted receive; it happens when the data is there."""

    __slots__ = ("channel", "fibre", "out", "posted", "problem", "when")

    def __init__(self, fibre: Fibre, channel: Channel, out, when: float | None = None, problem: str | None = None):
        self.fibre, self.channel, self.out, self.posted = fibre, channel, out, fibre.now
        self.when, self.problem = when, problem

    def waiting(self, fibre) -> str:
        """Say what its receiver waits for."""
        return f"{self.shown()} of {self.out.nbytes} bytes"

    def shown(self) -> str:
        """Return the call that posted it."""
        return f"recv(source={self.channel.source}, tag={self.channel.tag})"


class CollectiveCall(Event):
    """One collective call of all members of a communicator: who has come so far, and with what.

    `when`, `payloads` and `results` are those of a collective that is computed at once (`formula`).
    """

    __slots__ = ("calls", "context", "members", "payloads", "results", "when")

    def __init__(self, members: list[Fibre], context: int):
        self.members, self.context = members, context
        self.calls: dict[int, Call] = {}  # by rank of the communicator
        self.payloads: dict[int, tuple[float, object]] = {}  # by rank: (time, what it brought)
        self.results = None  # by rank
        self.when = None

    def waiting(self, fibre) -> str:
        """Say what a member waits for."""
        name = next(iter(self.calls.values())).name
        return f"{name} ({len(self.calls)} of {len(self.members)} ranks are there)"


class Completion(Event):
    """The end of a non-blocking collective, which runs in a fibre of its own.

    Attributes
    ----------
    call : CollectiveCall
    waiters : list of Fibre
        Who may have to be woken: the rank's own fibre, and that of its next collective.
    results : dict
        This rank's, by its number.
    """

    __slots__ = ("call", "results", "waiters", "when")

    def __init__(self, call: CollectiveCall, owner: Fibre):
        self.call, self.waiters, self.results, self.when = call, [owner], {}, None

    def waiting(self, fibre) -> str:
        """Say what a rank waits for."""
        return self.call.waiting(fibre)


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
