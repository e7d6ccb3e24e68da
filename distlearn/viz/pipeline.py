"""Pipeline schedules as pictures: who runs which micro-batch when, and how large the bubble is.

Forward is light and backward dark, so the two stay apart in greyscale; where a rank has several stages, the later ones
are paler. What is left grey is the bubble.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, MaxNLocator

from ..parallel.schedule import SCHEDULES, Action, Simulated, format, simulate
from ..trace import Trace
from .look import AMBER, INK, NAVY, SKY, TRACK, lightness, new_axes, styled
from .units import time_axis

NAMES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved 1F1B", "pipedream": "PipeDream"}
KIND_COLORS = {"F": SKY, "B": NAVY}
KIND_NAMES = {"F": "forward", "B": "backward"}
PALEST = {"F": 0.5, "B": 0.3}
"""How far the palest box of a kind is on its way to white."""
HEIGHT = 0.86
NUMBER_POINTS = (5.5, 10.5)
"""Smallest and largest type of the numbers in the boxes [points]; boxes that are too small for it have none."""

_NAME = re.compile(r"([FB])\[(\d+)(?: of stage (\d+))?\]")


class Box(NamedTuple):
    """One action with its times [s]."""

    rank: int
    kind: str
    microbatch: int
    stage: int
    start: float
    end: float


@styled
def plot_schedule(
    schedule,
    n_ranks: int | None = None,
    n_microbatches: int | None = None,
    *,
    ax=None,
    title: str | None = None,
    numbers: bool = True,
    legend: bool = True,
    **options,
):
    """Draw a pipeline schedule: a row for each rank, a box with its number for every micro-batch on its way.

    Parameters
    ----------
    schedule : str, callable, list, Schedule, Simulated or Trace
        A schedule in any form (`make_schedule`), which is simulated first; what `simulate` returned; or the trace of a
        run with `Pipeline` or `PipeDream`, simulated or real (`world.trace`, or a `window` of it).
    n_ranks, n_microbatches : int, optional
        Needed for names and generators.
    ax : Axes, optional
        Where to draw.
    title : str, optional
        By default what it is, and its bubble: the share of all ranks' time from the first start to the last end.
    numbers : bool
        Write the micro-batches' numbers where they fit.
    legend : bool
    **options
        Go to `simulate`: `forward=`, `backward=`, `transfer=`, and on to the generator: `n_virtual=`.

    Returns
    -------
    ax : Axes
        Its x axis holds seconds from the first start (or forward passes, where a schedule came without costs), its
        y axis ranks.

    Raises
    ------
    ValueError
        If the schedule is wrong (the message is the checker's), or the trace has no pipeline in it.
    """
    timed = isinstance(schedule, (Trace, Simulated)) or {"forward", "backward"} & set(options)
    trace = _trace(schedule, n_ranks, n_microbatches, options)
    boxes, updates = _boxes(trace)
    ranks = sorted({b.rank for b in boxes})
    begin = min(b.start for b in boxes)
    length = max([b.end for b in boxes] + [s.end for s in updates]) - begin
    if ax is None:
        (ax,) = new_axes(figsize=(9.6, float(np.clip(1.2 + 0.42 * len(ranks), 1.9, 8.0))))
    shades = _shades(boxes)
    _draw(ax, [(r, 0.0, length) for r in ranks], [to_rgb(TRACK)] * len(ranks), "bubble")
    for kind in ("F", "B"):
        mine = [b for b in boxes if b.kind == kind]
        corners = [(b.rank, b.start - begin, b.end - begin) for b in mine]
        _draw(ax, corners, [shades[b.rank, b.stage, kind] for b in mine], KIND_NAMES[kind], length)
    _draw(ax, [(s.rank, s.start - begin, s.end - begin) for s in updates], [to_rgb(AMBER)] * len(updates), "update")
    _axes(ax, ranks, length, timed)
    if numbers:
        _number(ax, boxes, begin, length, shades)
    if legend:
        handles = _legend(boxes, shades, bool(updates))
        ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0, handlelength=1.2)
    ax.set_title(_finding(schedule, boxes) if title is None else title)
    return ax


def describe_schedule(schedule, n_ranks: int | None = None, n_microbatches: int | None = None, **options) -> str:
    """Say in words what `plot_schedule` shows, rank by rank: an alternative text for those who cannot see it.

    Parameters
    ----------
    schedule, n_ranks, n_microbatches, **options
        As for `plot_schedule`.

    Examples
    --------
    >>> describe_schedule("1f1b", 2, 2)
    '1F1B, 2 ranks, 2 micro-batches: bubble 33%. Rank 0: F0 F1 B0 B1. Rank 1: F0 B0 F1 B1.'
    """
    boxes, _ = _boxes(_trace(schedule, n_ranks, n_microbatches, options))
    simple = all(b.stage == b.rank for b in boxes)
    rows = {rank: [] for rank in sorted({b.rank for b in boxes})}
    for b in sorted(boxes, key=lambda b: b.start):
        rows[b.rank].append(Action(b.kind, b.microbatch, None if simple else b.stage))
    return f"{_finding(schedule, boxes)}. " + " ".join(f"Rank {rank}: {format(row)}." for rank, row in rows.items())


def _trace(schedule, n_ranks, n_microbatches, options) -> Trace:
    """The trace of whatever is to be drawn."""
    if isinstance(schedule, (Trace, Simulated)):
        if n_ranks is not None or n_microbatches is not None or options:
            raise ValueError("plot_schedule: a Trace or a Simulated has its ranks, micro-batches and times already")
        return schedule if isinstance(schedule, Trace) else schedule.trace
    return simulate(schedule, n_ranks, n_microbatches, **options).trace


def _boxes(trace: Trace):
    """The actions of a trace, and the updates of the ranks that have some."""
    boxes = []
    for s in trace.select(lane="stage"):
        match = _NAME.fullmatch(s.name)
        if match and s.end > s.start:
            kind, i, stage = match.groups()
            boxes.append(Box(s.rank, kind, int(i), s.rank if stage is None else int(stage), s.start, s.end))
    if not boxes:
        raise ValueError(
            f"plot_schedule: no action of a pipeline takes time in {trace!r}; simulate with a compute model that costs "
            "something (Roofline, Measured)"
        )
    ranks = {b.rank for b in boxes}
    return boxes, [s for s in trace.select(lane="compute", name="update") if s.rank in ranks and s.end > s.start]


def bubble_share(boxes: Sequence[Box]) -> float:
    """Share of the ranks' time, from the first start to the last end, in which they run no micro-batch."""
    length = max(b.end for b in boxes) - min(b.start for b in boxes)
    return 1 - sum(b.end - b.start for b in boxes) / (length * len({b.rank for b in boxes}))


def _shades(boxes) -> dict:
    """Colour of each (rank, stage, kind): the rank's later stages are paler."""
    shades = {}
    for rank in {b.rank for b in boxes}:
        stages = sorted({b.stage for b in boxes if b.rank == rank})
        for i, stage in enumerate(stages):
            for kind, color in KIND_COLORS.items():
                pale = PALEST[kind] * i / max(1, len(stages) - 1)
                shades[rank, stage, kind] = tuple(c + pale * (1 - c) for c in to_rgb(color))
    return shades


def _draw(ax, bars, faces, gid: str, length: float = 0.0) -> None:
    """Draw boxes (row, left, right), all in one collection; with a light seam between those that are wide enough."""
    if not bars:
        return
    row, left, right = np.array(bars, float).T
    corners = np.empty((len(row), 4, 2))
    corners[:, :2, 0], corners[:, 2:, 0] = left[:, None], right[:, None]
    corners[:, [0, 3], 1], corners[:, [1, 2], 1] = (row - HEIGHT / 2)[:, None], (row + HEIGHT / 2)[:, None]
    seams = np.where(length and right - left > length / 120, 0.7, 0.0)
    ax.add_collection(PolyCollection(corners, facecolors=faces, edgecolors="white", linewidths=seams, gid=gid))


def _axes(ax, ranks, length: float, timed: bool) -> None:
    """Axes, ticks and limits."""
    if timed:
        time_axis(ax.xaxis, length, "time")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        ax.set_xlabel("time [forward passes of a micro-batch]")
    ax.set_xlim(0, length)
    ax.set_ylim(max(ranks) + 0.5, min(ranks) - 0.5)
    ax.yaxis.set_major_locator(FixedLocator(ranks) if len(ranks) <= 16 else MaxNLocator(12, integer=True))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.set_ylabel("rank")


def _number(ax, boxes, begin: float, length: float, shades) -> None:
    """Write the numbers of the micro-batches into the boxes that have room for them."""
    figure = ax.figure
    points = figure.get_size_inches() * 72 * (0.78, 0.7)  # about what the axes take of the figure
    wide, tall = points[0] / length, points[1] / (1 + max(b.rank for b in boxes) - min(b.rank for b in boxes))
    smallest, largest = NUMBER_POINTS
    for box in boxes:
        text = str(box.microbatch)
        size = min(largest, 0.62 * HEIGHT * tall, (box.end - box.start) * wide / (0.62 * len(text) + 0.35))
        if size >= smallest:
            dark = lightness(shades[box.rank, box.stage, box.kind]) < 60
            ax.text(
                (box.start + box.end) / 2 - begin, box.rank, text, ha="center", va="center_baseline", fontsize=size,
                color="white" if dark else INK, clip_on=True,
            )  # fmt: skip


def _legend(boxes, shades, updates: bool) -> list:
    """What colour means what; on the rank with the most stages, each of its shades."""
    rank = max({b.rank for b in boxes}, key=lambda r: (len({b.stage for b in boxes if b.rank == r}), -r))
    stages = sorted({b.stage for b in boxes if b.rank == rank})
    ordinal = ["", ", 2nd stage", ", 3rd stage"]
    handles = []
    for kind, name in KIND_NAMES.items():
        for i, stage in enumerate(stages):
            which = ordinal[i] if i < 3 else f", {i + 1}th stage"
            handles.append(Patch(facecolor=shades[rank, stage, kind], label=f"{name}{which}"))
    if updates:
        handles.append(Patch(facecolor=AMBER, label="update"))
    return [*handles, Patch(facecolor=TRACK, label="bubble")]


def _finding(schedule, boxes) -> str:
    """What it is, and its bubble, in a line."""
    known = {function: name for name, function in SCHEDULES.items()}
    name = known.get(schedule) if callable(schedule) else schedule if isinstance(schedule, str) else None
    n, m = len({b.rank for b in boxes}), len({b.microbatch for b in boxes})
    what = [NAMES[name.strip()]] if name and name.strip() in NAMES else []
    what += [f"{n} rank{'s' * (n > 1)}", f"{m} micro-batch{'es' * (m > 1)}"]
    return f"{', '.join(what)}: bubble {bubble_share(boxes):.0%}"
