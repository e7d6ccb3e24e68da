"""Images of a data set with the model's predictions."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.patches import Rectangle

from distlearn.viz.look import INK, MUTED, VERMILION, new_axes, styled, write_title

GAP, LETTERING = 0.12, 0.42  # Space between two tiles, and below each for its label, as shares of a tile's size.


@styled
def images(x, y, *, predictions=None, n=20, columns=10, title=""):
    """Show images with their classes; with predictions, wrong ones are framed and crossed.

    Parameters
    ----------
    x : (n, features) array
        Square images, flat. Grey values are stretched from the least to the largest.
    y : (n,) array of int
        True class of each.
    predictions : (n,) array of int, optional
        Predicted class of each.
    n : int
        Show the first n.
    columns : int
        Images in a row.
    """
    side = math.isqrt(x.shape[1])
    tiles = x[:n].reshape(-1, side, side)
    columns = min(columns, len(tiles))
    n_rows = math.ceil(len(tiles) / columns)
    (ax,) = new_axes(figsize=(max(3.0, 0.92 * columns), 0.5 + 0.92 * n_rows * (1 + GAP + LETTERING)))
    step = side * np.array([1 + GAP, 1 + GAP + LETTERING])
    for i, tile in enumerate(tiles):
        left, top = np.array([i % columns, i // columns]) * step
        extent = (left, left + side, top + side, top)
        ax.imshow(tile, extent=extent, cmap="gray", vmin=tiles.min(), vmax=tiles.max(), interpolation="nearest")
        _caption(ax, extent, y[i], None if predictions is None else predictions[i])
    ax.set_xlim(-0.05 * side, columns * step[0] + (0.05 - GAP) * side)
    ax.set_ylim(n_rows * step[1] - GAP * side, -0.05 * side)
    ax.set_axis_off()
    write_title(ax, title)
    return ax


def _caption(ax, extent, truth: int, guess: int | None) -> None:
    left, right, bottom, top = extent
    wrong = guess is not None and guess != truth
    text = str(truth) if guess is None else f"✗ {guess}, not {truth}" if wrong else f"✓ {guess}"
    middle, below = (left + right) / 2, bottom + 0.06 * (bottom - top)
    weight = {"fontweight": "bold", "color": VERMILION} if wrong else {"color": INK}
    ax.text(middle, below, text, ha="center", va="top", fontsize=10, **weight)
    frame = {"edgecolor": VERMILION if wrong else MUTED, "linewidth": 2.5 if wrong else 0.5}
    ax.add_patch(
        Rectangle((left, top), right - left, bottom - top, fill=False, gid="wrong" if wrong else None, **frame)
    )
