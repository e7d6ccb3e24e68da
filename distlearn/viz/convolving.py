"""Convolution: bits lost to rounding by tile and precision; the times of several algorithms beside their work."""

from __future__ import annotations

import numpy as np
from matplotlib.patches import Patch

from .look import COLORS, INK, LINES, MARKERS, MUTED, TRACK, new_axes, styled, write_title


@styled
def plot_bits(losses, *, axes=None, title=None):
    """Draw the bits that Winograd's tiles lose, a panel for each precision.

    Parameters
    ----------
    losses : dict of str to dict of (str, int) to float
        By the name of the interpolation points: bits lost in (precision, tile m); infinite where it overflowed.
    axes : sequence of Axes, optional
        One for each precision.
    title : str, optional

    Returns
    -------
    axes : tuple of Axes
    """
    if not losses:
        raise ValueError("plot_bits: no losses, expected at least one set of points")
    kinds = {kind for bits in losses.values() for kind, _ in bits}
    bits_of = {kind: np.finfo(kind).nmant + 1 for kind in kinds}  # significant bits, the implicit one included
    kinds = sorted(kinds, key=bits_of.get, reverse=True)
    tiles = sorted({m for bits in losses.values() for _, m in bits})
    axes = new_axes(len(kinds), figsize=(4.7 * len(kinds), 3.7)) if axes is None else axes
    finite = [b for bits in losses.values() for b in bits.values() if np.isfinite(b)]
    top = 1.12 * max([*finite, *bits_of.values()])
    for ax, kind in zip(np.atleast_1d(axes), kinds, strict=True):
        ax.axhspan(bits_of[kind], 2 * top, color=TRACK, zorder=0)
        ax.axhline(bits_of[kind], color=INK, linewidth=1)
        ax.text(0.02, bits_of[kind] + 0.01 * top, f"all {bits_of[kind]} lost", fontsize=9, color=INK,
                transform=ax.get_yaxis_transform(), va="bottom")  # fmt: skip
        for i, (name, bits) in enumerate(losses.items()):
            values = np.array([bits.get((kind, m), np.nan) for m in tiles])
            look = {"color": COLORS[i % 6], "linestyle": LINES[i % 6], "marker": MARKERS[i % 6]}
            ax.plot(range(len(tiles)), np.where(np.isinf(values), np.nan, values), label=name, **look)
            for place in np.flatnonzero(np.isinf(values)):  # beyond the panel: a line of its own, which is no number
                ax.annotate("overflow", (place, 0.97 * top), xytext=(-7, 0), textcoords="offset points", ha="right",
                            va="center", fontsize=9)  # fmt: skip
                ends = [value for value in values[max(place - 1, 0) : place] if np.isfinite(value)] + [0.97 * top]
                ax.plot(np.arange(place - len(ends) + 1, place + 1), ends, markevery=[-1], **look)
        ax.set_xticks(range(len(tiles)), [f"F({m},3)" for m in tiles])
        ax.set(xlabel="tile", ylabel=f"bits lost, {kind}", ylim=(0, top), xlim=(-0.2, len(tiles) - 0.8))
    axes = tuple(np.atleast_1d(axes))
    axes[-1].legend(title="points", loc="center left", bbox_to_anchor=(1.0, 0.5))
    worst, tile, name = max(
        (b, f"F({m},3) in {kind}", n) for n, bits in losses.items() for (kind, m), b in bits.items()
    )
    write_title(axes[0], f"Most is lost by {tile} with {name}" + " (overflow)" * (worst == np.inf), title)
    return axes


@styled
def plot_ways(layers, *, axes=None, title=None):
    """Draw the seconds of several algorithms on several layers, and what their work predicts.

    Parameters
    ----------
    layers : dict of str to list of Way
        What `experiments.time_ways` returned, by the name of the layer.
    axes : sequence of Axes, optional
        One for each layer.
    title : str, optional

    Returns
    -------
    axes : tuple of Axes
        Bars are measured; a diamond is the work, in the time that im2col takes for as much.
    """
    if not layers:
        raise ValueError("plot_ways: no layers, expected at least one")
    axes = new_axes(len(layers), figsize=(2.9 * len(layers) + 0.6, 3.4)) if axes is None else axes
    for ax, (label, ways) in zip(np.atleast_1d(axes), layers.items(), strict=True):
        rate = next(way.seconds / way.work for way in ways if way.name == "im2col")
        measured = np.array([1e3 * way.seconds for way in ways])
        fastest = min(ways[:-1], key=lambda way: way.seconds).name
        colors = [COLORS[2] if way.name == "fused" else COLORS[0] if way.name == fastest else MUTED for way in ways]
        ax.barh(range(len(ways)), measured, color=colors, height=0.6)
        predicted = [(i, 1e3 * rate * way.work) for i, way in enumerate(ways) if way.work]
        ax.plot([t for _, t in predicted], [i for i, _ in predicted], "D", color="white", markeredgecolor=COLORS[1],
                markeredgewidth=1.6, linestyle="", label="predicted by work")  # fmt: skip
        ax.set_yticks(range(len(ways)), [way.name for way in ways])
        ax.invert_yaxis()
        ax.grid(visible=False, axis="y")
        ax.set(xlabel="ms", xlim=(0, None))
        ax.set_title(label, fontsize=10)
    axes = tuple(np.atleast_1d(axes))
    axes[0].figure.suptitle(title or "Fastest plain way by layer", x=0.01, ha="left")
    kinds = {"measured": MUTED, "measured, fastest plain one": COLORS[0], "measured, fused": COLORS[2]}
    handles = [Patch(color=color, label=label) for label, color in kinds.items()]
    handles += axes[0].get_legend_handles_labels()[0]
    axes[0].figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return axes
