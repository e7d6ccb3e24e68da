"""Plots of failures: which ranks failed and what it cost, recovery on engines, how often to save."""

from __future__ import annotations

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..tables import format_duration
from .intervals import union
from .look import AMBER, INK, MUTED, NAVY, TEAL, TRACK, VERMILION, new_axes, styled, write_title
from .units import count_axis, time_axis


@styled
def plot_recoveries(trace, *, ax=None, title=""):
    """Draw a simulated run with failures: training, which ranks failed, the time to detection, and the recovery."""
    # trace: Of a `SimWorld` with failures.
    # ax: Its x axis holds seconds, its y axis ranks.
    lost = {span.rank: span for span in trace.select(lane="failure") if span.name != "recover"}
    ranks, end = trace.ranks, max(s.end for s in trace.spans if s.lane != "failure")
    if ax is None:
        (ax,) = new_axes(figsize=(8.4, 1.3 + 0.36 * len(ranks)))
    for row, rank in enumerate(ranks):
        last = lost[rank].start if rank in lost else end
        ax.barh(row, last, height=0.7, color=TRACK)
        for color, lanes in ((NAVY, ("compute", "comm")), (AMBER, ("recover",))):
            spans = [s for s in trace.select(rank=rank) if (s.name if s.lane == "failure" else s.lane) in lanes]
            if not spans:
                continue
            left, right = union(np.array([s.start for s in spans]), np.array([min(s.end, last) for s in spans]))
            ax.barh(np.full(len(left), row), right - left, left=left, height=0.7, color=color)
        if rank in lost:
            ax.barh(row, lost[rank].seconds, left=last, height=0.7, color=VERMILION)
            ax.text(lost[rank].end, row, f"  {_PAST[lost[rank].name]}", va="center", color=INK, fontsize=9)
    ax.set_yticks(range(len(ranks)), [str(r) for r in ranks])
    ax.set_ylim(len(ranks) - 0.5, -0.5)
    ax.set_xlim(0, end)
    ax.set_ylabel("rank")
    ax.grid(visible=False, axis="y")
    time_axis(ax.xaxis, end, "time")
    parts = ((NAVY, "training"), (VERMILION, "lost, not noticed"), (AMBER, "recovery"), (TRACK, "waiting"))
    handles = [Patch(facecolor=color, label=label) for color, label in parts]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0)
    write_title(ax, title)
    return ax


_PAST = {"kill": "killed", "hang": "hung", "cut": "cut off"}


@styled
def plot_restarts(run, *, ax=None, title=""):
    """Draw how training on real engines recovered from every failure: steps done over time."""
    # run: Of `distlearn.world.train_through_failures`.
    # ax: Its x axis holds seconds, its y axis steps.
    if ax is None:
        (ax,) = new_axes(figsize=(9.2, 3.4))
    when, steps = np.array(run.progress).T
    pieces = np.searchsorted(when, [r.noticed for r in run.restarts])
    for part_x, part_y in zip(np.split(when, pieces), np.split(steps, pieces), strict=True):
        ax.plot(part_x, part_y, color=NAVY, linestyle="-")
    for restart in run.restarts:
        ax.axvspan(restart.noticed, restart.resumed, color=AMBER, alpha=0.5, linewidth=0)
        ax.plot(restart.noticed, restart.reached, marker="X", markersize=8, color=VERMILION, linestyle="")
    ax.set_xlim(0, run.seconds)
    ax.set_ylim(0, steps.max() * 1.04)
    time_axis(ax.xaxis, run.seconds, "time")
    count_axis(ax.yaxis, "steps done")
    handles = [
        Line2D([], [], color=NAVY, label="training"),
        Line2D([], [], color=VERMILION, marker="X", linestyle="", markersize=8, label="failure noticed"),
        Patch(facecolor=AMBER, alpha=0.5, label="until the first new step"),
    ]
    ax.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0)
    write_title(ax, title)
    return ax


@styled
def plot_checkpoint_intervals(study, *, ax=None, title=""):
    """Draw the time of a run over the interval between checkpoints: predicted and simulated."""
    # study: Of `distlearn.parallel.study_intervals`.
    # ax: Its x axis holds the interval [s], its y axis the time of the run as a multiple of the work alone.
    if ax is None:
        (ax,) = new_axes(figsize=(9.2, 3.8))
    fine = np.geomspace(study.intervals[0], study.intervals[-1], 200)
    ax.plot(fine, study.predict(fine) / study.work, color=NAVY, linestyle="-", label="Daly's formula")
    ratio = study.seconds / study.work
    low, middle, high = np.percentile(ratio, 10, axis=1), ratio.mean(axis=1), np.percentile(ratio, 90, axis=1)
    bars = np.maximum([middle - low, high - middle], 0)
    label = f"simulated: mean\nand 80% of {ratio.shape[1]} runs"
    ax.errorbar(study.intervals, middle, bars, fmt="o", color=VERMILION, elinewidth=1.2, capsize=2, label=label)
    ax.axvline(study.young, color=MUTED, linestyle=(0, (1, 1.5)), label=f"Young: {format_duration(study.young)}")
    ax.axvline(study.daly, color=TEAL, linestyle=(0, (5, 1.5)), label=f"Daly: {format_duration(study.daly)}")
    ax.set_xscale("log")
    inside = [t for t in _NICE if study.intervals[0] / 1.05 <= t <= study.intervals[-1] * 1.05]
    ax.xaxis.set_major_locator(FixedLocator(inside))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda t, _: format_duration(t)))
    ax.set_ylim(1.0, min(high.max(), 2.2 * middle.min()) * 1.02)
    ax.set_xlabel("work between two checkpoints")
    ax.set_ylabel("time of the run / work")
    ax.legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0)
    write_title(ax, title)
    return ax


_NICE = [k * unit for unit, ks in ((1, (1, 3, 10, 30)), (60, (1, 3, 10, 30)), (3600, (1, 3, 10, 30))) for k in ks]
_NICE += [86400 * k for k in (3, 10, 30, 100)]
