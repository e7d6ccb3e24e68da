"""What a simulated rank can wait for in a world with failures, beyond what there is in a sound one."""

from __future__ import annotations

from ..scheduler import BlockReason, Fibre
from ..transport import CollectiveCall, RecvOp, SendOp


class Vanished(Exception):
    """A message that nobody will ever receive."""


class FaultyCollectiveCall(CollectiveCall):
    """A collective call that may have failed on some of its members."""

    __slots__ = ("failed_ranks",)

    def __init__(self, members: list[Fibre], context: int):
        super().__init__(members, context)
        self.failed_ranks: set[int] | None = None  # of the world; None until it has ended


class Listening(BlockReason):
    """A `recv_obj` under way."""

    __slots__ = ("context", "key", "source", "when")

    def __init__(self, text: str, key: tuple, source: int):
        super().__init__(text)
        self.key, self.context, self.source, self.when = key, key[0], source, None


class Gathering:
    """`agree` or `shrink` under way: ends when all that are not given up have come."""

    def __init__(self, name: str, context: int, members: list[Fibre]):
        self.name, self.context, self.members = name, context, members
        self.came: dict[int, tuple[float, object]] = {}  # rank of the world -> (time, what it brought)
        self.when: float | None = None
        self.result = None

    def waiting(self, fibre) -> str:
        """Say what a member waits for."""
        return f"{self.name}() ({len(self.came)} of {len(self.members)} ranks are there)"


def context_of(event) -> int:
    """Return the number of the communicator that an event belongs to."""
    return event.channel.context if isinstance(event, (SendOp, RecvOp)) else event.context


def abandon(event) -> None:
    """Forget a send or a receive that nobody waits for any more: a later message must not land in its buffer."""
    if event.__class__ is RecvOp and event in event.channel.recvs:
        event.channel.recvs.remove(event)
    elif event.__class__ is SendOp and event in event.channel.sends:
        event.channel.sends.remove(event)
