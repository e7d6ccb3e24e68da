"""Figures of lab 11."""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from distlearn.viz.look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title
from distlearn.viz.units import time_axis

from .asynchrony import band, policy_look

# -- The race of policies: error against time on each mix of workers; and what waiting for fewer workers wins.


@styled
def plot_race(race, *, axes=None, title=None):
    """Draw the error of every entry against time, a panel for each mix of workers.

    Parameters
    ----------
    race : Race
        Of `lab11.race`.
    """
    count = len(race.mixes)
    axes = new_axes(count, figsize=(4.3 * count, 4.0), sharey=True) if axes is None else list(np.ravel(axes))
    for m, (ax, mix) in enumerate(zip(axes, race.mixes, strict=True)):
        for i, (name, curves) in enumerate(race.curves.items()):
            look = policy_look(name, i, race.curves)
            own = name not in race.references
            ax.plot(race.times, curves[m].mean(axis=0), label=name, **look | {"linewidth": 2.8 if own else 1.6})
        ax.axhline(race.target, color=INK, linewidth=1)
        ax.set_yscale("log")
        ax.set_ylim(race.target / 6, 2)
        ax.set_xlim(0, 1.05 * max(race.seconds(name)[m] for name in race.curves))
        time_axis(ax.xaxis, race.times[-1], "time")
        write_title(ax, textwrap.fill(str(mix), 22, break_on_hyphens=False))
    axes[0].set_ylabel("error (line: the target)")
    axes[-1].legend(loc="upper right", handlelength=2.6)
    write_title(axes[0].figure, _race_finding(race), title)
    return tuple(axes)


def _race_finding(race) -> str:
    """Say how much sooner than BSP the entries and the best reference are."""
    best = max(race.references, key=race.score)
    entered = [name for name in race.curves if name not in race.references]
    own = [f"{name} is {race.score(name):.2g} times sooner than BSP" for name in entered]
    return "; ".join([*own, f"{best}, the best to beat, {race.score(best):.2g} times"])


@styled
def plot_bounds(ends, until, *, axes=None, title=None):
    """Draw how many steps are done under bounds on staleness: by bound, and in the last case also by time.

    Parameters
    ----------
    ends : dict of str to dict of float to list of (steps, workers) array
        By case and bound, for one or more seeds: when each worker ends each step [s].
    until : float
        Steps are counted up to then [s].

    Returns
    -------
    axes : (Axes, Axes)
    """
    left, right = new_axes(2, figsize=(10.4, 4.0)) if axes is None else list(np.ravel(axes))
    for i, (case, by_bound) in enumerate(ends.items()):
        rates = np.array([[(e <= until).sum() / until for e in several] for several in by_bound.values()])
        look = {"color": COLORS[i], "linestyle": LINES[i], "marker": MARKERS[i]}
        left.plot(np.arange(len(rates)), rates.mean(axis=1), label=case, **look)
        left.fill_between(np.arange(len(rates)), rates.min(axis=1), rates.max(axis=1), color=COLORS[i], alpha=0.18)
        left.set_xticks(range(len(by_bound)), ["∞" if np.isinf(b) else f"{b:g}" for b in by_bound])
    left.set(xlabel="bound [steps]", ylabel="steps per second, all workers", ylim=(0, None))
    left.legend(loc="lower right")
    write_title(left, f"Counted over the first {until:g} s", title)
    case, by_bound = list(ends.items())[-1]
    shown = [b for b in by_bound if b in (0, 8, 32, np.inf)]
    for i, bound in enumerate(shown):
        at = np.sort(by_bound[bound][0].ravel())
        at = at[at <= until]
        name = "no bound" if np.isinf(bound) else f"bound {bound:g}"
        right.plot(at, np.arange(1, len(at) + 1), color=COLORS[i], linestyle=LINES[i], label=name)
    time_axis(right.xaxis, until, "time")
    right.set(ylabel="steps done, all workers", xlim=(0, until), ylim=(0, None))
    right.legend(loc="upper left")
    write_title(right, case.capitalize())
    return left, right


@styled
def plot_backups(shares, seconds, *, axes=None, title=None):
    """Draw the time between updates, and the gradients used per second, by the share of workers that is waited for.

    Parameters
    ----------
    shares : (n,) array
        From 0 to 1.
    seconds : dict of str to (seeds, n) array
        By assumption about the late workers: mean time between updates of 100 workers [s].

    Returns
    -------
    axes : (Axes, Axes)
    """
    left, right = new_axes(2, figsize=(10.4, 4.0)) if axes is None else list(np.ravel(axes))
    shares, told = np.asarray(shares), []
    for i, (name, by_seed) in enumerate(seconds.items()):
        mean = np.mean(by_seed, axis=0)
        look = {"color": COLORS[i], "linestyle": LINES[i], "marker": MARKERS[i], "label": name}
        left.plot(100 * shares, mean, **look)
        left.fill_between(100 * shares, np.min(by_seed, axis=0), np.max(by_seed, axis=0), color=COLORS[i], alpha=0.18)
        used = 100 * shares / mean
        right.plot(100 * shares, used, **look)
        best = used.argmax()
        right.annotate(f"{100 * shares[best]:.0f} %", (100 * shares[best], used[best]), (0, 7),
                       textcoords="offset points", ha="center", color=INK)  # fmt: skip
        told.append(f"{100 * shares[best]:.0f} % if {name}")
    for ax, label in ((left, "mean time between updates [s]"), (right, "gradients used per second")):
        ax.set(xlabel="share that is waited for [%]", ylabel=label)
        ax.set_ylim(0, 1.15 * ax.get_ylim()[1])
    left.legend(loc="upper left")
    write_title(left, "Time between updates", title)
    write_title(right, "Best share: " + ",\n".join(told))
    return left, right


# -- Asynchrony: losses by learning rate, and the floor of the error that each method reaches.


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
    guessing : float, optional
        The loss of a model that has learned nothing.

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
            look = {"color": COLORS[i], "linestyle": LINES[i], "marker": MARKERS[i]}
            ax.plot(rates, np.median(values, axis=1), label=name, **look)
            ax.fill_between(rates, values.min(axis=1), values.max(axis=1), color=COLORS[i], alpha=0.16, linewidth=0)
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
