"""Asynchrony in pictures: the same runs against updates and against time, staleness, throughput, learning rates."""

from __future__ import annotations

import re

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .look import AMBER, COLORS, INK, LINES, MUTED, NAVY, VERMILION, new_axes, styled
from .units import count_axis, time_axis

X_LABELS = {"updates": "updates of the parameters", "time": "time", "samples": "samples used"}
_KNOWN = {"BSP": (NAVY, LINES[0]), "ASP": (VERMILION, LINES[1]), "backup": (AMBER, LINES[2])}


def _look(name: str, number: int, names) -> dict:
    """Return colour and line of a policy: the same in every figure; the shades of SSP darken with its bound."""
    family = re.sub(r"\(.*", "", name)
    if family in _KNOWN:
        color, line = _KNOWN[family]
    elif family == "SSP":
        bounds = sorted(int(re.sub(r"\D", "", n)) for n in names if n.startswith("SSP("))
        place = bounds.index(int(re.sub(r"\D", "", name))) / max(1, len(bounds) - 1)
        color, line = mpl.colormaps["BuGn"](0.45 + 0.5 * place), LINES[3 + round(2 * place)]
    else:
        color, line = COLORS[(number + 3) % len(COLORS)], LINES[number % len(LINES)]
    return {"color": color, "linestyle": line}


def _band(runs, x: str):
    """Bring the curves of several seeds onto common points: (x, median, lowest, highest)."""
    curves = []
    for run in runs:
        if len(run.curve) < 2:
            raise ValueError(f"plot_policies: {run!r} has no curve; train with every > 0")
        xs = run.curve["version"].astype(float) if x == "updates" else run.curve["time"]
        if x == "samples":
            rows = np.cumsum(np.bincount(run.applied["version"], run.applied["rows"], run.curve["version"][-1] + 1))
            xs = rows[run.curve["version"]]
        curves.append((xs, run.curve["loss"]))
    end = min(float(xs[-1]) for xs, _ in curves)
    first = max(float(xs[1]) for xs, _ in curves)
    points = np.geomspace(min(first, end), end, 80) if x == "updates" else np.linspace(0, end, 80)
    values = np.stack([np.interp(points, xs, ys) for xs, ys in curves])
    return points, np.median(values, axis=0), values.min(axis=0), values.max(axis=0)


@styled
def plot_loss(runs, *, x="time", ax=None, title=None):
    """Draw the loss of several policies; a line is the median over seeds, its band reaches from best to worst.

    Parameters
    ----------
    runs : dict of str to list of Run
        By policy; what `compare_policies` returns.
    x : {"time", "updates", "samples"}
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    if x not in X_LABELS:
        raise ValueError(f"plot_loss: x is {x!r}, expected one of {', '.join(X_LABELS)}")
    (ax,) = new_axes(figsize=(6.4, 3.8)) if ax is None else (ax,)
    longest = 0.0
    for i, (name, several) in enumerate(runs.items()):
        points, median, low, high = _band(several, x)
        look = _look(name, i, runs)
        ax.plot(points, median, label=name, **look)
        if len(several) > 1:
            ax.fill_between(points, low, high, color=look["color"], alpha=0.18, linewidth=0)
        longest = max(longest, float(points[-1]))
    ax.set_ylabel("training loss")
    if x == "time":
        time_axis(ax.xaxis, longest, X_LABELS[x])
    else:
        count_axis(ax.xaxis, X_LABELS[x])
    if x == "updates":
        ax.set_xscale("log")
        _plain_log(ax.xaxis)
    ax.set_title(f"Loss against {x}" if title is None else title)
    return ax


@styled
def plot_staleness(runs, *, ax=None, title=None):
    """Draw how stale the gradients of each policy were: one row of bars for each, all of the same height in sum.

    Parameters
    ----------
    runs : dict of str to list of Run
        By policy. `Events` of the event simulation will do, too.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    (ax,) = new_axes(figsize=(6.4, 3.8)) if ax is None else (ax,)
    shares = {}
    for name, several in runs.items():
        counts = [run.histogram() for run in several]
        total = np.zeros(max(map(len, counts)))
        for count in counts:
            total[: len(count)] += count
        shares[name] = total / total.sum()
    furthest = max(int(np.searchsorted(np.cumsum(share), 0.98)) for share in shares.values()) + 1
    for i, (name, share) in enumerate(shares.items()):
        base = len(shares) - 1 - i
        tall = 0.82 * share[: furthest + 1] / share.max()
        ax.bar(np.arange(len(tall)), tall, 0.9, bottom=base, color=_look(name, i, runs)["color"])
        ax.axhline(base, color=MUTED, linewidth=0.6)
        mean = float(share @ np.arange(len(share)))
        ax.annotate(f"mean {mean:.3g}", (1.0, base + 0.3), xycoords=("axes fraction", "data"), ha="right", color=INK)
    ax.set_yticks(np.arange(len(shares)) + 0.35, list(shares)[::-1])
    ax.grid(visible=False, axis="y")
    ax.set_xlim(-0.8, furthest + 0.8)
    count_axis(ax.xaxis, "staleness of a gradient [versions]")
    ax.set_title("How stale the gradients are" if title is None else title)
    return ax


@styled
def plot_throughput(runs, *, ax=None, title=None):
    """Draw gradients per second that went into updates; written beside each: updates per second, share dropped.

    Parameters
    ----------
    runs : dict of str to list of Run
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    (ax,) = new_axes(figsize=(6.4, 3.8)) if ax is None else (ax,)
    top = 0.0
    for i, (name, several) in enumerate(runs.items()):
        rates = np.array([len(run.applied) / run.seconds for run in several])
        row, middle = len(runs) - 1 - i, float(np.median(rates))
        ax.barh(row, middle, 0.7, color=_look(name, i, runs)["color"])
        ax.errorbar(middle, row, xerr=[[middle - rates.min()], [rates.max() - middle]], color=INK, capsize=3)
        updates = np.median([run.throughput for run in several])
        dropped = np.mean([run.dropped / len(run.gradients) for run in several])
        text = f"{updates:.3g} updates/s" + (f", {dropped:.0%} dropped" if dropped else "")
        ax.annotate(text, (float(rates.max()), row), (6, 0), textcoords="offset points", va="center", color=INK)
        top = max(top, float(rates.max()))
    ax.set_yticks(range(len(runs)), list(runs)[::-1])
    ax.grid(visible=False, axis="y")
    ax.set_xlim(0, 1.75 * top)
    ax.set_xlabel("gradients used per second [1/s]")
    ax.set_title("Throughput" if title is None else title)
    return ax


@styled
def plot_policies(runs, *, loss=None, title=None):
    """Draw policies on four panels: loss against updates, against time, staleness, throughput.

    Parameters
    ----------
    runs : dict of str to list of Run
        What `compare_policies` returns.
    loss : float, optional
        A loss for the title to speak of; by default the highest of the medians at the end.
    title : str, optional

    Returns
    -------
    axes : tuple of Axes
    """
    from matplotlib import pyplot as plt  # here, not above: pyplot chooses a backend when it is imported

    figure, axes = plt.subplots(2, 2, figsize=(12.4, 7.6))
    (updates, time), (stale, speed) = axes
    plot_loss(runs, x="updates", ax=updates, title="Per update, who waits for more gradients wins")
    plot_loss(runs, x="time", ax=time, title="Per second, who does not wait wins")
    time.legend(loc="upper right", ncols=2, handlelength=2.6)
    plot_staleness(runs, ax=stale)
    plot_throughput(runs, ax=speed)
    figure.suptitle(_finding(runs, loss) if title is None else title, x=0.01, ha="left")
    return updates, time, stale, speed


def _finding(runs, loss) -> str:
    """Say which policy reaches a loss first, and how much sooner than BSP."""
    workers = next(iter(runs.values()))[0].workers
    medians = {name: _band(several, "time")[:2] for name, several in runs.items()}
    target = max(float(median[-1]) for _, median in medians.values()) if loss is None else loss
    when = {}
    for name, (points, median) in medians.items():
        below = np.flatnonzero(median <= target * (1 + 1e-9))
        if len(below):
            when[name] = float(points[below[0]])
    if "BSP" not in when or len(when) < 2:
        return f"{len(runs)} policies on {workers} workers"
    first = min(when, key=when.get)
    times = when["BSP"] / max(when[first], 1e-300)
    sooner = "no policy is sooner than BSP" if first == "BSP" else f"{first} is there {times:.2g} times sooner than BSP"
    return f"{workers} workers, to a loss of {target:.2g}: {sooner}"


@styled
def plot_throughputs(found, *, axes=None, title=None):
    """Draw gradients per second and worker against the number of workers, a panel for each scenario.

    Parameters
    ----------
    found : Throughputs
    axes : sequence of Axes, optional
    title : str, optional

    Returns
    -------
    axes : tuple of Axes
    """
    count = len(found.scenarios)
    axes = new_axes(count, figsize=(4.4 * count, 3.8), sharey=True) if axes is None else list(np.ravel(axes))
    workers = np.array(found.workers)
    for s, (ax, scenario) in enumerate(zip(axes, found.scenarios, strict=True)):
        for p, name in enumerate(found.policies):
            each = found.gradients[s, p] / workers[:, None]
            look = _look(name, p, found.policies)
            ax.plot(workers, np.median(each, axis=1), label=name, **look)
            ax.fill_between(workers, each.min(axis=1), each.max(axis=1), color=look["color"], alpha=0.18, linewidth=0)
        ax.set_xscale("log", base=2 if workers.max() < 1000 else 10)
        _sizes(ax, workers)
        ax.set_xlabel("workers")
        ax.set_title(scenario.capitalize())
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("used gradients per worker\nand mean step [1]")
    axes[count // 2].legend(loc="best", handlelength=2.6)
    axes[0].figure.suptitle(_throughput_finding(found) if title is None else title, x=0.01, ha="left")
    return tuple(axes)


def _throughput_finding(found) -> str:
    """Say what waiting costs with the most workers."""
    if not {"BSP", "ASP"} <= set(found.policies):
        return "What waiting costs"
    ratio = np.median(found.gradients[:, found.policies.index("ASP")], -1) / np.median(
        found.gradients[:, found.policies.index("BSP")], -1
    )
    parts = [f"{r:.2g} times ({scenario})" for r, scenario in zip(ratio[:, -1], found.scenarios, strict=True)]
    return f"On {found.workers[-1]} workers ASP gets through more gradients than BSP: {', '.join(parts)}"


@styled
def plot_time_to_loss(found, *, axes=None, title=None):
    """Draw how long training takes to a loss, and how many samples it needs, against the number of workers.

    A line ends where a seed never came to the loss.

    Parameters
    ----------
    found : TimeToLoss
    axes : two Axes, optional
    title : str, optional

    Returns
    -------
    axes : (Axes, Axes)
    """
    axes = new_axes(2, figsize=(10.4, 3.9)) if axes is None else list(np.ravel(axes))
    workers = np.array(found.workers)
    for ax, values, label in zip(axes, (found.seconds, found.samples), ("time [mean steps]", "samples"), strict=True):
        for i, (name, table) in enumerate(values.items()):
            reached = np.isfinite(table).all(axis=1)  # a median over the lucky seeds alone would flatter
            look = _look(name, i, values)
            ax.plot(workers[reached], np.median(table[reached], axis=1), label=name, marker="o", **look)
            low, high = table[reached].min(axis=1, initial=np.inf), table[reached].max(axis=1, initial=0)
            ax.fill_between(workers[reached], low, high, color=look["color"], alpha=0.18, linewidth=0)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        _sizes(ax, workers)
        ax.set_xlabel("workers")
        ax.set_ylabel(f"{label} to a loss of {found.loss:g}")
    axes[0].set_title("Waiting costs time" if title is None else title)
    axes[1].set_title("Staleness costs samples")
    axes[1].legend(loc="best", handlelength=2.6)
    return tuple(axes)


@styled
def plot_lr_limits(limits, *, ax=None, title=None):
    """Draw the largest learning rate at which ASP trains, against the number of workers, with what theory says.

    Parameters
    ----------
    limits : Limits
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    (ax,) = new_axes(figsize=(7.2, 4.2)) if ax is None else (ax,)
    workers = np.array(limits.workers)
    for i, (name, lr) in enumerate(limits.lr.items()):
        median = np.median(lr, axis=1)
        error = [median - lr.min(axis=1), lr.max(axis=1) - median]
        ax.errorbar(workers, median, error, label=name, color=COLORS[i], linestyle=LINES[i], marker="o", capsize=3)
    first = np.median(next(iter(limits.lr.values()))[0])
    fine = np.geomspace(workers[0], workers[-1], 100)
    factor = np.sin(np.pi / (4 * (fine - 1) + 2)) / np.sin(np.pi / (4 * (workers[0] - 1) + 2))
    label = "theory: a quadratic, staleness n - 1"
    ax.plot(fine, first * factor, color=MUTED, linestyle=(0, (2, 2)), linewidth=1.5, label=label)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    _sizes(ax, workers)
    ax.set_xlabel("workers n")
    ax.set_ylabel("largest learning rate that trains")
    ax.legend(loc="best", handlelength=2.8)
    ax.set_title(_limit_finding(limits) if title is None else title)
    return ax


def _limit_finding(limits) -> str:
    """Say how the limit falls."""
    try:
        slope = limits.slope(next(iter(limits.lr)))
    except ValueError:
        return "The learning rate that ASP bears"
    return f"The learning rate that ASP bears falls like workers$^{{{slope:.2f}}}$"


@styled
def plot_recovered(runs, *, ax=None, title=None):
    """Draw the accuracy of ASP against the number of workers, for rates that know the staleness and one that does not.

    Parameters
    ----------
    runs : dict of str to dict of int to list of Run
        What `recovered` returns.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    (ax,) = new_axes(figsize=(7.2, 4.2)) if ax is None else (ax,)
    for i, (name, by_size) in enumerate(runs.items()):
        workers = sorted(by_size)
        values = np.array([[run.curve["accuracy"][-1] for run in by_size[n]] for n in workers])
        median = np.median(values, axis=1)
        ax.plot(workers, median, label=name, color=COLORS[i % 6], linestyle=LINES[i % 6], marker="o")
        ax.fill_between(workers, values.min(axis=1), values.max(axis=1), color=COLORS[i % 6], alpha=0.12, linewidth=0)
    ax.set_xscale("log", base=2)
    _sizes(ax, np.array(workers))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.0f}"))
    ax.set_xlabel("workers")
    ax.set_ylabel("test accuracy [%]")
    ax.legend(loc="best", handlelength=2.8)
    ax.set_title("What rates that know the staleness recover" if title is None else title)
    return ax


@styled
def plot_real_and_simulated(pair, *, axes=None, title=None):
    """Draw real runs beside the simulation that was calibrated from them: loss against time, and throughput.

    Parameters
    ----------
    pair : Pair
    axes : two Axes, optional
    title : str, optional

    Returns
    -------
    axes : (Axes, Axes)
    """
    left, right = new_axes(2, figsize=(11.4, 4.2)) if axes is None else list(np.ravel(axes))
    longest = 0.0
    for i, (name, run) in enumerate(pair.real.items()):
        color = _look(name, i, pair.real)["color"]
        for kind, one, line in (("real", run, "-"), ("simulated", pair.simulated[name], (0, (2, 2)))):
            left.plot(one.curve["time"], one.curve["loss"], color=color, linestyle=line, label=f"{name}, {kind}")
            longest = max(longest, float(one.curve["time"][-1]))
            rate, row = len(one.applied) / one.seconds, len(pair.real) - 1 - i + (0.2 if kind == "real" else -0.2)
            right.barh(row, rate, 0.36, color=color, alpha=1.0 if kind == "real" else 0.45)
            note = f"{kind}, {one.throughput:.3g} updates/s"
            right.annotate(note, (rate, row), (5, 0), textcoords="offset points", va="center", fontsize=9, color=INK)
    time_axis(left.xaxis, longest, "time")
    left.set_ylabel("training loss")
    left.legend(loc="upper right", ncols=2, fontsize=8, handlelength=2.4)
    left.set_title("Solid: real ranks; dotted: simulated")
    right.set_yticks(range(len(pair.real)), list(pair.real)[::-1])
    right.grid(visible=False, axis="y")
    right.set_xlim(0, 1.5 * right.get_xlim()[1])
    right.set_xlabel("gradients used per second [1/s]")
    worst = max(abs(ratio - 1) for ratio in pair.ratios().values())
    right.set_title(f"The simulation is right to {worst:.0%}" if title is None else title)
    return left, right


def _sizes(ax, workers) -> None:
    """Mark the numbers of workers that were run."""
    ax.xaxis.set_major_locator(FixedLocator(workers.tolist()))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))


def _plain_log(axis) -> None:
    """Write powers of ten as numbers."""
    axis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
