"""Strong scaling: how many times faster p ranks are than one, and what share of their time that uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .look import COLORS, MUTED, new_axes, share_axis, styled, write_title


class Speedup(NamedTuple):
    """Speed-up of one set of runs, by number of ranks."""

    # Of repeated runs the median, and `low` and `high`, the slowest and the fastest.

    sizes: np.ndarray
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray


@styled
def plot_speedup(
    sizes: Sequence[int],
    measured: Any = None,
    *,
    simulated: Any = None,
    axes: Any = None,
    labels: dict[str, str] | None = None,
    title: str = "",
) -> Any:
    """Draw speed-up (left) and parallel efficiency (right) against the number of ranks.

    Speed-up is S(p) = T(1) / T(p), efficiency S(p) / p. With repeated runs the points are medians, T(1) is the median
    of the serial runs, and bars reach from the slowest run to the fastest.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of ranks p; 1 must be among them.
    measured : sequence or dict, optional
        Seconds T(p) for each size: a number, or a list of the seconds of repeated runs. A dict gives them by size; it
        must have size 1, others are optional.
    simulated : sequence or dict, optional
        The same for simulated runs; drawn as a line. The simulator's own T(1) is its reference.
    labels : dict, optional
        Other names for "measured", "simulated" and "ideal" in the legend.
    """
    sizes = _sizes(sizes)
    runs = {k: speedup(sizes, v, k) for k, v in (("simulated", simulated), ("measured", measured)) if v is not None}
    if not runs:
        raise ValueError("plot_speedup: neither measured nor simulated times are given")
    names = {"measured": "measured", "simulated": "simulated", "ideal": "ideal", **(labels or {})}
    left, right = new_axes(2, figsize=(8.4, 3.6)) if axes is None else axes
    for ax, per_rank in ((left, False), (right, True)):
        ideal = np.ones(len(sizes)) if per_rank else sizes
        ax.plot(sizes, ideal, color=MUTED, linestyle=(0, (2, 2)), linewidth=1.5, marker="", label=names["ideal"])
        for kind, run in runs.items():
            _draw(ax, run, kind, names[kind], per_rank)
        if sizes[-1] > 16:  # doublings equally far apart
            ax.set_xscale("log", base=2)
        ax.xaxis.set_major_locator(FixedLocator(sizes, nbins=12))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda p, _: f"{p:.0f}"))
        ax.set_xlabel("ranks")
    left.set_ylabel("speed-up T(1) / T(p) [times]")
    if sizes[-1] > 16:
        left.set_yscale("log", base=2)
        left.yaxis.set_major_formatter(FuncFormatter(lambda s, _: f"{s:g}"))
    else:
        left.set_ylim(bottom=0)
    share_axis(right.yaxis, "parallel efficiency")
    right.set_ylim(0, max(1.08, 1.03 * right.dataLim.ymax))
    left.legend(loc="upper left")
    write_title(left, title)
    return left, right


def speedup(sizes: np.ndarray, times, what: str = "measured") -> Speedup:
    """Turn seconds by size into speed-ups over one rank.

    Examples
    --------
    >>> speedup(np.array([1, 2]), [6.0, [3.0, 4.0, 4.0]]).median.tolist()
    [1.0, 1.5]
    """
    if not isinstance(times, Mapping):
        if len(times) != len(sizes):
            raise ValueError(f"plot_speedup: {len(times)} {what} times for {len(sizes)} sizes")
        times = dict(zip(sizes.tolist(), times, strict=True))
    odd = sorted(set(times) - set(sizes.tolist()))
    if odd or 1 not in times:
        problem = (
            f"for sizes {odd} that are not in {sizes.tolist()}" if odd else "without T(1): speed-up is T(1) / T(p)"
        )
        raise ValueError(f"plot_speedup: {what} times {problem}")
    seconds = {p: np.atleast_1d(np.asarray(times[p], float)) for p in sizes.tolist() if p in times}
    for p, t in seconds.items():
        if t.size == 0 or not np.all(np.isfinite(t) & (t > 0)):
            raise ValueError(f"plot_speedup: {what} time of {p} ranks is {times[p]!r}, expected seconds above 0")
    serial = np.median(seconds[1])
    by_size = [[serial / f(t) for t in seconds.values()] for f in (np.median, np.max, np.min)]
    return Speedup(np.array(list(seconds)), *map(np.array, by_size))


def _sizes(sizes: Sequence[int]) -> np.ndarray:
    given = np.asarray(list(sizes))
    if given.size == 0 or given.dtype.kind not in "iu" or (given < 1).any() or (np.diff(given) <= 0).any():
        raise ValueError(f"plot_speedup: sizes are {list(sizes)!r}, expected increasing ranks, such as [1, 2, 4]")
    return given


def _draw(ax, run: Speedup, kind: str, label: str, per_rank: bool) -> None:
    """Draw one set of runs: a line, and for measured ones points with bars from the slowest to the fastest."""
    unit = run.sizes if per_rank else 1
    if kind == "simulated":
        look = {"color": COLORS[1], "linestyle": (0, (5, 1.5)), "marker": "s", "markerfacecolor": "white"}
        ax.plot(run.sizes, run.median / unit, label=label, **look)
        return
    bars = np.array([run.median - run.low, run.high - run.median]) / unit
    look = {"color": COLORS[0], "linestyle": "-", "marker": "o", "capsize": 4, "elinewidth": 1.3}
    ax.errorbar(run.sizes, run.median / unit, yerr=bars if bars.any() else None, label=label, zorder=3, **look)
