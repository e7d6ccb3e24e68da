"""Update rules and batch sizes: paths down a ravine, first steps, loss by rule, steps and samples by batch."""

from __future__ import annotations

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title


@styled
def plot_paths(paths, *, curvatures=(1.0, 20.0), ax=None, title=None):
    """Draw paths of two weights on the level lines of a ravine.

    Parameters
    ----------
    paths : dict of str to (steps + 1, 2) array
        Positions, by the name of the rule (see `experiments.descend`).
    curvatures : pair of float
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    if not paths:
        raise ValueError("plot_paths: no paths, expected at least one")
    ax = new_axes(figsize=(8.4, 3.4))[0] if ax is None else ax
    points = np.concatenate(list(paths.values()))
    (left, low), (right, high) = points.min(axis=0), points.max(axis=0)
    x = np.linspace(left - 0.1, max(right, 0) + 0.15, 200)
    y = np.linspace(min(low, -0.1) - 0.1, high + 0.1, 200)
    loss = (curvatures[0] * x[None, :] ** 2 + curvatures[1] * y[:, None] ** 2) / 2
    levels = np.geomspace(0.002, loss.max(), 10)
    ax.contour(x, y, loss, levels=levels, colors="0.82", linewidths=0.8, linestyles="-")
    for i, (name, path) in enumerate(paths.items()):
        ax.plot(*path.T, color=COLORS[i % 6], marker=MARKERS[i % 6], linestyle=LINES[i % 6], ms=3.5, lw=1.2, label=name)
    ax.plot([0], [0], "*", color=INK, markersize=12)
    ax.set(xlabel="weight 1 (flat direction)", ylabel="weight 2 (steep direction)")
    ax.grid(False)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    write_title(ax, f"{len(paths)} paths to the minimum, the star", title)
    return ax


@styled
def plot_first_steps(lengths, *, ax=None, title=None):
    """Draw the length of every step in units of the learning rate.

    Parameters
    ----------
    lengths : dict of str to (steps,) array
        See `experiments.first_steps`.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    if not lengths:
        raise ValueError("plot_first_steps: no lengths, expected at least one curve")
    ax = new_axes()[0] if ax is None else ax
    for i, (name, values) in enumerate(lengths.items()):
        ax.plot(np.arange(1, len(values) + 1), values, color=COLORS[i % 6], linestyle=LINES[i % 6], label=name)
    ax.set(xscale="log", xlabel="step", ylabel="length of the step [learning rates]")
    ax.set_ylim(bottom=0)
    ax.legend()
    longest = max(lengths, key=lambda name: np.max(lengths[name]))
    write_title(ax, f"Longest step: {longest}, {np.max(lengths[longest]):.1f} learning rates", title)
    return ax


@styled
def plot_rules(runs, *, axes=None, title=None):
    """Draw the loss of several rules at their best learning rates, and how much depends on the learning rate.

    Parameters
    ----------
    runs : dict of str to RuleRun
        See `experiments.compare_rules`.
    axes : pair of Axes, optional
    title : str, optional

    Returns
    -------
    axes : tuple of Axes
        Left the smoothed loss by step, the mean over the seeds; right the steps to the target by learning rate, as a
        multiple of the best one. A cross at the top: the target was not reached.
    """
    if not runs:
        raise ValueError("plot_rules: no runs, expected at least one")
    left, right = new_axes(2, figsize=(10.4, 3.9)) if axes is None else axes
    top = 4 * max(run.steps for run in runs.values())
    for i, (name, run) in enumerate(runs.items()):
        look = {"color": COLORS[i % 6], "linestyle": LINES[(i + i // 6) % 6]}
        left.plot(np.arange(1, run.losses.shape[1] + 1), run.losses.mean(axis=0), label=name, **look)
        rates = np.array(list(run.scores)) / run.lr
        steps = np.array(list(run.scores.values()))
        reached = np.isfinite(steps)
        right.plot(
            rates[reached], steps[reached], marker=MARKERS[(i + i // 6) % 6], label=f"{name} ({run.lr:.3g})", **look
        )
        right.plot(rates[~reached], [top * 0.93**i] * (~reached).sum(), marker="x", linestyle="", color=look["color"])
    left.set(xlabel="step", ylabel="training loss, smoothed", yscale="log")
    right.set(xlabel="learning rate / best one", ylabel="steps to the target (x: not reached)", yscale="log")
    right.set_xscale("log", base=2)
    for axis in (left.yaxis, right.yaxis):
        _plain(axis)
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="rule (best rate)")
    best = min(runs, key=lambda name: runs[name].steps)
    write_title(left, f"First at the target: {best}, {runs[best].steps:.0f} steps", title)
    write_title(right, "" if title else "What the learning rate decides")
    return left, right


@styled
def plot_hyperbola(sweep, fit, *, predicted=None, axes=None, title=None):
    """Draw steps and samples to the target by batch size, the fitted hyperbola and the predicted one.

    Parameters
    ----------
    sweep : Sweep
        See `experiments.sweep_batches`.
    fit : Hyperbola
        Of the measurements.
    predicted : Hyperbola, optional
    axes : pair of Axes, optional
    title : str, optional

    Returns
    -------
    axes : tuple of Axes
        Left steps by batch size, every seed a point; right samples by steps, the means.
    """
    left, right = new_axes(2, figsize=(9.6, 3.9)) if axes is None else axes
    sizes = np.array(sweep.batches, float)
    batch = np.geomspace(sizes[0] / 1.5, sizes[-1] * 1.5, 100)
    curves = {"fit": (fit, COLORS[0], "-")}
    if predicted is not None:
        curves["predicted"] = (predicted, COLORS[1], LINES[1])
    for name, (curve, colour, line) in curves.items():
        label = f"{name}: critical batch {curve.critical:.0f}"
        left.plot(batch, curve.at(batch), color=colour, linestyle=line, label=label)
        right.plot(curve.at(batch), batch * curve.at(batch), color=colour, linestyle=line, label=label)
    seeds = sweep.runs.shape[1]
    left.plot(np.repeat(sizes, seeds), sweep.runs.ravel(), "o", color=INK, markersize=4, label="measured")
    left.axvline(fit.critical, color=MUTED, linewidth=1, linestyle=":")
    steps = sweep.steps
    right.plot(steps, steps * sizes, "o", color=INK)
    for b, s in zip(sweep.batches, steps, strict=True):
        right.annotate(f"{b}", (s, s * b), xytext=(6, 3), textcoords="offset points", fontsize=9)
    left.set(xscale="log", yscale="log", xlabel="batch size [samples]", ylabel="steps to the target")
    right.set(xscale="log", yscale="log", xlabel="steps (numbers: batch size)", ylabel="samples to the target")
    for axis in (left.xaxis, left.yaxis, right.xaxis, right.yaxis):
        _plain(axis)
    left.legend()
    write_title(left, f"{sweep.task.name}: critical batch {fit.critical:.0f}", title)
    write_title(right, "" if title else "Few steps or few samples")
    return left, right


def _plain(axis) -> None:
    """Label a logarithmic axis with plain numbers; few of them where it covers much."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 40 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())
