"""What a simulated rank can wait for: letters, posted receives, meetings.

Their attribute `when` is None until it is settled at what virtual time they happen; `waiting(fibre)` says in words what
a fibre waits for, for the report of a deadlock.
"""

from __future__ import annotations

import numpy as np

from .phantom import Phantom
from .scheduler import Fibre


class Letter:
    """A message on its way; it happens when it is received."""

    __slots__ = ("arrival", "call", "channel", "nbytes", "payload", "sender", "seq", "source", "when")

    def __init__(self, source, sender, payload, nbytes, arrival, call, when=None):
        self.source, self.sender, self.payload, self.nbytes = source, sender, payload, nbytes
        self.arrival, self.when = arrival, when
        self.call = call  # (name, dest, tag), for messages
        self.seq = 0

    def waiting(self, fibre) -> str:
        """Say what its sender waits for."""
        return f"{self.shown()} of {self.nbytes} bytes"

    def shown(self) -> str:
        """Return the call that sent it."""
        return "{}(dest={}, tag={})".format(*self.call)


class Slot:
    """A posted receive; it happens when the data is there."""

    __slots__ = ("call", "channel", "out", "posted", "problem", "waiter", "when")

    def __init__(self, out, posted, waiter, call, when=None, problem=None):
        self.out, self.posted, self.waiter, self.when = out, posted, waiter, when
        self.call = call  # (source, tag), for messages
        self.problem = problem  # what was wrong with the message, raised in the receiver

    def waiting(self, fibre) -> str:
        """Say what its receiver waits for."""
        return f"{self.shown()} of {self.out.nbytes} bytes"

    def shown(self) -> str:
        """Return the call that posted it."""
        return "recv(source={}, tag={})".format(*self.call)


class Channel:
    """What travels from one rank to another with one tag, in order: letters or slots that wait for their other half."""

    __slots__ = ("context", "dest", "letters", "slots", "source", "tag")

    def __init__(self, source, dest, tag):
        self.source, self.dest, self.tag = source, dest, tag  # as ranks of the communicator
        self.letters: list[Letter] = []
        self.slots: list[Slot] = []


class Meeting:
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
    if x.dtype is out.dtype and x.shape == out.shape and out.__class__ is np.ndarray is x.__class__:
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
