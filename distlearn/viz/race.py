"""The race of policies: error against time on each mix of workers; and what waiting for fewer workers wins."""

from __future__ import annotations

import textwrap

import numpy as np

from .look import COLORS, INK, LINES, MARKERS, new_axes, styled, write_title
from .policies import policy_look
from .units import time_axis


@styled
def plot_race(race, *, axes=None, title=None):
    """Draw the error of every entry against time, a panel for each mix of workers.

    Parameters
    ----------
    race : Race
        Of `experiments.race`.
    axes : sequence of Axes, optional
    title : str, optional

    Returns
    -------
    axes : tuple of Axes
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
    axes : two Axes, optional
    title : str, optional

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
    axes : two Axes, optional
    title : str, optional

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
