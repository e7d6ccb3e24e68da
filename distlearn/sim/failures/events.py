"""What a simulated rank can wait for in a world with failures, beyond the letters and slots of a sound one."""

from __future__ import annotations

from ..events import Letter, Meeting, Slot
from ..scheduler import Fibre, Waits


class Vanished(Exception):
    """A message that nobody will ever receive."""


class FaultyMeeting(Meeting):
    """A collective call that may have failed on some of its members."""

    __slots__ = ("context", "torn")

    def __init__(self, context: int):
        super().__init__()
        self.context = context
        self.torn: set[int] | None = None  # ranks of the world on which it failed; None until it is settled


class Meetings(dict):
    """Meetings by (context, sequence number), made on demand."""

    def __missing__(self, key):
        self[key] = meeting = FaultyMeeting(key[0])
        return meeting


class Listening(Waits):
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
    return event.channel.context if isinstance(event, (Letter, Slot)) else event.context


def abandon(event) -> None:
    """Forget a letter or a slot that nobody waits for any more: a later message must not land in its buffer."""
    if event.__class__ is Slot and event in event.channel.slots:
        event.channel.slots.remove(event)
    elif event.__class__ is Letter and event in event.channel.letters:
        event.channel.letters.remove(event)
