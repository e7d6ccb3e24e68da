"""Asynchrony by number of workers: throughput, time to a loss, learning rates; and real ranks beside simulated."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title
from .policies import band, policy_look
from .units import share_axis, time_axis


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
            look = policy_look(name, p, found.policies)
            _line(ax, workers, found.gradients[s, p] / workers[:, None], label=name, **look)
        _workers_axis(ax, workers)
        write_title(ax, scenario.capitalize())
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("used gradients per worker\nand mean step [1]")
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.005, 1.0), borderaxespad=0, handlelength=2.6)
    write_title(axes[0].figure, _throughput_finding(found), title)
    return tuple(axes)


def _throughput_finding(found) -> str:
    if not {"BSP", "ASP"} <= set(found.policies):
        return "What waiting costs"
    ratio = np.median(found.gradients[:, found.policies.index("ASP")], -1) / np.median(
        found.gradients[:, found.policies.index("BSP")], -1
    )
    parts = [
        f"{float(f'{r:.2g}'):,.10g} ({scenario})" for r, scenario in zip(ratio[:, -1], found.scenarios, strict=True)
    ]
    return f"{found.workers[-1]:,} workers: under ASP {', '.join(parts)} times the gradients per second of BSP"


@styled
def plot_time_to_loss(found, *, axes=None, title=None):
    """Draw how long training takes to a loss, and how many samples it needs, against the number of workers.

    A line ends where a seed never reached the loss.

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
            # all seeds: a median over those that reached it would be too optimistic
            reached = np.isfinite(table).all(axis=1, keepdims=True)
            look = policy_look(name, i, values)
            _line(ax, workers, np.where(reached, table, np.nan), label=name, marker="o", **look)
        _workers_axis(ax, workers)
        if not all(np.isfinite(table).all() for table in values.values()):
            ax.set_xlabel("workers (a line ends where a seed never reached it)")
        ax.set_yscale("log")
        ax.set_ylabel(f"{label} to a loss of {found.loss:g}")
    write_title(axes[0], "Waiting costs time", title)
    write_title(axes[1], "Stale gradients and large batches cost samples")
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
    fine = np.geomspace(workers[0], workers[-1], 100)
    label = "theory: a quadratic, staleness n - 1"
    ax.plot(fine, limits.expected(fine), color=MUTED, linestyle=(0, (2, 2)), linewidth=1.5, label=label)
    _workers_axis(ax, workers)
    ax.set_yscale("log")
    ax.set_ylabel("largest learning rate that trains")
    ax.legend(loc="best", handlelength=2.8)
    write_title(ax, _limit_finding(limits), title)
    return ax


def _limit_finding(limits) -> str:
    try:
        slope = limits.slope(next(iter(limits.lr)))
    except ValueError:
        return "The largest learning rate of ASP"
    return f"The largest learning rate of ASP falls like workers$^{{{slope:.2f}}}$"


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


@styled
def plot_recovered(runs, *, ax=None, title=None):
    """Draw the accuracy of ASP against the number of workers, with and without staleness-dependent learning rates.

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
        values = np.array([[run.curve["test_accuracy"][-1] for run in by_size[n]] for n in workers])
        _line(ax, workers, values, label=name, color=COLORS[i % 6], linestyle=LINES[i % 6], marker="o")
    _workers_axis(ax, np.array(workers))
    share_axis(ax.yaxis, "test accuracy")
    ax.legend(loc="best", handlelength=2.8)
    write_title(ax, _recovered_finding(runs), title)
    return ax


def _recovered_finding(runs) -> str:
    """Say how the first rate and the best one end with the most workers."""
    most = max(next(iter(runs.values())))
    ends = {
        name: float(np.median([r.curve["test_accuracy"][-1] for r in by_size[most]])) for name, by_size in runs.items()
    }
    (first, low), best = next(iter(ends.items())), max(ends, key=ends.get)
    if best == first:
        return "What rates that depend on the staleness recover"
    return f"{most} workers: {first} ends at {low:.0%}, {best} at {ends[best]:.0%}"


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
        color = policy_look(name, i, pair.real)["color"]
        for kind, one, line in (("real", run, "-"), ("simulated", pair.simulated[name], (0, (2, 2)))):
            left.plot(one.curve["time"], one.curve["loss"], color=color, linestyle=line, label=f"{name}, {kind}")
            longest = max(longest, float(one.curve["time"][-1]))
            rate, row = one.samples_per_second, len(pair.real) - 1 - i + (0.2 if kind == "real" else -0.2)
            right.barh(row, rate, 0.36, color=color, alpha=1.0 if kind == "real" else 0.45)
            note = f"{kind}, {one.throughput:.3g} updates/s"
            right.annotate(note, (rate, row), (5, 0), textcoords="offset points", va="center", fontsize=9, color=INK)
    time_axis(left.xaxis, longest, "time")
    left.set_ylabel("training loss")
    left.legend(loc="upper right", ncols=2, fontsize=8, handlelength=2.4)
    write_title(left, "Solid: real ranks; dashed: simulated")
    right.set_yticks(range(len(pair.real)), list(pair.real)[::-1])
    right.grid(visible=False, axis="y")
    right.set_xlim(0, 1.5 * right.get_xlim()[1])
    right.set_xlabel("samples used per second [1/s]")
    worst = max(abs(ratio - 1) for ratio in pair.ratios().values())
    finding = f"is right to {worst:.0%}" if worst < 0.5 else f"is {worst:.0%} off"
    write_title(right, f"The simulation {finding}", title)
    return left, right


def _line(ax, workers, values, *, color, **look) -> None:
    """Draw medians over seeds, (workers, seeds), with a band from the lowest to the highest."""
    ax.plot(workers, np.median(values, axis=1), color=color, **look)
    low, high = values.min(axis=1, initial=np.inf), values.max(axis=1, initial=-np.inf)
    ax.fill_between(workers, low, high, color=color, alpha=0.16, linewidth=0)


def _workers_axis(ax, workers) -> None:
    """Mark the numbers of workers that were run, on a logarithmic axis."""
    ax.set_xscale("log", base=2 if workers.max() < 1000 else 10)
    ax.set_xlabel("workers")
    ax.xaxis.set_major_locator(FixedLocator(workers.tolist()))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
