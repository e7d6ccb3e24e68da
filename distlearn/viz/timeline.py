"""The time line of a run: a row for every rank, in which waiting is visible.

Communication that runs while the rank computes costs nothing: it is a thin strip along the foot of the computing. What
is *exposed*, because the rank computes nothing meanwhile, fills the row; it is hatched where the rank waits for another
and nothing is on its way (on real ranks: where it is in a collective that another has not entered yet). Where a rank
does neither, its row is grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba, to_rgba_array
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from ..trace import gaps, pieces, union
from .look import (
    AMBER,
    COLORS,
    INK,
    NAVY,
    PURPLE,
    SKY,
    TEAL,
    TRACK,
    VERMILION,
    new_axes,
    rank_axis,
    rectangles,
    styled,
    time_axis,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..trace import Trace

# Colours of the usual names, unless a name that takes longer has it already; others get a free one.
FAMILY_COLORS = {
    "forward": SKY,
    "backward": NAVY,
    "update": AMBER,
    "all_reduce": VERMILION,
    "broadcast": PURPLE,
    "reduce_scatter": TEAL,
    "all_gather": PURPLE,
    "F": SKY,
    "B": NAVY,
}

SHARED = ("compute", "comm")  # Lanes that one line shows.
# A rank waits for another if it is in a call of the communicator and none of its messages is on its way.
WAITING = {"facecolor": "#fbe9e5", "edgecolor": "#d98a7d", "hatch": "////"}
OTHER, OTHER_COLOR, OTHER_HATCH = "other", "#9aa2ab", "///"
STRIP = 0.32  # Share of a row's height that hidden communication takes.
DENSE = 3000  # With more bars than this they have no edges: most are narrower than a pixel.
LEAST = 1e-3  # Hidden communication is visible, and in the legend, from this share of the time.
MOST_RANKS = 64  # Of more ranks this many are shown, evenly spaced, the first and the last among them.


@dataclass(frozen=True)
class Bars:
    """Spans as arrays."""

    ranks: list[int]  # of each row, from the top
    lanes: list[str]  # meaning of the numbers in `lane`; computing is first
    names: list[str]  # meaning of the numbers in `family`
    low: float  # the window [s]
    high: float
    row: np.ndarray
    lane: np.ndarray
    family: np.ndarray
    start: np.ndarray  # cut off at the window [s]; every span has a length
    end: np.ndarray

    def families(self, lane: str) -> list[str]:
        mine = self.lane == self.lanes.index(lane)
        seconds = np.bincount(self.family[mine], (self.end - self.start)[mine], len(self.names))
        order = np.argsort(-seconds, kind="stable")
        return [self.names[i] for i in order if seconds[i] > 0]

    def on(self, lane: str, row: int) -> np.ndarray:
        if lane not in self.lanes:
            return np.empty(0, int)
        return np.flatnonzero((self.lane == self.lanes.index(lane)) & (self.row == row))

    def cut(self, which: np.ndarray, *, exposed: bool):
        """Intersect spans with the time in which their rank is idle, or computes; return (span, start, end)."""
        found = []
        for row in range(len(self.ranks)):
            mine, busy = which[self.row[which] == row], self.on("compute", row)
            within = union(self.start[busy], self.end[busy])
            if exposed:
                within = gaps(*within, self.low, self.high)
            index, start, end = pieces(self.start[mine], self.end[mine], *within)
            found.append((mine[index], start, end))
        return tuple(np.concatenate(columns) for columns in zip(*found, strict=True))

    def waiting(self, trace):
        """Return when ranks wait: exposed communication in which no message of the rank is in flight."""
        # Of a trace without messages, as those of real ranks are: in a collective that some rank has not entered yet.
        # trace: the whole trace.
        # row, start, end: (n,) array
        found = [(np.empty(0, int), np.empty(0), np.empty(0))]
        comm = np.flatnonzero(self.lane == self.lanes.index("comm")) if "comm" in self.lanes else np.empty(0, int)
        which, start, end = self.cut(comm, exposed=True)
        times = {rank: [] for rank in self.ranks}  # of messages on their way, or of waiting
        on_the_way = ((rank, m.sent, m.arrived) for m in trace.messages for rank in {m.source, m.dest})
        for rank, a, b in on_the_way if trace.messages else trace.waits():
            if rank in times:
                times[rank].append((a, b))
        for row, rank in enumerate(self.ranks):
            mine = self.row[which] == row
            if times[rank] and mine.any():
                quiet = union(*np.array(times[rank], float).T)
                if trace.messages:
                    quiet = gaps(*quiet, min(self.low, quiet[0][0]), max(self.high, quiet[1][-1]))
                _, left, right = pieces(*union(start[mine], end[mine]), *quiet)
                found.append((np.full(len(left), row), left, right))
        return tuple(np.concatenate(columns) for columns in zip(*found, strict=True))


def family(name: str) -> str:
    """Return a span's name without its layer or number: "forward[0.Linear]" and "forward#3" are of "forward"."""
    return name.partition("#")[0].partition("[")[0]


def select(trace, start: float | None = None, end: float | None = None) -> Bars:
    """Turn a trace into `Bars`; raise ValueError if there would be none."""
    shown = trace.ranks
    if not shown:
        raise ValueError("plot_timeline: the trace is empty; run something in the world first")
    if len(shown) > MOST_RANKS:
        shown = [shown[i] for i in np.linspace(0, len(shown) - 1, MOST_RANKS).round().astype(int)]
    row_of = {rank: i for i, rank in enumerate(shown)}
    spans = [s for s in trace.spans if s.rank in row_of and s.end > s.start]
    if not spans:
        remedy = "choose a compute model or a network; plot_spacetime(world) draws messages"
        raise ValueError(f"plot_timeline: no time passes in the spans of {trace!r}; {remedy}")
    begins, ends = np.array([(s.start, s.end) for s in spans], float).T
    low = float(begins.min()) if start is None else float(start)
    high = float(ends.max()) if end is None else float(end)
    if not low < high:
        raise ValueError(f"plot_timeline: start is {low!r} and end {high!r}, expected start < end (seconds)")
    inside = (ends > low) & (begins < high)
    if not inside.any():
        span = f"{begins.min():.6g} s to {ends.max():.6g} s"
        raise ValueError(f"plot_timeline: nothing happens from {low!r} s to {high!r} s; the trace runs from {span}")
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


@styled
def plot_timeline(
    trace: Trace,
    *,
    start: float | None = None,
    end: float | None = None,
    path: Sequence[Any] = (),
    ax: Axes | None = None,
    title: str = "",
    legend: bool = True,
) -> Axes:
    """Draw the time of every rank: computing, communication, waiting.

    Parameters
    ----------
    trace : Trace
        Of a simulated or a real run; `world.trace`.
    start, end : float, optional
        Show the time from `start` to `end` [s]; all of it by default. The labels count from `start`.
    path : sequence of Step
        The critical path to draw: `Replay.path`.

    Returns
    -------
    ax : Axes
        Its x axis holds seconds, its y axis row numbers (0 is the top row).
    """
    bars = select(trace, start, end)
    n = len(bars.ranks)
    if ax is None:
        (ax,) = new_axes(figsize=(8.4, float(np.clip(min(1.1 + 0.5 * n, 2.1 + 0.25 * n), 2.3, 8.5))))
    colours = _colours(bars)
    if set(SHARED) & set(bars.lanes):  # a grey background, visible where a rank is idle
        rows, low, high = np.arange(n), np.full(n, bars.low), np.full(n, bars.high)
        track = np.tile(to_rgba(TRACK), (n, 1))
        _add(ax, bars, _place(bars, "compute"), low, high, rows, track, "idle", edged=False)
    for lane in bars.lanes:
        _draw_lane(ax, bars, lane, colours)
    waits = _draw_waiting(ax, bars, trace)
    line = [(t, bars.ranks.index(step.rank)) for step in path if step.rank in bars.ranks for t in step[3:]]
    look = {"color": INK, "linewidth": 2.2, "gid": "path", "zorder": 4, "label": "critical path"}
    critical = ax.plot(*zip(*line, strict=True), **look) if line else []
    _label(ax, bars, len(trace.ranks))
    if legend:
        handles = _legend(bars, colours, waits) + critical
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0, handlelength=1.2)
    write_title(ax, title)
    return ax


def _colours(bars: Bars) -> dict[tuple[str, str], str]:
    """Colour of every (lane, family): the usual one, a free one, or grey for the shortest when colours run out."""
    families = [(lane, family) for lane in bars.lanes for family in bars.families(lane)]
    colours = {}
    for key in families:
        usual = FAMILY_COLORS.get(key[1])
        if usual and usual not in colours.values():
            colours[key] = usual
    free = [c for c in COLORS if c not in colours.values()]
    return {key: colours.get(key) or (free.pop(0) if free else OTHER_COLOR) for key in families}


def _place(bars: Bars, lane: str) -> tuple[float, float]:
    """Top and bottom of a lane in a row centred at 0: computing and communication share one, any others are below."""
    below = [name for name in bars.lanes if name not in SHARED]
    parts = np.array([2.0] * (len(below) < len(bars.lanes)) + [1.0] * len(below))
    height = 0.84 if len(bars.ranks) <= 100 else 1.0  # rows are 1 apart; between rows of three pixels there is no room
    edges = np.append(0, np.cumsum(parts)) / parts.sum() * height - height / 2
    i = 0 if lane in SHARED else len(parts) - len(below) + below.index(lane)
    return edges[i], edges[i + 1]


def _add(ax, bars: Bars, place, left, right, row, faces, gid: str, edged=True, hatch=None) -> None:
    dense = len(bars.start) > DENSE
    edges, width = "none", 0.0
    if edged and not dense:  # a light edge between neighbours, except where it would cover the box
        wide = (right - left) > 0.006 * (bars.high - bars.low)
        edges, width = np.where(wide[:, None], (1.0, 1.0, 1.0, 1.0), faces), 0.6
    if hatch:  # its lines have the colour of the edges
        edges = "white"
    boxes = PolyCollection(
        rectangles(row, left, right, *place), facecolors=faces, edgecolors=edges, linewidths=width, hatch=hatch
    )
    boxes.set(gid=gid, snap=False if dense else None)  # snapping would drop boxes that are narrower than a pixel
    ax.add_collection(boxes, autolim=False)


def _draw_lane(ax, bars: Bars, lane: str, colours) -> None:
    mine = np.flatnonzero(bars.lane == bars.lanes.index(lane))
    mine = mine[np.lexsort((bars.start[mine] - bars.end[mine], bars.start[mine]))]  # an outer span below the inner ones
    named = [colours.get((lane, name), OTHER_COLOR) for name in bars.names]
    faces, other = to_rgba_array(named)[bars.family], np.array(named)[bars.family] == OTHER_COLOR
    top, bottom = _place(bars, lane)
    strip = bottom - STRIP * (bottom - top)
    for some, gid, hatch in ((mine[~other[mine]], lane, None), (mine[other[mine]], f"{lane}, {OTHER}", OTHER_HATCH)):
        if gid != lane and not len(some):
            continue
        if lane == "comm":
            for kind, place in (("exposed", (top, bottom)), ("hidden", (strip, bottom))):
                which, left, right = bars.cut(some, exposed=kind == "exposed")
                _add(ax, bars, place, left, right, bars.row[which], faces[which], f"{gid}, {kind}", hatch=hatch)
        else:
            times = bars.start[some], bars.end[some]
            _add(ax, bars, (top, bottom), *times, bars.row[some], faces[some], gid, hatch=hatch)


def _draw_waiting(ax, bars: Bars, trace) -> bool:
    """Mark exposed communication without messages in flight; say whether there is enough of it to be seen."""
    row, left, right = bars.waiting(trace)
    if not len(row) or (right - left).sum() < 10 * LEAST * (bars.high - bars.low) * len(bars.ranks):
        return False
    boxes = rectangles(row, left, right, *_place(bars, "comm"))
    ax.add_collection(PolyCollection(boxes, linewidths=0.6, gid="waiting", **WAITING), autolim=False)
    return True


def _label(ax, bars: Bars, n_ranks: int) -> None:
    shown = bars.ranks
    time_axis(ax.xaxis, bars.high - bars.low, "time", zero=bars.low)
    ax.set_xlim(bars.low, bars.high)
    rank_axis(ax, range(len(shown)), "rank" if n_ranks == len(shown) else f"rank ({len(shown)} of {n_ranks} shown)")
    name = lambda y, _: str(shown[round(y)]) if 0 <= round(y) < len(shown) and y == round(y) else ""  # noqa: E731
    ax.yaxis.set_major_formatter(FuncFormatter(name))


def _legend(bars: Bars, colours, waits: bool) -> list[Any]:
    order = {name: i for i, name in enumerate(FAMILY_COLORS)}  # of a step; the other families follow by name
    own = [key for key in colours if colours[key] != OTHER_COLOR]
    own.sort(key=lambda key: (order.get(key[1], len(order)), key[1]))
    handles = [Patch(facecolor=colours[key], label=key[1]) for key in own]
    if len(own) < len(colours):
        look = {"facecolor": OTHER_COLOR, "edgecolor": "white", "hatch": OTHER_HATCH}
        handles.append(Patch(label=OTHER, **look))
    hidden = 0.0  # share of all rows' time in which a rank communicates under its computing
    if set(SHARED) <= set(bars.lanes):
        _, start, end = bars.cut(np.flatnonzero(bars.lane == bars.lanes.index("comm")), exposed=False)
        hidden = (end - start).sum() / ((bars.high - bars.low) * len(bars.ranks))
    if hidden > LEAST:
        colour = colours["comm", bars.families("comm")[0]]
        handles.append(Line2D([], [], color=colour, linewidth=3, solid_capstyle="butt", label="hidden (thin)"))
    if waits:
        handles.append(Patch(label="waiting", **WAITING))
    if set(SHARED) & set(bars.lanes):
        handles.append(Patch(facecolor=TRACK, label="idle"))
    return handles
