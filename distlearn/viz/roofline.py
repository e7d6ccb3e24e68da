"""The roofline: how fast a kernel can be on a card, by its operations per byte."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter

from ..cuda.cards import card as find_card
from ..tables import quantity
from .look import COLORS, INK, MARKERS, MUTED, new_axes, styled, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..cuda.cards import Card

FLOPS = "flop/s"


@styled
def plot_roofline(
    kernels: Any,
    card: str | Card = "A100",
    *,
    speeds: dict[str, float] | None = None,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """Draw the roofline of a card, and where kernels are on it.

    The slope is the card's memory bandwidth, the flat part its peak; a kernel that does I operations per byte moved
    runs at no more than min(peak, I * bandwidth). Points are on the roof: they show how fast a kernel can be at best,
    not how fast it is. The bytes of a `Report` are counted without caches, so a kernel that reads the same bytes again
    can be faster than its point. How much faster is bounded by the dashed line, on which the second-level cache (L2)
    delivers every byte; it is drawn where the card's L2 bandwidth is known.

    Parameters
    ----------
    kernels : Report, number, or dict
        A checked launch (of `RawKernel.check`), an arithmetic intensity [flop/byte], or several of them by name.
    card : str or Card
        One of `distlearn.cuda.CARDS`, or `lab05.measure_cpu()`.
    speeds : dict of str to float, optional
        Measured operations per second, by name: a filled marker each, below the hollow one on the roof.

    References
    ----------
    Williams, Waterman, Patterson: Roofline: an insightful visual performance model for multicore architectures,
    CACM 52(4), 2009.
    """
    card = find_card(card)
    points, speeds = intensities(kernels), dict(speeds or {})
    if unknown := sorted(set(speeds) - set(points)):
        raise ValueError(f"plot_roofline: speeds has {unknown[0]!r}, expected names of kernels: {', '.join(points)}")
    ax = new_axes(figsize=(7.2, 4.2))[0] if ax is None else ax
    lowest, highest = min([*points.values(), card.ridge / 30]), max([*points.values(), card.ridge * 30])
    x = np.geomspace(lowest / 2, highest * 2, 200)
    ax.plot(x, [card.attainable(i) for i in x], color=INK, linestyle="-", zorder=2)
    if card.l2_bandwidth:
        ax.plot(x, [card.attainable_from_l2(i) for i in x], color=MUTED, linestyle=(0, (5, 2)), zorder=1)
    ax.axvline(card.ridge, color=MUTED, linestyle=(0, (2, 2)), linewidth=1.2)
    for i, (name, intensity) in enumerate(points.items()):
        speed = card.attainable(intensity)
        look = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)]}
        label = _label(name, intensity, card) + (
            f", measured {quantity(speeds[name], FLOPS)}" if name in speeds else ""
        )
        face = "white" if name in speeds else look["color"]
        ax.plot([intensity], [speed], linestyle="", markersize=9, zorder=3, label=label, mfc=face, **look)
        if name in speeds:
            ax.plot([intensity], [speeds[name]], linestyle="", markersize=9, zorder=4, **look)
        ax.plot([intensity, intensity], [1, speed], color=look["color"], linewidth=1, linestyle=(0, (1, 2)), zorder=1)
    ax.set(xscale="log", yscale="log", xlim=(x[0], x[-1]))
    ax.set_ylim(min([card.attainable(x[0]), *speeds.values()]) / 2, card.peak * 4)
    ax.set_xlabel("arithmetic intensity [flop/byte]")
    ax.set_ylabel("speed [flop/s]" if speeds else "attainable [flop/s]")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: quantity(v, FLOPS)))
    above = {"xytext": (0, 8), "textcoords": "offset points"}  # clear of markers on the roof
    ax.annotate(f"peak {quantity(card.peak, FLOPS)}", (x[-1], card.peak), **above, ha="right", color=MUTED, fontsize=9)
    for label, bandwidth, below, offset, side in (
        ("memory", card.bandwidth, 8, (8, -6), "left"),
        ("L2", card.l2_bandwidth, 3, (-8, 0), "right"),
    ):
        if bandwidth:
            at = card.peak / bandwidth / below  # beside its slope, on the side away from the other, clear of the ridge
            ax.annotate(
                f"{label} {bandwidth / 1e9:,.0f} GB/s", (at, at * bandwidth), xytext=offset,
                textcoords="offset points", ha=side, color=MUTED, fontsize=9,
            )  # fmt: skip
    caption = "fastest without caches" + (" (with every byte from L2)" if card.l2_bandwidth else "")
    caption = "hollow: at most; filled: measured" if speeds else caption
    ax.legend(loc="upper left", bbox_to_anchor=(0, -0.18), borderaxespad=0, title=caption, alignment="left")
    write_title(ax, title)
    return ax


def intensities(kernels) -> dict[str, float]:
    """Return operations per byte by name, of reports or numbers."""
    if not isinstance(kernels, Mapping):
        kernels = {getattr(kernels, "kernel", "kernel"): kernels}
    points = {name: float(getattr(k, "arithmetic_intensity", k)) for name, k in kernels.items()}
    for name, value in points.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"plot_roofline: {name!r} does {value} operations per byte, expected a number above 0")
    return points


def _label(name, intensity, card) -> str:
    most, from_l2 = card.attainable(intensity), card.attainable_from_l2(intensity)
    cached = f" ({quantity(from_l2, FLOPS)})" if from_l2 and from_l2 > most else ""
    operations = f"{intensity:,.0f}" if intensity >= 100 else f"{intensity:.2g}"  # not 1e+02
    return f"{name}: {operations} flop/byte, {quantity(most, FLOPS)}{cached}"
