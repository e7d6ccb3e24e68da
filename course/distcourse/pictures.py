"""Images of a data set with the model's predictions, and the confusion matrix."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.colors import PowerNorm
from matplotlib.patches import Rectangle

from distlearn.backend import to_numpy
from distlearn.viz.look import INK, MUTED, VERMILION, new_axes, share_axis, styled, write_title

GAP, LETTERING = 0.12, 0.42  # Space between two tiles, and below each for its label, as shares of a tile's size.


@styled
def images(x, y, *, predictions=None, n=20, columns=10, ax=None, title=""):
    """Show images with their classes; with predictions, wrong ones are framed and crossed.

    Parameters
    ----------
    x : (n, height, width[, channels]) or (n, features) array
        Images; flat ones count as square and grey. Grey values are stretched from the least to the largest; colours run
        from 0 to 1 (or to 255 in bytes).
    y : (n,) array of int
        True class of each.
    predictions : (n,) array of int, optional
        Predicted class of each.
    n : int
        Show the first n.
    columns : int
        Images in a row.
    """
    tiles = _tiles(to_numpy(x))
    truth = _labels("y", y, len(tiles))
    guess = None if predictions is None else _labels("predictions", predictions, len(tiles))
    tiles, truth = tiles[:n], truth[:n]
    columns = min(columns, len(tiles))
    n_rows = math.ceil(len(tiles) / columns)
    if ax is None:
        (ax,) = new_axes(figsize=(max(3.0, 0.92 * columns), 0.5 + 0.92 * n_rows * (1 + GAP + LETTERING)))
    height, width = tiles.shape[1:3]
    step = np.array([width * (1 + GAP), height * (1 + GAP + LETTERING)])
    for i, tile in enumerate(tiles):
        left, top = np.array([i % columns, i // columns]) * step
        extent = (left, left + width, top + height, top)
        ax.imshow(tile, extent=extent, cmap="gray", vmin=tiles.min(), vmax=tiles.max(), interpolation="nearest")
        _caption(ax, extent, truth[i], None if guess is None else guess[i])
    ax.set_xlim(-0.05 * width, columns * step[0] - GAP * width + 0.05 * width)
    ax.set_ylim(n_rows * step[1] - GAP * height, -0.05 * height)
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


@styled
def confusion(y, predictions, classes=None, *, ax=None, title=""):
    """Draw the confusion matrix: how many samples of each class the model assigns to which class.

    Parameters
    ----------
    y : (n,) array of int
        True classes.
    predictions : (n,) array of int
        Predicted classes.
    classes : sequence of str, optional
        Names of the classes; by default their numbers.

    Returns
    -------
    ax : Axes
        Shades are shares of a row, so that rare classes are as visible as common ones.
    """
    truth = _labels("y", y, None)
    guess = _labels("predictions", predictions, len(truth))
    most = int(max(truth.max(), guess.max()))
    names = [str(c) for c in (range(most + 1) if classes is None else classes)]
    if len(names) <= most:
        raise ValueError(f"confusion: there is a sample of class {most}, but only {len(names)} names: {names}")
    k = len(names)
    counts = np.bincount(truth * k + guess, minlength=k * k).reshape(k, k)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    if ax is None:
        side = float(np.clip(1.6 + 0.36 * k, 3.4, 9))
        (ax,) = new_axes(figsize=(side + 1.0, side))
    picture = ax.imshow(shares, cmap="Greys", norm=PowerNorm(0.5, 0, 1), interpolation="nearest")  # few mistakes show
    if k <= 20:
        for (i, j), count in np.ndenumerate(counts):
            if count:
                colour, weight = ("white" if shares[i, j] > 0.25 else INK), ("normal" if i == j else "bold")
                ax.text(j, i, str(count), ha="center", va="center", fontsize=9, color=colour, fontweight=weight)
    long = max(map(len, names)) > 3
    ax.set_xticks(range(k), names, rotation=45 if long else 0, ha="right" if long else "center", rotation_mode="anchor")
    ax.set_yticks(range(k), names)
    ax.set(xlabel="predicted class", ylabel="true class")
    ax.grid(visible=False)
    bar = ax.figure.colorbar(picture, ax=ax, shrink=0.85)
    share_axis(bar.ax.yaxis, "share of the true class")
    write_title(ax, title)
    return ax


def _tiles(x: np.ndarray) -> np.ndarray:
    if len(x) == 0:
        raise ValueError("images: x holds no images")
    if x.ndim == 2 and (side := math.isqrt(x.shape[1])) ** 2 == x.shape[1]:
        x = x.reshape(len(x), side, side)
    x = x[..., 0] if x.ndim == 4 and x.shape[-1] == 1 else x
    if x.ndim != 3 and not (x.ndim == 4 and x.shape[-1] in (3, 4)):
        raise ValueError(f"images: x has shape {x.shape}, expected (n, height, width), with 1, 3 or 4 channels at most")
    return x


def _labels(name: str, y, n: int | None) -> np.ndarray:
    y = to_numpy(y)
    if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) == 0 or (n is not None and len(y) != n) or y.min() < 0:
        wanted = "one class number (0, 1, ...) for each sample" if n is None else f"{n} class numbers (0, 1, ...)"
        raise ValueError(f"{name} has shape {y.shape} and type {y.dtype}, expected {wanted}")
    return y
