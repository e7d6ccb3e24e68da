"""Where scaling stalls, and what helps: iteration and communication by number of nodes, with and without remedies."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from ..tables import format_time
from .look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title
from .steps import draw_steps


@styled
def plot_stall(curves, *, axes=None):
    """Draw the time of an iteration and of its communication against the number of nodes, a panel for each model.

    Where a line meets the shaded communication, computing no longer matters. A ring marks where scaling stalls: the
    first number of nodes at which the efficiency is below one half.

    Parameters
    ----------
    curves : list of Curve
        From `experiments.stall_study` or `experiments.scaling_curve`.
    axes : sequence of Axes, optional
        Where to draw, one for each model.

    Returns
    -------
    axes : list of Axes
    """
    if not curves:
        raise ValueError("plot_stall: there are no curves")
    models = [list(group) for _, group in groupby(curves, key=lambda c: c.model)]
    made = axes is None
    if made:
        axes = new_axes(len(models), figsize=(5.6 * len(models), 4.0), sharey=True)
    axes = list(np.ravel(axes))
    if len(axes) != len(models):
        raise ValueError(f"plot_stall: {len(axes)} axes, expected one for each of the {len(models)} models")
    for ax, group in zip(axes, models, strict=True):
        for i, curve in enumerate(group):
            _draw(ax, curve, i)
        _shade(ax, group, _limits(curves)[0])
        _nodes_axis(ax, group)
        ax.set_ylim(_limits(curves))
        write_title(ax, _finding(group))
    axes[0].set_ylabel("time of an iteration")
    if made:
        axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    else:
        axes[0].legend()
    return axes


def _draw(ax, curve, i: int) -> None:
    """One curve, and a ring where it stalls."""
    nodes, times = [p.nodes for p in curve.points], [p.seconds for p in curve.points]
    look = {"color": COLORS[i % 6], "linestyle": LINES[i % 6], "marker": MARKERS[i % 6]}
    ax.plot(nodes, times, label=curve.label, zorder=3, **look)
    stall = curve.stall()
    if stall is not None:
        ring = {"marker": "o", "markersize": 14, "markerfacecolor": "none", "markeredgewidth": 1.6}
        ax.plot([stall], [times[nodes.index(stall)]], color=INK, linestyle="", zorder=4, **ring)


def _shade(ax, group, low: float) -> None:
    """The time of communication, which depends on the nodes alone."""
    points = max(group, key=lambda c: c.batch).points
    shown = [(p.nodes, p.communicating) for p in points if p.communicating > 0]
    ax.fill_between(*zip(*shown, strict=True), low, color=MUTED, alpha=0.18, linewidth=0, label="communication")


def _limits(curves) -> tuple[float, float]:
    """Limits of a logarithmic axis that shows every time of all curves."""
    times = [t for c in curves for p in c.points for t in (p.seconds, p.communicating) if t > 0]
    return min(times) / 1.5, max(times) * 1.6


def _nodes_axis(ax, group) -> None:
    """Numbers of nodes, doublings equally far apart; times as a logarithm."""
    nodes = sorted({p.nodes for c in group for p in c.points})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(FixedLocator(nodes, nbins=12))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda p, _: f"{p:.0f}"))
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda t, _: format_time(t)))
    ax.set_xlabel(f"nodes ({group[0].network})")


def _finding(group) -> str:
    """Where a model stalls, over its batch sizes."""
    model, stalls = group[0].model, [c.stall() for c in group]
    some = [s for s in stalls if s is not None]
    if not some:
        worst = min(c.efficiency(c.points[-1]) for c in group)
        return f"{model} keeps {worst:.0%} on {group[0].points[-1].nodes:,} nodes"
    where = f"{min(some):,}" if min(some) == max(some) else f"{min(some):,} to {max(some):,}"
    if len(some) == len(stalls):
        return f"{model} stalls at {where} nodes"
    free = [c.batch for c, s in zip(group, stalls, strict=True) if s is None]
    return f"{model} stalls at {where} nodes, not with {min(free):,} images"


@styled
def plot_remedies(curves, *, nodes: int | None = None, ax=None):
    """Draw an iteration with each remedy: bars of computing and of waiting for the network.

    Parameters
    ----------
    curves : list of Curve
        From `experiments.remedies`; the first one is what the others are compared with.
    nodes : int, optional
        At which number of nodes; the largest by default.
    ax : Axes, optional

    Returns
    -------
    ax : Axes
    """
    if len(curves) < 2:
        raise ValueError(f"plot_remedies: {len(curves)} curves, expected one without a remedy and others to compare")
    nodes = curves[0].points[-1].nodes if nodes is None else nodes
    points = {c.remedy or "as it is": next((p for p in c.points if p.nodes == nodes), None) for c in curves}
    if None in points.values():
        raise ValueError(f"plot_remedies: not every curve has a point of {nodes} nodes")
    made = ax is None
    ax = new_axes(1, figsize=(8.4, 0.42 * len(points) + 1.5))[0] if made else ax
    first = next(iter(points.values()))
    rows = {}
    for name, point in points.items():
        gain = "" if point is first else f"{_relative(first, point):.2g} times as fast"
        rows[name] = {"computing": point.computing, "communication": point.seconds - point.computing}, gain
    draw_steps(ax, rows, below=made)
    write_title(ax, _best_remedy(curves[0], points, nodes))
    return ax


def _relative(before, after) -> float:
    """How many times more images a second."""
    return after.throughput / before.throughput


def _best_remedy(curve, points, nodes: int) -> str:
    """What helps most, and what the least, in a line."""
    first, *rest = points
    gains = {name: _relative(points[first], points[name]) for name in rest}
    best, worst = max(gains, key=gains.get), min(gains, key=gains.get)
    where = f"{curve.model} on {nodes} nodes, {curve.network}"
    if max(gains.values()) < 1.05:
        return f"{where}: no remedy gains 5 %"
    return f"{where}: {best} is {gains[best]:.2g} times as fast, {worst} {gains[worst]:.2g}"
