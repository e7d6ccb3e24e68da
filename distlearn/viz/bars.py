"""The part of a trace that a time line draws, as columns: some ranks, a window of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from . import intervals


@dataclass(frozen=True)
class Bars:
    """Spans as arrays.

    Attributes
    ----------
    ranks : list of int
        Rank of each row, from the top.
    lanes, names : list of str
        What the numbers in `lane` and `family` mean; computing comes first among the lanes.
    low, high : float
        The window [s].
    row, lane, family : (n,) array of int
    start, end : (n,) array
        Cut off at the window [s]; every span has a length.
    """

    ranks: list[int]
    lanes: list[str]
    names: list[str]
    low: float
    high: float
    row: np.ndarray
    lane: np.ndarray
    family: np.ndarray
    start: np.ndarray
    end: np.ndarray

    def families(self, lane: str) -> list[str]:
        """Families on a lane, the one with the most time first."""
        mine = self.lane == self.lanes.index(lane)
        seconds = np.bincount(self.family[mine], (self.end - self.start)[mine], len(self.names))
        order = np.argsort(-seconds, kind="stable")
        return [self.names[i] for i in order if seconds[i] > 0]

    def on(self, lane: str, row: int) -> np.ndarray:
        """Indices of the spans on one lane of one row."""
        if lane not in self.lanes:
            return np.empty(0, int)
        return np.flatnonzero((self.lane == self.lanes.index(lane)) & (self.row == row))

    def exposed(self, which: np.ndarray):
        """Cut spans down to the time in which their rank computes nothing; return (number of the span, start, end)."""
        return self._cut(which, lambda start, end: intervals.gaps(start, end, self.low, self.high))

    def hidden(self, which: np.ndarray):
        """Cut spans down to the time in which their rank computes; return (number of the span, start, end)."""
        return self._cut(which, lambda start, end: (start, end))

    def _cut(self, which, inside):
        """Cut spans down to the intervals that `inside` derives from the time in which their rank computes."""
        found = []
        for row in range(len(self.ranks)):
            mine, busy = which[self.row[which] == row], self.on("compute", row)
            within = inside(*intervals.union(self.start[busy], self.end[busy]))
            index, start, end = intervals.pieces(self.start[mine], self.end[mine], *within)
            found.append((mine[index], start, end))
        return tuple(np.concatenate(columns) for columns in zip(*found, strict=True))

    def waiting(self, trace):
        """Return when ranks wait: exposed communication in which no message of the rank is on its way."""
        # Of a trace without messages, as those of real ranks are: in a collective that some rank has not entered yet.
        # trace: What this is a part of.
        # row, start, end: (n,) array
        found = [(np.empty(0, int), np.empty(0), np.empty(0))]
        comm = np.flatnonzero(self.lane == self.lanes.index("comm")) if "comm" in self.lanes else np.empty(0, int)
        which, start, end = self.exposed(comm)
        alone = {rank: [] for rank in self.ranks}
        for rank, a, b in trace.waits() if not trace.messages else ():
            if rank in alone:
                alone[rank].append((a, b))
        on_the_way = {rank: [] for rank in self.ranks}
        for m in trace.messages:
            for rank in {m.source, m.dest} & on_the_way.keys():
                on_the_way[rank].append((m.sent, m.arrived))
        for row, rank in enumerate(self.ranks):
            mine = self.row[which] == row
            if not (on_the_way[rank] or alone[rank]) or not mine.any():
                continue
            quiet = intervals.union(*np.array(on_the_way[rank] or alone[rank], float).T)
            if on_the_way[rank]:
                quiet = intervals.gaps(*quiet, min(self.low, quiet[0][0]), max(self.high, quiet[1][-1]))
            _, left, right = intervals.pieces(*intervals.union(start[mine], end[mine]), *quiet)
            found.append((np.full(len(left), row), left, right))
        return tuple(np.concatenate(columns) for columns in zip(*found, strict=True))

    def shares(self) -> tuple[float, float]:
        """Shares of all rows' time: computing, and communicating while nothing is computed (exposed)."""
        computing = busy = 0.0
        for row in range(len(self.ranks)):
            compute = self.on("compute", row)
            either = np.append(compute, self.on("comm", row))
            computing += intervals.length(self.start[compute], self.end[compute])
            busy += intervals.length(self.start[either], self.end[either])
        whole = (self.high - self.low) * len(self.ranks)
        return computing / whole, (busy - computing) / whole


def family(name: str) -> str:
    """What a span's name says before its layer or number: "forward[0.Linear]" and "forward#3" are of "forward"."""
    return name.partition("#")[0].partition("[")[0]


def select(trace, ranks: Sequence[int] | None, start: float | None, end: float | None, max_ranks: int | None) -> Bars:
    """Turn a trace into `Bars`; raise ValueError if there would be none."""
    shown = _choose(trace, ranks, max_ranks)
    row_of = {rank: i for i, rank in enumerate(shown)}
    spans = [s for s in trace.spans if s.rank in row_of and s.end > s.start]
    events = [(m.sent, m.arrived) for m in trace.messages if m.source in row_of and m.dest in row_of]
    if not spans and not any(b > a for a, b in events):
        raise ValueError(
            f"plot_timeline: no time passes on ranks {_some(shown)} of {trace!r}: a compute model and a network that "
            "cost something make a time line (Roofline, Measured, Network)"
        )
    begins, ends = np.array([(s.start, s.end) for s in spans] or events, float).T
    low = float(begins.min()) if start is None else float(start)
    high = float(ends.max()) if end is None else float(end)
    if not low < high:
        raise ValueError(f"plot_timeline: start is {low!r} and end {high!r}, expected start < end (seconds)")
    inside = (ends > low) & (begins < high)
    if not inside.any():
        raise ValueError(
            f"plot_timeline: nothing happens on ranks {_some(shown)} from {low!r} s to {high!r} s; "
            f"the trace runs from {begins.min():.6g} s to {ends.max():.6g} s"
        )
    if not spans:
        begins, ends, inside = np.empty(0), np.empty(0), np.empty(0, bool)
    spans = [s for s, keep in zip(spans, inside, strict=True) if keep]
    lanes = sorted({s.lane for s in spans}, key=lambda lane: (lane != "compute", lane != "comm", lane))
    families = {name: family(name) for name in {s.name for s in spans}}
    names = sorted(set(families.values()))
    lane_of, family_of = {v: i for i, v in enumerate(lanes)}, {v: names.index(f) for v, f in families.items()}
    return Bars(
        *(shown, lanes, names, low, high),
        row=np.array([row_of[s.rank] for s in spans], int),
        lane=np.array([lane_of[s.lane] for s in spans], int),
        family=np.array([family_of[s.name] for s in spans], int),
        start=np.maximum(begins[inside], low),
        end=np.minimum(ends[inside], high),
    )


def _choose(trace, ranks, max_ranks) -> list[int]:
    known = trace.ranks
    if not known:
        raise ValueError("plot_timeline: the trace is empty; run something in the world first")
    shown = known if ranks is None else [int(r) for r in ranks]
    missing = sorted(set(shown) - set(known))
    if missing or not shown:
        raise ValueError(
            f"plot_timeline: ranks {missing or shown} are not in the trace, expected some of {_some(known)}"
        )
    if max_ranks is not None and not max_ranks >= 1:
        raise ValueError(f"plot_timeline: max_ranks is {max_ranks!r}, expected 1 or more, or None for all")
    if max_ranks is None or len(shown) <= max_ranks:
        return shown
    return [shown[i] for i in np.linspace(0, len(shown) - 1, max_ranks).round().astype(int)]


def _some(ranks: list[int]) -> str:
    return str(ranks) if len(ranks) <= 8 else f"[{ranks[0]}, {ranks[1]}, ..., {ranks[-1]}]"
