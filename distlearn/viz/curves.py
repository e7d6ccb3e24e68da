"""Learning curves: loss and metric of one run, or of several side by side or on top of each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..nn.metrics import is_share, metric_title
from .look import (
    COLORS,
    INK,
    LINES,
    MARKERS,
    count_axis,
    lightness,
    new_axes,
    share_axis,
    styled,
    time_axis,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X_NAMES = {"epoch": "epoch", "seconds": "training time", "samples": "samples trained on", "step": "step"}
SETS = {"train": "training", "val": "validation", "test": "test"}
SAME = 0.02  # Curves that stay closer than this share of the panel's range count as lying on top of each other.
MOST = 9.0  # Of curves on top of each other, the lowest is at most this much broader than the topmost [points].
CROWD = 6  # With more curves than this, their names are beside the panel, not in it.


class _Curve(NamedTuple):
    """One line of a panel: of which run (by number and label), of which quantity (by number and name)."""

    run: int
    label: str
    part: int
    name: str
    x: np.ndarray
    y: np.ndarray


@styled
def plot_history(
    histories: Any,
    *,
    x: str = "epoch",
    y: str | Sequence[str] | None = None,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes | tuple[Axes, ...]:
    """Draw learning curves: a panel for the loss, a panel for the metric.

    Runs on top of each other are drawn from a broad light one to a narrow dark one, so that all stay visible.

    Parameters
    ----------
    histories : History or dict of str to History
        One run, or runs by label. A `Result` of `train` works, too.
    x : {"epoch", "seconds", "samples", "step"}
        The quantity on the x axis; with "step" the loss is that of every single step.
    y : str or sequence of str, optional
        Any of "loss" and the columns of the runs' metric: "train_accuracy", "val_accuracy", "test_accuracy" of a
        classifier. By default "loss" and the metric on the validation set, or on the test set if there is no other.
    title : str, optional
        Above the first panel; by default each panel says what it holds.

    Returns
    -------
    ax : Axes or tuple of Axes
        One for each panel; a single one by itself.
    """
    runs = _runs(histories)
    metric = _metric_of(runs)
    panels = _panels(("loss", _evaluated(runs, metric)) if y is None else y, metric)
    if x not in X_NAMES:
        raise ValueError(f"plot_history: x is {x!r}, expected one of {', '.join(X_NAMES)}")
    curves = [_curves(runs, x, names) for names in panels]
    n = len(panels)
    if ax is not None and n > 1:
        raise ValueError(f"plot_history: one ax for {n} panels (loss and metric each take one); choose by y")
    targets = new_axes(n, figsize=(4.8 * n if n > 1 else 6.4, 3.6)) if ax is None else [ax]
    styles = _styles(len(runs), _on_top(curves, len(runs)))
    longest = max(len(c.x) for lines in curves for c in lines)
    for target, names, lines in zip(targets, panels, curves, strict=True):
        _draw(target, lines, styles, several_names=len(names) > 1, markers=longest <= 40)  # more would be a solid band
        _label(target, x, names, max(float(c.x[-1]) for c in lines))
    # many curves are named beside their panels; panels of the same runs share the names of the last one
    named = [[line.get_label() for line in ax.lines if not line.get_label().startswith("_")] for ax in targets]
    for i, target in enumerate(targets):
        if len(named[i]) > CROWD and named[i] not in named[i + 1 :]:
            target.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=2.8)
    for i, (target, names) in enumerate(zip(targets, panels, strict=True)):
        write_title(target, _panel_title(names).capitalize() if title is None else title if i == 0 else "")
    return targets[0] if len(targets) == 1 else tuple(targets)


def _runs(histories) -> dict[str, Any]:
    runs = dict(histories) if isinstance(histories, dict) else {"": histories}
    runs = {str(label): getattr(run, "history", run) for label, run in runs.items()}
    if not runs:
        raise ValueError("plot_history: no histories, expected at least one")
    for label, run in runs.items():
        name = f"the history {label!r}" if label else "the history"
        if not hasattr(run, "epochs") or not hasattr(run, "column"):
            raise ValueError(f"plot_history: {name} is a {type(run).__name__}, expected a History")
        if not run.epochs:
            raise ValueError(f"plot_history: {name} has no epochs; train first")
    return runs


def _metric_of(runs) -> str:
    by = {label: run.metric for label, run in runs.items()}
    if len(set(by.values())) > 1:
        metrics = " and ".join(f"{label!r} by {metric}" for label, metric in by.items())
        raise ValueError(f"plot_history: {metrics.replace(' by ', ' was measured by ', 1)}; draw them one by one")
    return next(iter(by.values()))


def _evaluated(runs, metric: str) -> str:
    """The first set on which all runs were evaluated: validation, test, training; validation if none is."""
    names = [f"{split}_{metric}" for split in ("val", "test", "train")]
    known = (name for name in names if all(np.isfinite(run.column(name)).any() for run in runs.values()))
    return next(known, names[0])


def _panels(y, metric: str) -> list[list[str]]:
    """Names of the quantities by panel: loss and metric do not share an axis."""
    known = ("loss", *(f"{split}_{metric}" for split in SETS))
    names = [y] if isinstance(y, str) else list(y)
    for name in names:
        if name not in known:
            raise ValueError(f"plot_history: y is {name!r}, expected one of {', '.join(known)}")
    panels = [[n for n in names if n == "loss"], [n for n in names if n != "loss"]]
    if not names:
        raise ValueError(f"plot_history: y is empty, expected some of {', '.join(known)}")
    return [panel for panel in panels if panel]


def _curves(runs, x, names) -> list[_Curve]:
    curves = []
    for i, (label, run) in enumerate(runs.items()):
        for j, name in enumerate(names):
            xs, ys = _points(run, x, name)
            known = np.isfinite(ys)
            if not known.any():
                of = f" of the history {label!r}" if label else ""
                raise ValueError(f"plot_history: {name}{of} was never evaluated (evaluate_every); leave it out of y")
            curves.append(_Curve(i, label, j, name, xs[known], ys[known]))
    return curves


def _points(run, x: str, name: str):
    if x != "step":
        return run.column(x), run.column(name)
    if name == "loss":
        return np.arange(1, len(run.losses) + 1), np.array(run.losses, float)
    steps = len(run.losses) / len(run.epochs)  # every epoch takes as many steps
    return np.arange(1, len(run.epochs) + 1) * steps, run.column(name)


def _draw(ax, curves: list[_Curve], runs: list[dict], several_names: bool, markers: bool) -> None:
    for c in curves:
        label = ", ".join(filter(None, [c.label, SETS[c.name.partition("_")[0]] if several_names else ""]))
        look = dict(runs[c.run])
        if len(runs) == 1:  # colours distinguish quantities where there is one run
            look |= {"color": COLORS[c.part], "marker": MARKERS[c.part]}
        if several_names:
            look["linestyle"] = LINES[c.part]
        if not markers and len(c.x) > 1:
            look["marker"] = ""
        ax.plot(c.x, c.y, label=label or None, markeredgecolor="white", markeredgewidth=0.6, **look)
    if len(curves) > 1:
        _name_curves(ax, curves)


def _styles(n: int, groups: list[list[int]]) -> list[dict]:
    """Styles of n runs, different from each other, and the same in every panel."""
    # Runs on top of each other go from broad and light to narrow and dark, so that each shows beneath the next.
    styles = []
    for i in range(n):
        style = i + i // len(COLORS)  # the seventh run has the first one's colour, but another line and marker
        look = {"color": COLORS[i % len(COLORS)], "linestyle": LINES[style % len(LINES)]}
        styles.append(look | {"marker": MARKERS[style % len(MARKERS)]})
    for group in groups:
        colours = [styles[i]["color"] for i in group]
        if len(group) == n:  # nothing else in the figure: all the colours there are, and the same marker
            light_to_dark = sorted(COLORS, key=lightness, reverse=True)
            apart = [light_to_dark[i] for i in np.linspace(0, len(COLORS) - 1, n).astype(int)]
            colours = [COLORS[i % len(COLORS)] for i in range(n)] if n > len(COLORS) else apart
        step = min(3.0, MOST / (len(group) - 1))
        for i, colour in zip(group, sorted(colours, key=lightness, reverse=True), strict=True):
            above = step * (len(group) - 1 - group.index(i))
            styles[i] |= {"color": colour, "linestyle": "-", "linewidth": 1.6 + above, "markersize": 4.5 + above}
            styles[i] |= {"marker": "o"} if len(group) == n <= len(COLORS) else {}  # more share colours: markers differ
    return styles


def _on_top(panels: list[list[_Curve]], n: int) -> list[list[int]]:
    """Groups of runs whose curves coincide in every panel."""
    group = list(range(n))  # of each run: the first run on which it lies
    for i, j in combinations(range(n), 2):
        if group[j] == j and group[i] == i and all(_same(curves, i, j) for curves in panels):
            group[j] = i
    members = [[i for i in range(n) if group[i] == first] for first in range(n)]
    return [runs for runs in members if len(runs) > 1]


def _same(curves: list[_Curve], i: int, j: int) -> bool:
    """Whether the curves of two runs in a panel are so close together that they hide each other."""
    close = SAME * float(np.ptp(np.concatenate([c.y for c in curves]))) + 1e-12
    pairs = zip((c for c in curves if c.run == i), (c for c in curves if c.run == j), strict=True)
    return all(
        a.y.shape == b.y.shape and np.abs(a.y - b.y).max() <= close and np.allclose(a.x, b.x, rtol=SAME)
        for a, b in pairs
    )


def _name_curves(ax, curves) -> None:
    """Write each name at the end of its curve where there is room for it, else make a legend."""
    ends = sorted(float(c.y[-1]) for c in curves)
    low, high = ax.get_ylim()
    apart = np.diff(ends).min(initial=np.inf) > 0.08 * (high - low)
    if len(curves) > CROWD:
        return
    if not apart or len({float(c.x[-1]) for c in curves}) > 1:
        ax.legend(loc="best", handlelength=2.8)
        return
    for line, c in zip(ax.lines[-len(curves) :], curves, strict=True):
        where = {"xy": (c.x[-1], c.y[-1]), "xytext": (8, 0), "textcoords": "offset points", "annotation_clip": False}
        colour = line.get_color() if lightness(line.get_color()) < 60 else INK  # text in a light colour is hard to read
        ax.annotate(line.get_label(), **where, color=colour, va="center", fontweight="bold")


def _panel_title(names) -> str:
    if names == ["loss"]:
        return "training loss"
    split, _, metric = names[0].partition("_")
    return f"{SETS[split]} {metric_title(metric)}" if len(names) == 1 else metric_title(metric)


def _label(ax, x, names, longest: float) -> None:
    if x == "seconds":
        time_axis(ax.xaxis, longest, X_NAMES[x])
    else:
        count_axis(ax.xaxis, X_NAMES[x])
        if longest <= 1:  # a single epoch or step: the axis would count hundredths of it
            ax.set_xlim(0, 2)
    if names == ["loss"] or not is_share(names[0].partition("_")[2]):
        ax.set_ylabel(_panel_title(names))
    else:
        share_axis(ax.yaxis, _panel_title(names))
