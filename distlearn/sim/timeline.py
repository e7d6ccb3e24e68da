"""When a simulated rank is free for a collective: it takes part in one at a time."""

from __future__ import annotations

from bisect import bisect_right, insort


class CommTimeline:
    """Intervals of time in which a rank is busy with collectives."""

    # A collective is placed when its last rank has joined it, which on the simulator can come after a later one has
    # been placed: ranks run ahead of each other in virtual time. So there can be a free interval before existing ones.

    __slots__ = ("_busy",)

    def __init__(self):
        self._busy: list[tuple[float, float]] = []  # disjoint, in order

    def next_free(self, start: float, seconds: float) -> float:
        """Return the first time, not before `start`, at which the rank is free for `seconds`."""
        i = bisect_right(self._busy, (start, float("inf"))) - 1
        for low, high in self._busy[max(i, 0) :]:
            if low >= start + seconds:
                break
            if high > start:
                start = high
        return start

    def last_end(self, moment: float) -> float:
        """Return the end of the last interval that begins before a given time; 0 if there is none."""
        i = bisect_right(self._busy, (moment,)) - 1
        return self._busy[i][1] if i >= 0 else 0.0

    def take(self, start: float, end: float) -> None:
        """Note that the rank is busy from `start` to `end`."""
        if not end > start:
            return
        i = bisect_right(self._busy, (start, float("inf")))
        if i and self._busy[i - 1][1] == start:
            start = self._busy.pop(i - 1)[0]
        insort(self._busy, (start, end))


def first_common(timelines, start: float, seconds: float) -> float:
    """Return the first time, not before `start`, at which all timelines are free for `seconds`."""
    while True:
        moved = start
        for timeline in timelines:
            moved = timeline.next_free(moved, seconds)
        if moved == start:
            return start
        start = moved
