"""Which all-reduce is the fastest for which size of array: predicted by a network model, and measured."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..tables import format_time, quantity
from .look import COLORS, INK, MARKERS, MUTED, new_axes, styled, write_title


class Crossover(NamedTuple):
    """From `nbytes` on, `after` is the fastest instead of `before`."""

    nbytes: float
    before: str
    after: str


@styled
def plot_crossover(sweeps, *, ax=None, title=None):
    """Draw the seconds of several algorithms against the size of the array, and where the fastest changes.

    Lines are predictions, points are measurements; vertical lines mark where, by the model, another algorithm
    becomes the fastest (without predictions: where the measurements say so).

    Parameters
    ----------
    sweeps : Fit or dict of str to Sweep
        What `Network.fit(world, algorithms=[...])` returned, or its `all_reduces`: by name, `nbytes` with `measured`
        and `predicted` seconds, of which one may be None.
    ax : Axes, optional
        Where to draw.
    title : str, optional
        By default, which algorithm is the fastest where.

    Returns
    -------
    ax : Axes

    Raises
    ------
    ValueError
        If there is nothing to draw, or a size or a time is not above 0.
    """
    sweeps = _checked(getattr(sweeps, "all_reduces", sweeps))
    ax = new_axes(1, figsize=(8.4, 4.0))[0] if ax is None else ax
    kinds = set()
    for i, (name, sweep) in enumerate(sweeps.items()):
        look = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)]}
        if sweep.predicted is not None:
            ax.plot(
                sweep.nbytes, sweep.predicted, color=look["color"], linestyle=(0, (5, 1.5)), linewidth=1.6, marker=""
            )
            kinds.add("predicted")
        if sweep.measured is not None:
            line = "-" if sweep.predicted is None else ""
            ax.plot(sweep.nbytes, sweep.measured, linestyle=line, linewidth=1.6, zorder=3, **look)
            kinds.add("measured")
        ax.plot([], [], linestyle="-", label=name, **look)
    found = {what: _changes(sweeps, what) for what in ("predicted", "measured") if what in kinds}
    what = "predicted" if found.get("predicted") else "measured"
    for i, change in enumerate(found.get(what) or []):
        ax.axvline(change.nbytes, color=MUTED, linewidth=1.2, linestyle=(0, (1, 1.5)), zorder=1)
        text = f" {change.after} from {quantity(change.nbytes, 'B', 1024)}" + f" ({what})" * (len(kinds) == 2)
        ax.text(
            change.nbytes, 0.02 + 0.06 * i, text, transform=ax.get_xaxis_transform(), color=INK, fontsize=9, va="bottom"
        )
    _finish(ax, kinds, _finding(sweeps, found) if title is None else title)
    return ax


def crossovers(nbytes, seconds: Mapping[str, np.ndarray]) -> list[Crossover]:
    """Find where the fastest of several algorithms changes; between two sizes by interpolating logarithms.

    Examples
    --------
    >>> (found,) = crossovers(np.array([1.0, 100.0]), {"a": np.array([1.0, 10.0]), "b": np.array([10.0, 1.0])})
    >>> found.before, found.after, round(found.nbytes, 6)
    ('a', 'b', 10.0)
    """
    x, logs = np.log(nbytes), {name: np.log(t) for name, t in seconds.items()}
    order = [min(logs, key=lambda name: logs[name][i]) for i in range(len(x))]
    found = []
    for i, (before, after) in enumerate(pairwise(order)):
        if before == after:
            continue
        lead, lag = (logs[after][j] - logs[before][j] for j in (i, i + 1))
        share = lead / (lead - lag) if lead != lag else 0.5
        found.append(Crossover(float(np.exp(x[i] + share * (x[i + 1] - x[i]))), before, after))
    return found


@styled
def plot_fastest(nbytes, ranks, seconds: Mapping[str, np.ndarray], *, ax=None, title=None):
    """Draw a map of which algorithm is the fastest, by the size of the array and the number of ranks.

    Parameters
    ----------
    nbytes : (n,) array
        Sizes, evenly spaced on a logarithmic axis [bytes].
    ranks : (m,) array of int
    seconds : dict of str to (m, n) array
        Of each algorithm; where several are equally fast, the first one counts.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    times = np.stack([np.asarray(t, float) for t in seconds.values()])
    if times.shape[1:] != (len(ranks), len(nbytes)):
        shape, want = times.shape[1:], (len(ranks), len(nbytes))
        raise ValueError(f"plot_fastest: seconds have shape {shape}, expected {want}: a row for each number of ranks")
    # rounding must not decide between two that are equally fast
    fastest = np.argmax(times <= times.min(axis=0) * (1 + 1e-9), axis=0)
    names = list(seconds)
    ax = new_axes(1, figsize=(8.0, 4.2))[0] if ax is None else ax
    for i in np.unique(fastest):
        cells = np.where(fastest == i, 1.0, np.nan)
        rows = np.arange(len(ranks))
        ax.pcolormesh(nbytes, rows, cells, cmap=ListedColormap([COLORS[i % len(COLORS)]]), shading="nearest")
        ax.plot([], [], linestyle="", marker="s", markersize=10, color=COLORS[i % len(COLORS)], label=names[i])
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(LogLocator(base=4, numticks=12))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: quantity(n, "B", 1024)))
    ax.set_yticks(range(len(ranks)), [str(p) for p in ranks])
    ax.set(xlabel="size of the array", ylabel="ranks")
    ax.grid(visible=False)
    ax.legend(title="fastest", loc="center left", bbox_to_anchor=(1.0, 0.5))
    write_title(ax, f"{len(np.unique(fastest))} of {len(names)} algorithms are the fastest somewhere", title)
    return ax


def _checked(sweeps):
    if not sweeps:
        raise ValueError("plot_crossover: no algorithms are given")
    for name, sweep in sweeps.items():
        if sweep.measured is None and sweep.predicted is None:
            raise ValueError(f"plot_crossover: {name} has neither measured nor predicted times")
        for what in ("nbytes", "measured", "predicted"):
            values = getattr(sweep, what)
            if values is None:
                continue
            if len(values) != len(sweep.nbytes) or not np.all(np.isfinite(values) & (np.asarray(values) > 0)):
                raise ValueError(
                    f"plot_crossover: {what} of {name} is {values!r}, expected as many numbers above 0 as sizes"
                )
    return sweeps


def _changes(sweeps, what: str) -> list[Crossover] | None:
    """Where the fastest changes, by the predictions or the measurements; None if not all algorithms have them."""
    times = {name: getattr(sweep, what) for name, sweep in sweeps.items()}
    sizes = [np.asarray(sweep.nbytes, float) for sweep in sweeps.values()]
    if any(t is None for t in times.values()) or not all(np.array_equal(sizes[0], s) for s in sizes):
        return None
    return crossovers(sizes[0], times)


def _finish(ax, kinds, title: str) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(LogLocator(base=4, numticks=12))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: quantity(n, "B", 1024)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda t, _: format_time(t)))
    ax.yaxis.set_minor_locator(NullLocator())
    low, high = ax.get_ylim()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    ax.set_xlabel("size of the array")
    ax.set_ylabel("time of one all-reduce")
    handles = ax.get_legend_handles_labels()[0]
    if len(kinds) == 2:
        handles.append(Line2D([], [], color=MUTED, linestyle=(0, (5, 1.5)), marker="", label="predicted"))
        handles.append(Line2D([], [], color=MUTED, linestyle="", marker="o", label="measured"))
    ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))
    write_title(ax, title)


def _finding(sweeps, found: dict[str, list[Crossover] | None]) -> str:
    """Which algorithm is the fastest where, a line for what is predicted and one for what was measured."""
    lines = []
    for what, changes in found.items():
        if changes is None or len(changes) > 2 or len(sweeps) < 2:
            continue
        if changes:
            parts = " < ".join(f"{c.before} < {quantity(c.nbytes, 'B', 1024)}" for c in changes)
            lines.append(f"Fastest, {what}: {parts} < {changes[-1].after}")
        else:
            best = min(sweeps, key=lambda name: getattr(sweeps[name], what)[0])
            lines.append(f"Fastest, {what}: {best} at every size")
    return "\n".join(lines)
