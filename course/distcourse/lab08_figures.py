"""Figures of lab 08."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from distlearn.tables import quantity
from distlearn.viz.look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title

# -- Communication-bound training: what limits a step by ranks and bandwidth, and loss against time by recipe.


REGIONS = ("#fbe9a9", "#8fb8d8", "#a5658f")
"""Backgrounds of computing, bandwidth, latency: light, medium, dark."""
_MARKS = {"simulated": "o", "measured": "s"}


@styled
def plot_phases(diagrams, *, borders=None, axes=None, title=None):
    """Draw which part of a step is the longest, by ranks and bandwidth, a panel for each diagram.

    Parameters
    ----------
    diagrams : dict of str to PhaseDiagram
        See `lab08.phase_diagram`. A point's filling says what limits it, its background what the
        formula says; a cross is on those where the two differ.
    borders : dict of str to callable, optional
        `border(ranks) -> bandwidth` in bytes/s at which the network takes as long as computing, by its label: lines in
        every panel.
    axes : sequence of Axes, optional
        One for each panel.
    title : str, optional
        Of the first panel.
    """
    if not diagrams:
        raise ValueError("plot_phases: no diagrams, expected at least one")
    made = axes is None
    if made:
        width = 8.4 if len(diagrams) == 1 else 1.4 + 4.4 * len(diagrams)
        axes = new_axes(len(diagrams), figsize=(width, 4.4), sharey=True)
    for ax, (name, diagram) in zip(axes, diagrams.items(), strict=True):
        ax.pcolormesh(
            diagram.ranks,
            8 * diagram.bandwidths,
            diagram.limits,
            cmap=ListedColormap(REGIONS),
            vmin=-0.5,
            vmax=2.5,
            shading="nearest",
            rasterized=True,
        )
        for i, (label, border) in enumerate((borders or {}).items()):
            ranks = np.geomspace(diagram.ranks[0], diagram.ranks[-1], 200)
            with np.errstate(all="ignore"):
                bits = 8 * np.array([border(float(p)) for p in ranks])
            bits[~np.isfinite(bits) | (bits <= 0)] = np.nan
            ax.plot(ranks, bits, color=INK, linestyle=LINES[i % 6], linewidth=1.8, label=label)
        for point in diagram.points:
            x, y = point.ranks, 8 * point.bandwidth
            look = {"marker": _MARKS[point.kind], "markersize": 9, "markeredgecolor": INK, "linestyle": ""}
            ax.plot([x], [y], color=REGIONS[diagram.parts.index(point.limit)], zorder=4, **look)
            if diagram.predicted(point) != point.limit:
                ax.plot([x], [y], marker="x", color=INK, markersize=6, zorder=5)
        _finish(ax, diagram)
        told = f"{name}: {diagram.agreeing} of {len(diagram.points)} points as predicted" if diagram.points else name
        write_title(ax, told, title if ax is axes[0] else None)
    axes[0].set_ylabel("bandwidth")
    handles = [Patch(facecolor=colour, edgecolor=MUTED) for colour in REGIONS]
    labels = [f"limited by {part}" for part in diagram.parts]
    for kind in sorted({point.kind for diagram in diagrams.values() for point in diagram.points}, reverse=True):
        handles.append(Line2D([], [], marker=_MARKS[kind], color="white", markeredgecolor=INK, linestyle=""))
        labels.append(kind)
    lines = axes[0].get_legend_handles_labels()
    if made:
        axes[0].figure.legend([*handles, *lines[0]], [*labels, *lines[1]], loc="outside lower center", ncols=4)
    return axes


def _finish(ax, diagram) -> None:
    low, high = diagram.ranks[0], diagram.ranks[-1]
    ticks = [2**i for i in range(11) if low <= 2**i <= high]
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(FixedLocator(ticks, nbins=7))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda p, _: f"{p:.0f}"))
    ax.yaxis.set_major_locator(LogLocator(numticks=12))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda b, _: f"{quantity(b)}bit/s"))
    ax.set(xlabel="ranks", xlim=(low, high), ylim=(8 * diagram.bandwidths[0], 8 * diagram.bandwidths[-1]))
    ax.grid(False)


@styled
def plot_recipes(runs, *, target=None, axes=None, title=None):
    """Draw the loss of several recipes against time and against samples.

    Parameters
    ----------
    runs : dict of str to list of Run
        One run for each seed, see `lab08.compare_recipes`.
    target : float, optional
        A loss to mark.

    Returns
    -------
    axes : tuple of Axes
        Left against seconds, right against samples: medians over the seeds, and bands from the lowest to the highest.
    """
    if not runs:
        raise ValueError("plot_recipes: no runs, expected at least one")
    left, right = axes = new_axes(2, figsize=(10.4, 4.0), sharey=True) if axes is None else axes
    for i, (name, seeds) in enumerate(runs.items()):
        losses = np.array([run.losses for run in seeds])
        look = {"color": COLORS[i % 6], "linestyle": LINES[i % 6], "marker": MARKERS[i % 6], "markevery": 4}
        for ax, x in ((left, np.median([run.seconds for run in seeds], axis=0)), (right, seeds[0].samples)):
            ax.plot(x, np.median(losses, axis=0), label=name, linewidth=1.6, markersize=5, **look)
            ax.fill_between(x, losses.min(axis=0), losses.max(axis=0), color=look["color"], alpha=0.13, linewidth=0)
    for ax in axes:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_locator(NullLocator())
        if target is not None:
            ax.axhline(target, color=MUTED, linewidth=1)
    left.set(xscale="log", xlabel="time [s]", ylabel="training loss")
    left.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    left.xaxis.set_minor_locator(NullLocator())
    right.set(xlabel="samples drawn by all ranks")
    left.figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    write_title(left, _first(runs, target), title)
    write_title(right, "" if title else "The same runs, by samples")
    return left, right


def _first(runs, target) -> str:
    """Which recipe is first at the target."""
    if target is None:
        return f"{len(runs)} recipes, by time"
    times = {name: np.median([run.seconds_to(target) for run in seeds]) for name, seeds in runs.items()}
    best = min(times, key=times.get)
    return f"First at a loss of {target:g}: {best}" if np.isfinite(times[best]) else f"None reaches {target:g}"


@styled
def plot_messages(results, *, ax=None, title=None):
    """Draw the accuracy of training with compressed messages against their bytes, with and without error feedback.

    Parameters
    ----------
    results : dict of (str, bool or None) to CodeResult
        By code and whether with error feedback, None where none is needed; see
        `lab08.compare_codes`.

    Returns
    -------
    ax : Axes
        A point is the mean over the seeds, a line runs from the lowest to the highest.
    """
    if not results:
        raise ValueError("plot_messages: no results, expected at least one")
    ax = new_axes(figsize=(8.4, 4.0))[0] if ax is None else ax
    kinds = {True: ("with error feedback", "o", COLORS[0]), False: ("without", "s", "white")}
    kinds[None] = ("nothing to feed back", "D", COLORS[4])
    for fed, (label, marker, fill) in kinds.items():
        look = {"color": fill, "marker": marker, "markeredgecolor": COLORS[0], "linestyle": ""}
        chosen = {name: result for (name, key), result in results.items() if key is fed}
        for name, result in chosen.items():
            found, mean = result.accuracies, np.mean(result.accuracies)
            ax.plot([result.kilobytes] * 2, [min(found), max(found)], color=MUTED, linewidth=1.2, linestyle="-")
            ax.plot([result.kilobytes], [mean], markersize=7, zorder=3, **look)
            place, side = ((7, -12), "left") if fed is False else ((0, 9), "center")
            ax.annotate(name, (result.kilobytes, mean), place, textcoords="offset points", fontsize=9, ha=side)
        if chosen:
            ax.plot([], [], label=label, **look)
    ax.set(xscale="log", xlabel="sent by each rank in a step [kB]", ylabel="test accuracy [%]")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.margins(x=0.12, y=0.12)
    ax.legend(loc="lower right")
    write_title(ax, f"{len(results)} ways to send a gradient", title)
    return ax


@styled
def plot_sent(ranks, sent, *, ax=None, title=None):
    """Draw the bytes that each rank sends by the number of ranks.

    Parameters
    ----------
    ranks : (n,) array of int
    sent : dict of str to (n,) array
        Bytes, by the name of the way.
    """
    ax = new_axes()[0] if ax is None else ax
    for i, (name, nbytes) in enumerate(sent.items()):
        look = {"color": COLORS[i % 6], "linestyle": LINES[i % 6], "marker": MARKERS[i % 6]}
        ax.plot(ranks, np.asarray(nbytes) / 1024, label=name, **look)
    ax.set(xlabel="ranks", ylabel="sent by each rank [KiB]", yscale="log")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), handlelength=2.8)
    least = min(sent, key=lambda name: sent[name][-1])
    write_title(ax, f"Fewest bytes on {ranks[-1]} ranks: {least}", title)
    return ax
