"""What a simulated rank can wait for only in a world with failures."""

from __future__ import annotations

from ..scheduler import BlockReason, Fibre
from ..transport import RecvOp, SendOp


class Vanished(Exception):
    """A message that will never be received."""


class Listening(BlockReason):
    """A `recv_obj` in progress."""

    __slots__ = ("context", "key", "source", "when")

    def __init__(self, text: str, key: tuple, source: int):
        super().__init__(text)
        self.key, self.context, self.source, self.when = key, key[0], source, None


class Gathering:
    """`agree` or `shrink` in progress: ends when all ranks not known to be lost have called it."""

    def __init__(self, name: str, context: int, members: list[Fibre]):
        self.name, self.context, self.members = name, context, members
        self.came: dict[int, tuple[float, object]] = {}  # rank of the world -> (time of the call, its value)
        self.when: float | None = None
        self.result = None

    def waiting(self, fibre) -> str:
        """Say what a member waits for."""
        return f"{self.name}() ({len(self.came)} of {len(self.members)} ranks are there)"


def context_of(event) -> int:
    """Return the number of the communicator that an event belongs to."""
    return event.channel.context if isinstance(event, (SendOp, RecvOp)) else event.context


def abandon(event) -> None:
    """Withdraw a send or a receive that is no longer waited for: a later message must not end up in its buffer."""
    if event.__class__ is RecvOp and event in event.channel.recvs:
        event.channel.recvs.remove(event)
    elif event.__class__ is SendOp and event in event.channel.sends:
        event.channel.sends.remove(event)
