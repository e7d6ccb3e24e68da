"""The pipeline bubble against the number of micro-batches: what theory says, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..parallel.pipeline.schedule import ideal_bubble
from .look import COLORS, LINES, MARKERS, new_axes, styled, write_title
from .units import share_axis


@styled
def plot_bubble(
    n_ranks: int | Sequence[int],
    n_microbatches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    *,
    n_virtual: int | Sequence[int] = 1,
    measured: Mapping[str, Mapping[int, float]] | None = None,
    ax=None,
    title: str | None = None,
):
    """Draw the bubble against the number of micro-batches: what theory says as lines, what was measured as points.

    Parameters
    ----------
    n_ranks : int or sequence of int
        p.
    n_microbatches : sequence of int
        m, in any order.
    n_virtual : int or sequence of int
        v, stages of a rank: 1 for GPipe and 1F1B, more for interleaved schedules (whose m is a multiple of p).
    measured : dict of str to dict of int to float, optional
        By name, the share of time spent waiting (from 0 to 1) for each number of micro-batches.
    ax : Axes, optional
        Where to draw.
    title : str, optional
        By default how many micro-batches bring the bubble below a tenth.

    Returns
    -------
    ax : Axes

    References
    ----------
    See `ideal_bubble`.
    """
    ranks, virtual = np.atleast_1d(n_ranks).tolist(), np.atleast_1d(n_virtual).tolist()
    m = np.unique(np.asarray(list(n_microbatches), int))
    if m.size == 0 or m[0] < 1:
        raise ValueError(f"plot_bubble: n_microbatches is {list(n_microbatches)}, expected numbers of 1 or more")
    ax = new_axes(figsize=(7.6, 3.8))[0] if ax is None else ax
    for i, (p, v) in enumerate((p, v) for p in ranks for v in virtual):
        at = m[m % p == 0] if v > 1 else m
        label = f"{p} rank{'s' * (p > 1)}"
        label += f", {v} stage{'s' * (v > 1)} each" if max(virtual) > 1 else ""
        ax.plot(
            at, [ideal_bubble(p, n, v) for n in at.tolist()], color=COLORS[i % len(COLORS)],
            linestyle=LINES[i % len(LINES)], label=label,
        )  # fmt: skip
    for i, (label, shares) in enumerate((measured or {}).items()):
        marker = MARKERS[i % len(MARKERS)]
        look = {"color": COLORS[i % len(COLORS)], "marker": marker, "linestyle": "", "markersize": 7, "zorder": 3}
        ax.plot(list(shares), list(shares.values()), label=label, **look)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(m.tolist() if m.size <= 10 else [2**k for k in range(20)]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("micro-batches")
    share_axis(ax.yaxis, "bubble")
    ax.set_ylim(bottom=0)
    ax.legend()
    write_title(ax, _enough(ranks[-1], virtual[0]), title)
    return ax


def _enough(p: int, v: int) -> str:
    """Say how many micro-batches make the bubble small: (p - 1) / (v m + p - 1) <= 1 / 10."""
    if p == 1:
        return "One rank has no bubble"
    m = -(-9 * (p - 1) // v)
    return f"{p} ranks: a bubble of 10% takes {m} micro-batches" + (f" with {v} stages each" if v > 1 else "")
