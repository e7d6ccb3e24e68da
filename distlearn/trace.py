"""Spans and messages by rank and time: the record that simulated and real runs share.

A `Span` is an interval on one lane ("compute", "comm") of one rank; a `Message` is one point-to-point transfer.
Both worlds write the same `Trace`, so that one plot shows a simulated run beside a measured one, and the file opens in
Perfetto (https://ui.perfetto.dev) or chrome://tracing.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from .files import whole_file

# Collectives that no rank leaves before every rank has entered.
ENTERED_BY_ALL = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "barrier")


class Span(NamedTuple):
    """An interval on one lane of one rank; `start` and `end` in seconds."""

    rank: int
    lane: str
    name: str
    start: float
    end: float
    flops: float = 0
    nbytes: float = 0

    @property
    def seconds(self) -> float:
        """Length of the span."""
        return self.end - self.start


class Message(NamedTuple):
    """One point-to-point transfer of `nbytes` bytes; times in seconds."""

    source: int
    dest: int
    nbytes: int
    sent: float
    arrived: float
    tag: int = 0


class Operation(NamedTuple):
    """One rank's part of a collective, as `record_run` notes it; times in seconds.

    Attributes
    ----------
    group : tuple of int
        Ranks of the world that take part.
    key : str
        The same on all ranks that take part.
    places : tuple of int
        When it was entered and left, in the order of all such events of this rank.
    waited, done, end : float
        When the rank began to wait, when the operation was done, and when the rank continued.
    """

    rank: int
    name: str
    group: tuple[int, ...]
    key: str
    nbytes: int
    places: tuple[int, int]
    start: float
    waited: float
    done: float
    end: float


class Clock(Protocol):
    """The only source of time in the library: virtual in the simulator, the wall clock on real ranks."""

    def now(self) -> float:
        """Seconds since the run began."""

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass: virtual time in the simulator, real time elsewhere."""

    def span(self, name: str, *, lane: str = "compute", flops: float = 0, nbytes: float = 0):
        """Context manager: record the block as one `Span`."""
        # `flops` and `nbytes` are the operations and bytes of the block; the simulator's compute model turns them into
        # seconds, and every world keeps them in the trace.


class Trace:
    """Spans and messages of one run, in the order in which they ended; `operations` if `record_run` made it.

    Examples
    --------
    >>> trace = Trace([Span(0, "compute", "forward", 0.0, 2.0), Span(0, "comm", "all_reduce", 1.0, 4.0)])
    >>> trace.makespan, trace.total(lane="comm"), trace.exposed()
    (4.0, 3.0, 2.0)
    """

    def __init__(self, spans: Iterable[Span] = (), messages: Iterable[Message] = ()):
        self.spans: list[Span] = list(spans)
        self.messages: list[Message] = list(messages)
        self.operations: list[Operation] = []

    def __iter__(self) -> Iterator[Span]:
        return iter(self.spans)

    def __len__(self) -> int:
        return len(self.spans)

    def __eq__(self, other) -> bool:
        return isinstance(other, Trace) and (self.spans, self.messages) == (other.spans, other.messages)

    __hash__ = None

    def __repr__(self) -> str:
        counts = f"{len(self.spans)} spans, {len(self.messages)} messages, {len(self.ranks)} ranks"
        return f"Trace({counts}, {self.makespan:.3g} s)"

    def select(self, *, rank: int | None = None, lane: str | None = None, name: str | None = None) -> list[Span]:
        """Spans of one rank, lane or name (a name also matches as the part before `[`)."""
        return [
            s
            for s in self.spans
            if (rank is None or s.rank == rank)
            and (lane is None or s.lane == lane)
            and (name is None or name in (s.name, s.name.partition("[")[0]))
        ]

    def total(self, *, rank: int | None = None, lane: str | None = None, name: str | None = None) -> float:
        """Seconds in the selected spans, added up (overlapping spans count twice)."""
        return sum(s.seconds for s in self.select(rank=rank, lane=lane, name=name))

    def window(self, start: float, end: float = float("inf")) -> Trace:
        """Return the spans and messages between two moments [s], shifted so that `start` is 0: one step of a run."""
        spans = [s for s in self if start <= s.start and s.end <= end]
        messages = [m for m in self.messages if start <= m.sent and m.arrived <= end]
        return Trace(
            [s._replace(start=s.start - start, end=s.end - start) for s in spans],
            [m._replace(sent=m.sent - start, arrived=m.arrived - start) for m in messages],
        )

    @property
    def ranks(self) -> list[int]:
        """Ranks that appear in the trace."""
        return sorted({s.rank for s in self.spans}.union(*({m.source, m.dest} for m in self.messages)))

    @property
    def makespan(self) -> float:
        """Seconds from 0 to the end of the last span or message."""
        return max([s.end for s in self.spans] + [m.arrived for m in self.messages], default=0.0)

    @property
    def bytes_sent(self) -> int:
        """Bytes of all point-to-point messages."""
        return sum(m.nbytes for m in self.messages)

    def exposed(self, rank: int = 0) -> float:
        """Seconds in which `rank` communicated while it computed nothing: what overlapping could still hide."""
        busy = union(*times(self.select(rank=rank, lane="compute")))
        comm = union(*times(self.select(rank=rank, lane="comm")))
        _, start, end = pieces(*comm, *gaps(*busy, -np.inf, np.inf))
        return float((end - start).sum())

    def waits(self) -> list[tuple[int, float, float]]:
        """Return (rank, start, end) of the time that ranks spent in a collective before the last rank entered it."""
        # Spans are matched by name and number, so a name counts only if every rank has equally many and they overlap as
        # those of one collective must; the collectives of smaller groups of ranks are left out.
        by_name: dict[str, dict[int, list[Span]]] = {}
        for s in sorted(self.select(lane="comm"), key=lambda s: s.start):
            if s.name.partition("[")[0] in ENTERED_BY_ALL:
                by_name.setdefault(s.name, {}).setdefault(s.rank, []).append(s)
        found = []
        for by_rank in by_name.values():
            if len(by_rank) < max(2, len(self.ranks)) or len({len(spans) for spans in by_rank.values()}) > 1:
                continue
            calls = list(zip(*by_rank.values(), strict=True))
            last = [max(s.start for s in call) for call in calls]
            if all(min(s.end for s in call) >= entered for call, entered in zip(calls, last, strict=True)):
                found += [
                    (s.rank, s.start, t) for call, t in zip(calls, last, strict=True) for s in call if s.start < t
                ]
        return found

    def to_chrome(self) -> dict[str, Any]:
        """The trace in Chrome's trace-event format: times in microseconds, a process per rank, a thread per lane."""
        for row in (*self.spans, *self.messages):
            if not all(isinstance(value, str) or math.isfinite(value) for value in row):
                raise ValueError(f"trace: {row} is not finite, and JSON has no such numbers")
        # process 0 is the idle one to Perfetto
        names = [("process_name", r + 1, 0, f"rank {r}") for r in self.ranks]
        tids, lanes = _threads(self.spans)
        names += [("thread_name", r + 1, tid, lane) for r in self.ranks for tid, lane in lanes.items()]
        events = [{"ph": "M", "name": kind, "pid": r, "tid": i, "args": {"name": name}} for kind, r, i, name in names]
        by_thread: dict[tuple, list] = {}
        for s, tid in zip(self.spans, tids, strict=True):
            start, end = _nanoseconds(s.start), _nanoseconds(s.end)
            by_thread.setdefault((s.rank, s.lane != "comm", tid), []).append((start, end))
            args = {"flops": s.flops, "nbytes": s.nbytes, "start": s.start, "end": s.end}
            row = {"ph": "X", "name": s.name, "cat": s.lane, "pid": s.rank + 1, "tid": tid, "args": args}
            events.append(row | {"ts": _microseconds(start), "dur": _microseconds(end - start)})
        covered: dict[int, list] = {}
        for (rank, _, tid), pairs in sorted(by_thread.items()):  # communication first
            covered.setdefault(rank, []).append((tid, *union(*np.transpose(pairs))))
        for i, m in enumerate(self.messages):
            arrow = {"cat": "message", "name": "message", "id": i}
            events.append(arrow | {"ph": "s", "args": m._asdict()} | _end_of_arrow(covered, m.source, m.sent))
            events.append(arrow | {"ph": "f", "bp": "e"} | _end_of_arrow(covered, m.dest, m.arrived))
        recorded = {"operations": self.operations} if self.operations else {}
        return {"traceEvents": events, "displayTimeUnit": "ms", **recorded}

    def save(self, path: str | Path) -> Path:
        """Write the trace as JSON that Perfetto and chrome://tracing open; return the path."""
        with whole_file(path) as fresh:
            fresh.write_text(json.dumps(self.to_chrome(), allow_nan=False), encoding="utf-8")
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read back what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            events = content["traceEvents"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: no trace, or a part of one; expected a file that Trace.save wrote") from error
        spans = [Span(e["pid"] - 1, e["cat"], e["name"], **e["args"]) for e in events if e["ph"] == "X"]
        trace = cls(spans, [Message(**e["args"]) for e in events if e["ph"] == "s"])
        for rank, name, group, key, nbytes, places, *moments in content.get("operations", ()):
            trace.operations.append(Operation(rank, name, tuple(group), key, nbytes, tuple(places), *moments))
        return trace


# -- for Perfetto: times in whole nanoseconds, spans that nest, arrows that begin and end in spans ---------------------


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _microseconds(nanoseconds: int) -> float:
    """Convert to a number of microseconds that is not too small where a viewer rounds down."""
    us = nanoseconds / 1e3
    return us if int(us * 1e3) == nanoseconds else math.nextafter(us, math.inf)


def _threads(spans) -> tuple[list[int], dict[int, str]]:
    """Return a thread for every span, and the names of all: spans on one lie apart, or in one another."""
    # a viewer drops others, so a lane has as many threads as such spans at a time
    moments, rows, of_span = [(_nanoseconds(s.start), _nanoseconds(s.end)) for s in spans], {}, [None] * len(spans)
    for i in sorted(range(len(spans)), key=lambda i: (moments[i][0], -moments[i][1])):
        lane, (start, end) = spans[i].lane, moments[i]
        for number in count(1):
            of_span[i] = (lane != "compute", lane, number)
            around = rows.setdefault(of_span[i], {}).setdefault(spans[i].rank, [])  # ends of the spans that it is in
            while around and around[-1] <= start:
                around.pop()
            if not around or end <= around[-1]:
                around.append(end)
                break
    tids = {row: tid for tid, row in enumerate(sorted(rows), 1)}
    names = {tid: lane if number == 1 else f"{lane} {number}" for (_, lane, number), tid in tids.items()}
    return [tids[row] for row in of_span], names


def _end_of_arrow(covered, rank: int, seconds: float) -> dict[str, Any]:
    """Return where one end of a message is drawn: on a span at that time, or on the nearest one of its rank."""
    ns, nearest = _nanoseconds(seconds), None
    for tid, start, end in covered.get(rank, ()):
        k = np.searchsorted(start, ns, side="right") - 1
        for i in {max(k, 0), min(k + 1, len(start) - 1)}:  # the span before, or around, and the one after
            inside = max(start[i].item(), min(ns, end[i].item() - 1))  # a span ends before its end
            if nearest is None or abs(inside - ns) < abs(nearest[1] - ns):
                nearest = tid, inside
    tid, ns = (1, ns) if nearest is None else nearest
    return {"pid": rank + 1, "tid": tid, "ts": _microseconds(ns)}


# -- sets of time intervals as pairs of arrays, for traces of a hundred thousand spans ---------------------------------


def times(spans) -> tuple[np.ndarray, np.ndarray]:
    """Return where spans start, and where they end."""
    start, end = np.array([(s.start, s.end) for s in spans], float).reshape(-1, 2).T
    return start, end


def union(start, end):
    """Merge overlapping intervals."""
    order = np.argsort(start, kind="stable")
    start, end = np.asarray(start)[order], np.maximum.accumulate(np.asarray(end)[order])
    first = np.ones(len(start), bool)
    first[1:] = start[1:] > end[:-1]
    return start[first], end[np.append(first[1:], True)[: len(end)]]


def gaps(start, end, low: float, high: float):
    """Return the gaps between disjoint, ordered intervals from `low` to `high`."""
    free_start, free_end = np.append(low, end), np.append(start, high)
    kept = free_end > free_start
    return free_start[kept], free_end[kept]


def pieces(start, end, inside_start, inside_end):
    """Intersect intervals with others."""
    # start, end: Intervals to cut; they may overlap.
    # inside_start, inside_end: Disjoint and in order.
    # index: Which interval each piece is of.
    # start, end: (k,) array
    first = np.searchsorted(inside_end, start, side="right")
    count = np.maximum(np.searchsorted(inside_start, end, side="left") - first, 0)
    index = np.repeat(np.arange(len(start)), count)
    inside = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count) + first[index]
    return index, np.maximum(start[index], inside_start[inside]), np.minimum(end[index], inside_end[inside])


def length(pairs) -> float:
    """How much at least one of the (start, end) pairs covers."""
    start, end = union(*np.array(list(pairs)).reshape(-1, 2).T)
    return (end - start).sum().item()


class WallClock:
    """A `Clock` on the machine's monotonic clock.

    Parameters
    ----------
    rank : int
        The rank that its spans carry.
    trace : Trace, optional
        Where spans go; a new one by default.
    """

    def __init__(self, rank: int = 0, trace: Trace | None = None):
        self.rank = rank
        self.trace = Trace() if trace is None else trace
        self._zero = time.perf_counter()

    def restart(self) -> None:
        """Make this moment second 0."""
        self._zero = time.perf_counter()

    def now(self) -> float:
        """Seconds since the clock was made or restarted."""
        return time.perf_counter() - self._zero

    def sleep(self, seconds: float) -> None:
        """Wait in real time."""
        time.sleep(seconds)

    @contextmanager
    def span(self, name, *, lane="compute", flops=0, nbytes=0):
        """Record the block as one span."""
        start = self.now()
        try:
            yield
        finally:
            self.trace.spans.append(Span(self.rank, lane, name, start, self.now(), flops, nbytes))
