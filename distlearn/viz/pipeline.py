"""Plots of pipeline schedules: which rank runs which micro-batch when, and how large the bubble is.

Forward is light and backward dark, so the two stay apart in greyscale; where a rank has several stages, the later ones
are paler and hatched. The grey rest is the bubble. In a deadlock, an open box shows the action that a rank cannot
start, and an arrow comes from the action that it waits for: it points back in time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from ..parallel.pipeline.schedule import Action, Deadlock, Schedule, Simulated, TimedAction, actions_of, simulate
from ..trace import Trace
from .look import (
    AMBER,
    INK,
    MUTED,
    NAVY,
    SKY,
    TEAL,
    TRACK,
    VERMILION,
    lightness,
    new_axes,
    rank_axis,
    rectangles,
    styled,
    time_axis,
    write_title,
)  # fmt: skip

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KIND_COLORS = {"F": SKY, "B": NAVY, "I": NAVY, "W": TEAL}
KIND_NAMES = {"F": "forward", "B": "backward", "I": "gradient of the input", "W": "gradient of the weights"}
HATCHES = {"W": "\\\\\\"}  # Halves of backward differ in greyscale, too, where stages have shades.
# Of a rank's first stage, its second one and so on: their shades alone are too close in greyscale.
STAGE_HATCHES = ("", "...", "///", "ooo", "+++", "xxx")
PALEST = {"F": 0.5, "B": 0.3, "I": 0.3, "W": 0.4}  # How far the palest box of a kind is on its way to white.
HEIGHT = 0.86
WAITING = 0.08  # Share of the width for an open box of a deadlocked rank.
EDGE = 0.2  # From the middle of a row to where an arrow begins or ends: beside the text of its box.
# Smallest and largest type of the numbers in the boxes [points]; boxes that are too small for it have none.
NUMBER_POINTS = (5.5, 10.5)


@styled
def plot_schedule(
    schedule: Any,
    n_ranks: int | None = None,
    n_microbatches: int | None = None,
    *,
    ax: Axes | None = None,
    title: str = "",
    legend: bool = True,
    **options: Any,
) -> Axes:
    """Draw a pipeline schedule: a row for each rank, a box with its number for every micro-batch on its way.

    Parameters
    ----------
    schedule : str, callable, list, Schedule, Simulated or Trace
        A schedule in any form (`make_schedule`), which is simulated first; a result of `simulate`; or the trace of a
        run with `Pipeline` or `PipeDream`, simulated or real (`world.trace`, or a `window` of it). A schedule that
        deadlocks is drawn up to the deadlock; arrows then show the dependencies that it breaks.
    n_ranks, n_microbatches : int, optional
        Needed for names and generators.
    **options
        Go to `simulate`: `forward=`, `backward=`, `transfer=`, and on to the generator: `n_virtual=`.

    Returns
    -------
    ax : Axes
        Its x axis holds seconds from the first start (or forward passes, where a schedule came without costs), its
        y axis ranks.
    """
    shown = content(schedule, n_ranks, n_microbatches, **options)
    if ax is None:
        (ax,) = new_axes(figsize=(9.6, float(np.clip(1.2 + 0.42 * len(shown.ranks), 1.9, 8.0))))
    waiting = shown.deadlock.waiting if shown.deadlock else ()
    stuck = {(w.rank, action): i for w in waiting for i, action in enumerate(shown.stuck(w.rank))}
    columns = max(stuck.values(), default=-1) + 1  # boxes side by side
    length = (shown.end or 1.0) / (1 - min(0.6, WAITING * columns))  # 1: nothing ran
    styles = _styles(shown)
    _draw(ax, [(r, 0.0, length) for r in shown.ranks], [to_rgb(TRACK)] * len(shown.ranks), "bubble")
    for kind, name in KIND_NAMES.items():
        of_kind = [a for a in shown.actions if a.action.kind == kind]
        for hatch in dict.fromkeys(styles[a.rank, a.action.stage, kind][1] for a in of_kind):
            mine = [a for a in of_kind if styles[a.rank, a.action.stage, kind][1] == hatch]
            faces = [styles[a.rank, a.action.stage, kind][0] for a in mine]
            _draw(ax, [(a.rank, a.start, a.end) for a in mine], faces, name, length, hatch)
    _draw(ax, shown.updates, [to_rgb(AMBER)] * len(shown.updates), "update")
    _axes(ax, shown, length)
    if shown.deadlock is not None:
        _draw_waiting(ax, shown, stuck, length)
    _number(ax, shown, length, styles)
    if legend:
        handles = _legend(shown, styles)
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0, handlelength=1.2)
    write_title(ax, title)
    return ax


@dataclass(frozen=True)
class Content:
    """Actions and updates by rank; the first one starts at 0."""

    actions: list[TimedAction]
    ranks: list[int]
    updates: list[tuple[int, float, float]] = field(default_factory=list)
    deadlock: Deadlock | None = None
    schedule: Schedule | None = None
    timed: bool = True

    @property
    def end(self) -> float:
        return max([a.end for a in self.actions] + [end for *_, end in self.updates], default=0.0)

    @cached_property
    def stages(self) -> dict[int, list[int]]:
        return {r: sorted({a.action.stage for a in self.actions if a.rank == r}) for r in self.ranks}

    def waits_from(self, rank: int) -> float:
        """The time from which a deadlocked rank waits; ranks of a cycle wait from when the last of them does."""
        cycle = self.deadlock.cycle
        together = cycle if rank in cycle else [rank]
        return max((a.end for a in self.actions if a.rank in together), default=0.0)

    def stuck(self, rank: int) -> list[Action]:
        """A rank's actions from the one that it cannot start to the last one at which a broken arrow begins."""
        waiting = next(w for w in self.deadlock.waiting if w.rank == rank)
        wanted = {arrow.before for arrow in self.deadlock.arrows}
        rest = list(self.schedule.orders[rank])[waiting.position :]
        last = max((i for i, action in enumerate(rest) if action in wanted), default=0)
        return rest[: last + 1]

    def short(self, action: Action) -> Action:
        """Return an action as text, without its stage if rank r has only stage r."""
        simple = all(stages in ([], [rank]) for rank, stages in self.stages.items())
        return action._replace(stage=None) if simple else action


def content(schedule, n_ranks=None, n_microbatches=None, **options) -> Content:
    """Return the content to draw of a schedule in any form, of a result of `simulate`, or of a trace."""
    if isinstance(schedule, (Trace, Simulated)):
        if n_ranks is not None or n_microbatches is not None or options:
            raise ValueError("plot_schedule: a Trace or a Simulated has its ranks, micro-batches and times already")
        return _of_trace(schedule) if isinstance(schedule, Trace) else _of_simulated(schedule, True)
    run = simulate(schedule, n_ranks, n_microbatches, allow_deadlock=True, **options)
    return _of_simulated(run, bool({"forward", "backward"} & set(options)))


def _of_simulated(run: Simulated, timed: bool) -> Content:
    actions = [a for a in actions_of(run.trace) if a.end > a.start]
    ranks = list(range(run.schedule.n_ranks))
    return Content(actions, ranks, deadlock=run.deadlock, schedule=run.schedule, timed=timed)


def _of_trace(trace: Trace) -> Content:
    actions = [a for a in actions_of(trace) if a.end > a.start]
    if not actions:
        raise ValueError(f"plot_schedule: no action of a pipeline takes time in {trace!r}; choose a compute model")
    ranks, zero = sorted({a.rank for a in actions}), min(a.start for a in actions)
    spans = [s for s in trace.select(lane="compute", name="update") if s.rank in ranks and s.end > s.start >= zero]
    updates = [(s.rank, s.start - zero, s.end - zero) for s in spans]
    return Content([a._replace(start=a.start - zero, end=a.end - zero) for a in actions], ranks, updates)


def _styles(shown: Content) -> dict[str, Any]:
    """Colour and hatch of each (rank, stage, kind): the rank's later stages are paler."""
    styles = {}
    for rank, stages in shown.stages.items():
        for i, stage in enumerate(stages):
            for kind, color in KIND_COLORS.items():
                pale = PALEST[kind] * i / max(1, len(stages) - 1)
                face = tuple(c + pale * (1 - c) for c in to_rgb(color))
                styles[rank, stage, kind] = face, HATCHES.get(kind, "") + STAGE_HATCHES[i % len(STAGE_HATCHES)] or None
    return styles


def _corners(bars) -> np.ndarray:
    return rectangles(*np.array(bars, float).T, -HEIGHT / 2, HEIGHT / 2)


def _draw(ax, bars, faces, gid: str, length: float = 0.0, hatch: str | None = None) -> None:
    """Draw boxes (row, left, right), all in one collection; with a light seam where they are wide enough for it."""
    if bars:
        seams = [0.7 if length and right - left > length / 120 else 0.0 for _, left, right in bars]
        boxes = PolyCollection(
            _corners(bars), facecolors=faces, edgecolors="white", linewidths=seams, hatch=hatch, gid=gid
        )
        ax.add_collection(boxes)


def _draw_waiting(ax, shown: Content, stuck: dict[str, Any], length: float) -> None:
    """Draw the open boxes, whose places count from where a rank waits, and the arrows between them."""
    width = (length - (shown.end or 1.0) * (shown.end > 0)) / (max(stuck.values()) + 1)
    waiting = {w.rank: w.action for w in shown.deadlock.waiting}
    corners = {
        (rank, action): (rank, shown.waits_from(rank) + at * width, shown.waits_from(rank) + (at + 0.94) * width)
        for (rank, action), at in stuck.items()
    }
    for gid, color, dashes, first in (("waiting", VERMILION, (0, (3, 1.5)), True), ("behind", MUTED, "-", False)):
        bars = [bar for (rank, action), bar in corners.items() if (waiting[rank] == action) == first]
        look = {"facecolors": "white", "edgecolors": color, "linewidths": 1.6 if first else 1.0, "linestyles": dashes}
        if bars:
            ax.add_collection(PolyCollection(_corners(bars), gid=gid, clip_on=False, zorder=2, **look))
    for (rank, action), (_, left, right) in corners.items():
        waits = waiting[rank] == action
        place = {"ha": "center", "va": "center_baseline", "fontsize": 10, "zorder": 3}
        look = {"color": VERMILION, "fontweight": "bold"} if waits else {"color": INK}
        ax.text((left + right) / 2, rank, f"{shown.short(action)}{'?' * waits}", **place, **look)
    ranks = {action: rank for rank, action in corners}
    for arrow in shown.deadlock.arrows:
        ends = [corners[ranks[action], action] for action in arrow]
        _draw_arrow(ax, *ends)


def _draw_arrow(ax, before, after) -> None:
    """Draw an arrow from one box (row, left, right) to another: between the rows, or over them in the same row."""
    down = np.sign(after[0] - before[0])
    if down:
        tail, head = ((sum(box[1:]) / 2, box[0] + side * down * EDGE) for box, side in ((before, 1), (after, -1)))
    else:
        tail, head = ((sum(box[1:]) / 2, box[0] - HEIGHT / 2) for box in (before, after))
    curve = "arc3,rad=0" if down else "arc3,rad=0.4"
    look = {"arrowstyle": "-|>", "color": VERMILION, "lw": 1.8, "shrinkA": 0, "shrinkB": 0, "connectionstyle": curve}
    ax.annotate("", head, tail, arrowprops=look, annotation_clip=False, zorder=4, gid="broken")


def _axes(ax, shown: Content, length: float) -> None:
    if shown.timed:
        time_axis(ax.xaxis, length, "time")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.set_xlabel("time [forward passes of a micro-batch]")
    ax.set_xlim(0, length)
    rank_axis(ax, shown.ranks)


def _number(ax, shown: Content, length: float, styles) -> None:
    points = ax.figure.get_size_inches() * 72 * (0.78, 0.7)  # about the share of the figure that the axes take
    wide, tall = points[0] / length, points[1] / (1 + max(shown.ranks) - min(shown.ranks))
    smallest, largest = NUMBER_POINTS
    for a in shown.actions:
        text = str(a.action.microbatch)
        size = min(largest, 0.62 * HEIGHT * tall, (a.end - a.start) * wide / (0.62 * len(text) + 0.35))
        if size >= smallest:
            face, hatch = styles[a.rank, a.action.stage, a.action.kind]
            color = "white" if lightness(face) < 60 else INK
            place = {"ha": "center", "va": "center_baseline", "fontsize": size, "clip_on": True}
            halo = [withStroke(linewidth=5, foreground=face)] if hatch else None
            ax.text((a.start + a.end) / 2, a.rank, text, color=color, path_effects=halo, **place)


def _legend(shown: Content, styles) -> list[Any]:
    rank = max(shown.ranks, key=lambda r: (len(shown.stages[r]), -r))
    ordinal = ["", ", 2nd stage", ", 3rd stage"]
    handles = []
    there = {a.action.kind for a in shown.actions}
    for kind, name in KIND_NAMES.items():
        for i, stage in enumerate(shown.stages[rank] if kind in there else ()):
            which = ordinal[i] if i < 3 else f", {i + 1}th stage"
            face, hatch = styles[rank, stage, kind]
            handles.append(Patch(label=f"{name}{which}", hatch=hatch, facecolor=face, edgecolor="white", linewidth=0))
    if shown.updates:
        handles.append(Patch(facecolor=AMBER, label="update"))
    handles.append(Patch(facecolor=TRACK, label="bubble"))
    if shown.deadlock:
        handles.append(Line2D([], [], color=VERMILION, marker=">", label="must come before"))
        look = {"facecolor": "white", "edgecolor": VERMILION, "linestyle": (0, (3, 1.5))}
        handles.append(Patch(label="waits forever", **look))
    return handles
