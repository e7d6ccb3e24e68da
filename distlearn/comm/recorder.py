"""Records of the calls that ranks make, and who is missing when the others wait.

After a hang the records of the ranks are compared: who waits in which call, and who has not arrived there. A rank that
cannot answer has no records, and is missing for that reason alone. The idea is that of PyTorch's Flight Recorder: a
ring buffer on every rank, analysed by (group, number of the call).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from .calls import ANY

LENGTH = 64  # Calls that a rank keeps.


class Record(NamedTuple):
    """One call of one rank.

    Attributes
    ----------
    group : sequence of int
        Ranks of the world that the call concerns: all of the communicator, or of a message the two ends.
    number : int
        Of the collectives of this group, from 1; 0 for a message.
    call : str
        With its arguments, such as ``all_reduce(op='sum', (4,), float32)``.
    site : CallSite or None
        The user's line, if known.
    """

    group: Sequence[int]
    number: int
    call: str
    site: object = None
    state: str = "done"

    def __str__(self) -> str:
        where = f" ({self.site})" if self.site else ""
        return f"{self.call}{f', number {self.number}' if self.number else ''}{where}"


EXHAUSTED = "MPI can make no more communicators"
TO_RETURN = "all ranks to return"  # a rank that has made all of its calls waits for this


class Recorder:
    """A ring buffer of one rank's calls, on a communicator and all that were split from it."""

    def __init__(self):
        self.calls, self.numbers = deque(maxlen=LENGTH), Counter()  # (group, number, call); calls by group

    def clear(self) -> None:
        self.calls.clear()
        self.numbers.clear()

    def records(self, waiting: bool) -> list[Record]:
        """Return the recorded calls; the last one is in progress if the rank waits."""
        found = []
        for group, number, call in self.calls:
            if number:
                found.append(Record(group, number, str(call), call.site))
            else:
                name, rank, peer, tag, size = call
                pair, who = (group, "anyone") if peer == ANY else ((group[rank], group[peer]), peer)
                found.append(Record(pair, 0, f"{name}={who}, tag={tag}){size and f' of {size} bytes'}"))
        if found and waiting:
            found[-1] = found[-1]._replace(state="waiting")
        return found


class Verdict(NamedTuple):
    """Why ranks wait.

    Attributes
    ----------
    ranks : tuple of int
        The missing ranks, those whose call differs from the others', or those that wait for each other.
    """

    kind: str
    ranks: tuple[int, ...]
    text: str


def who_is_missing(records: dict[int, list[Record]]) -> Verdict:
    """Say from the records of a run that hangs which rank the others wait for, and where it was last.

    Parameters
    ----------
    records : dict of int to list of Record
        By rank; a rank that could not be asked is left out.

    Examples
    --------
    >>> call = Record(range(2), 3, "all_reduce(op='sum', (4,), float32)")
    >>> who_is_missing({0: [call._replace(state="waiting")], 1: [call._replace(number=2)]}).text
    "rank 1 is missing at all_reduce(op='sum', (4,), float32), number 3, where rank 0 waits; \
it was last in all_reduce(op='sum', (4,), float32), number 2"
    """
    calls = {(tuple(r.group), r.number, rank): r for rank, rs in records.items() for r in rs}
    reached = Counter()
    for group, number, rank in calls:
        reached[group, rank] = max(number, reached[group, rank])
    waits = {rank: rs[-1] for rank, rs in sorted(records.items()) if rs and rs[-1].state == "waiting"}
    for record in waits.values():  # the same number in the same group must be the same call on every rank
        same = {r: c for r in record.group if (c := calls.get((tuple(record.group), record.number, r)))}
        usual = Counter(c.call for c in same.values()).most_common(1)[0][0]
        odd = tuple(r for r, c in same.items() if c.call != usual)
        if record.number and odd:
            first = next(r for r, c in same.items() if c.call == usual)
            text = f"rank {odd[0]} calls {same[odd[0]]} where rank {first} calls {same[first]}"
            return Verdict("mismatch", odd, text)

    def awaited(rank):
        """The ranks that have not reached the call in which this one waits: those that wait elsewhere last."""
        group, number = tuple(waits[rank].group), waits[rank].number
        late = [r for r in group if r != rank and not (number and reached[group, r] >= number)]
        return sorted(late, key=lambda r: r in waits)

    path = list(waits)[:1]
    while path and path[-1] in waits and (late := awaited(path[-1])):
        if late[0] in path:  # a cycle
            circle = sorted(path[path.index(late[0]) :])
            text = "; ".join(f"rank {r} waits in {waits[r]}" for r in circle)
            return Verdict("deadlock", tuple(circle), f"ranks wait for each other: {text}")
        path.append(late[0])
    if not path or path[-1] in waits:
        return Verdict("none", (), "no rank waits for one that has not arrived")
    call, missing = waits[path[-2]], tuple(r for r in late if r not in waits)
    there = [r for r, w in waits.items() if w[:3] == call[:3]]
    last = records.get(missing[0])
    text = f"{_named(missing)} missing at {call}, where {_named(there, 'waits', 'wait')}; "
    where = f"it was last in {last[-1]}" if last else "nothing is known of it" if last is None else "it made no call"
    return Verdict("missing", missing, text + where)


def _named(ranks, one: str = "is", several: str = "are") -> str:
    listed = ", ".join(map(str, ranks))
    return f"ranks {listed} {several}" if len(ranks) > 1 else f"rank {listed} {one}"
