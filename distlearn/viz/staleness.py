"""Asynchrony: losses over time, by learning rate, and at the error floor."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .look import COLORS, LINES, MARKERS, MUTED, new_axes, styled, write_title
from .policies import band


@styled
def plot_losses(losses, *, smooth=40, guessing=None, ax=None, title=None):
    """Draw the loss of every gradient, in the order in which they were computed.

    Parameters
    ----------
    losses : dict of str to (gradients,) array
    smooth : int
        Mean over so many.
    guessing : float, optional
        The loss of a model that has learned nothing; the axis ends at three times that.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    (ax,) = new_axes() if ax is None else (ax,)
    for i, (name, values) in enumerate(losses.items()):
        mean = np.convolve(values, np.full(smooth, 1 / smooth), "valid")
        ax.plot(np.arange(len(mean)) + smooth, mean, color=COLORS[i], linestyle=LINES[i], label=name)
    if guessing:
        ax.axhline(guessing, color=MUTED, linewidth=1)
        look = {"color": MUTED, "ha": "right", "va": "bottom"}
        ax.annotate("guessing", (0.995, guessing), (0, 3), ("axes fraction", "data"), "offset points", **look)
        ax.set_ylim(0, 3 * guessing)
    ax.set_xlabel("gradient")
    ax.set_ylabel(f"loss (mean of {smooth})")
    ax.legend(loc="upper right", handlelength=2.8)
    ends = ", ".join(f"{np.mean(values[-2 * smooth :]):.2f}" for values in losses.values())
    write_title(ax, f"Loss at the end: {ends}", title)
    return ax


@styled
def plot_loss_by_rate(found, rates, *, guessing=None, axes=None, title=None):
    """Draw the loss at the end against the learning rate per gradient: a control beside it, and the remedies.

    Parameters
    ----------
    found : dict of str to (rates, seeds) array
        What `loss_by_rate` returns: the first three methods are drawn on the left, the second one's name says which is
        the control; the third and the remedies on the right.
    rates : sequence of float
    guessing : float, optional
        The loss of a model that has learned nothing.
    axes : two Axes, optional
    title : str, optional

    Returns
    -------
    axes : (Axes, Axes)
    """
    axes = new_axes(2, figsize=(11.6, 4.0), sharey=True) if axes is None else list(np.ravel(axes))
    names = list(found)
    top = 1.15 * guessing if guessing else max(np.max(values) for values in found.values())
    for ax, shown in zip(axes, (names[:3], names[2:]), strict=True):
        for name in shown:
            i = names.index(name) % len(COLORS)
            values = np.minimum(found[name], top)
            _line(ax, np.asarray(rates), values, label=name, color=COLORS[i], linestyle=LINES[i], marker=MARKERS[i])
        if guessing:
            ax.axhline(guessing, color=MUTED, linewidth=1)
            ax.annotate("guessing", (rates[-1], guessing), (0, 4), textcoords="offset points", ha="right", color=MUTED)
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(FixedLocator(list(rates)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda lr, _: f"{lr:g}"))
        ax.set_xlabel("learning rate of one gradient")
    handles = {name: line for ax in axes for line, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    axes[1].legend(handles.values(), handles, loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0,
                   handlelength=2.8)  # fmt: skip
    axes[0].set_ylim(0, 1.08 * top)
    axes[0].set_ylabel("loss at the end")
    write_title(axes[0], _control_finding(found, rates, guessing), title)
    write_title(axes[1], "Remedies: " + _best_remedy(found))
    return tuple(axes)


@styled
def plot_floors(found, rows, *, ax=None, title=None):
    """Draw test errors against time, down to the error floors: medians, and bands from the lowest to the highest seed.

    Parameters
    ----------
    found : dict of str to list of Run
        What `runs_to_floor` returns.
    rows : list of dict
        What `floors` returns.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    ax = new_axes(figsize=(8.4, 4.2))[0] if ax is None else ax
    levels = [row["floor [%]"] for row in rows]
    for i, (name, runs) in enumerate(found.items()):
        points, *errors = band(runs, "time", "error", log=True)
        median, low, high = (100 * e for e in errors)
        color = COLORS[i % len(COLORS)]
        ax.plot(points, median, label=f"{name}: {levels[i]:.1f} %", color=color, linestyle=LINES[i % len(LINES)])
        ax.fill_between(points, low, high, color=color, alpha=0.16, linewidth=0)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(FixedLocator([2, 5, 10, 20, 50, 100]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda error, _: f"{error:g}"))
    ax.set_xlabel("time [s]")
    ax.set_ylabel("test error [%]")
    ax.legend(title="floor", loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0, handlelength=2.8)
    write_title(ax, f"The error floors lie between {min(levels):.1f} and {max(levels):.1f} %", title)
    return ax


def _control_finding(found, rates, guessing) -> str:
    """Say up to which rate each of the first three methods learns with every seed."""
    limit = guessing / 2 if guessing else np.inf
    largest = []
    for name in list(found)[:3]:
        fine = np.flatnonzero((found[name] < limit).all(axis=1))
        largest.append(f"{rates[fine[-1]]:g}" if len(fine) else "none")
    return "The largest rates that learn with\nevery seed: " + ", ".join(largest)


def _best_remedy(found) -> str:
    """Say which method of the right panel has the lowest loss, each at its best rate."""
    lowest = {name: float(np.median(values, axis=1).min()) for name, values in list(found.items())[2:]}
    best = min(lowest, key=lowest.get)
    plain = next(iter(lowest))
    if best == plain:
        return "none is better\nthan a small enough rate"
    return f"the lowest loss is\n{lowest[best]:.2f} ({best}); without one {lowest[plain]:.2f}"


def _line(ax, workers, values, *, color, **look) -> None:
    """Draw medians over seeds, (workers, seeds), with a band from the lowest to the highest."""
    ax.plot(workers, np.median(values, axis=1), color=color, **look)
    low, high = values.min(axis=1, initial=np.inf), values.max(axis=1, initial=-np.inf)
    ax.fill_between(workers, low, high, color=color, alpha=0.16, linewidth=0)
