"""Four ways to convolve: what they cost, and what they lose to rounding."""

from __future__ import annotations

import copy
import functools
import math
from numbers import Real
from typing import NamedTuple

import numpy as np
from matplotlib.patches import Patch

from distlearn.data import load
from distlearn.nn import (
    ALGORITHMS,
    Conv2d,
    Flatten,
    Linear,
    LocalResponseNorm,
    MaxPool,
    ReLU,
    Reshape,
    Sequential,
    SoftmaxCrossEntropy,
    conv_cost,
    fuse,
    init,
    move,
    walk,
)
from distlearn.nn.conv import direct, winograd
from distlearn.nn.conv.geometry import Geometry
from distlearn.nn.costs.profile import fewest_seconds
from distlearn.optim import Adam, Optimizer
from distlearn.parallel import Serial
from distlearn.train import fit
from distlearn.viz.look import COLORS, INK, LINES, MARKERS, MUTED, TRACK, new_axes, styled

from .exercise import named

# -- What the checks of the exercises look at.


def run_windows(convolve, max_pool, lrn, of, shape, dtype="float64", seed=0, kernel=(), **case):
    """Call one of the functions with random images of a shape; a kernel has rows, columns, and output channels."""
    x, W = _layer(shape, kernel, dtype, seed)
    if of == "convolve":
        return {"y": convolve(x, W)}
    return {"y": (max_pool if of == "max_pool" else lrn)(x, *case.values())}


def _layer(shape, kernel, dtype, seed):
    """Draw images, and kernels if there is a kernel."""
    rng = np.random.default_rng(seed)
    size = (*kernel[:2], shape[-1], *kernel[2:])
    return rng.normal(size=shape).astype(dtype), rng.normal(size=size).astype(dtype) if kernel else None


def run_spectra(columns, im2col, fft, of, shape=(1, 3, 1, 1), kernel=(3, 1, 1), dtype="float64", seed=0, **case):
    """Call one of the functions; say whether sums of zeros are 0, or rounded, as spectra do."""
    x, W = _layer(shape, kernel, dtype, seed)
    if of == "columns":
        return {"matrix": columns(x, *kernel[:2])}
    if "sum" in case:
        x, W = np.float16([2048, 1, -2048]).reshape(x.shape), np.ones(W.shape, np.float16)
    answer = im2col if of == "im2col" else fft
    if "zeros" in case:
        x[:, : case["zeros"]] = 0
        zeros = answer(x, W)[:, : case["zeros"] - len(W) + 1]
        return {"sums of zeros": "rounded" if np.any(zeros) else "0"}
    return {"y": answer(x, W)}


def run_winograd(winograd, shape=(), m=1, r=2, dtype="float64", seed=0, sum=""):
    """Call the function with random images and matrices, or with such that the only output is a sum that rounds."""
    if sum:
        x, W = np.zeros((1, 2, 2, 2)), np.zeros((2, 2, 2, 1))
        x[0, 0, 0, 0], x[0, 0, 1, 1], W[0, 0, :, 0] = 4097, 4096, (4097, 4098)
        three = np.eye(2), np.array([[1, 0], [1, 0]]), np.array([[1, -1]])
    else:
        x, W = _layer(shape, (r, r, 4), dtype, seed)
        a, rng = m + r - 1, np.random.default_rng(seed)
        three = [rng.normal(size=size) for size in ((a, a), (a, r), (m, a))]
    return {"y": winograd(*(array.astype(dtype) for array in (x, W, *three)))}


def run_cost(winograd_cost, **case):
    return named(winograd_cost(*case.values()), "work", "depth")


def run_transforms(transforms, points, m, r):
    return named(transforms(points, m, r), "BT", "G", "AT")


def run_points(points, images):
    """Say how many bits points lose on images drawn with a seed."""
    chosen = points()
    if not (isinstance(chosen, (list, tuple, range, np.ndarray)) and all(isinstance(a, Real) for a in chosen)):
        return {"points": f"no list of real numbers, but of type {type(chosen).__name__}"}
    found = {float(a) for a in chosen if math.isfinite(a)}
    if not len(found) == len(chosen) == 7:
        return {"points": f"{len(chosen)}, of which {len(found)} are different and finite"}
    lost = loss_of_points([float(a) for a in chosen], seed=images)
    why = ", and the largest point's fifth power is large" * (max(map(abs, found)) > 2.6)
    why += ", and points close to 0 are close to each other: BT grows" * (min(abs(a) for a in found - {0.0}) < 0.38)
    why += ", and none is negative" * (min(found) >= 0)
    how_many = f"about {lost:.0f} of" if math.isfinite(lost) else "by an overflow all"
    return {
        "points": "7, of which 7 are different and finite",
        "bits lost": "at most 4.5 of 11" if lost <= 4.5 else f"{how_many} 11{why}",
    }


# -- Bits that a convolution loses to rounding, and what that does to a trained network.


def bits_lost(y, exact) -> float:
    r"""Say how many of the significant bits of its precision a result has lost.

    .. math:: \log_2 \frac{\|y - y_{64}\|}{u \, \|y_{64}\|}, \qquad u = 2^{-24}, 2^{-11}, 2^{-8}, \ldots

    Parameters
    ----------
    exact : array of the same shape
        The same computed in float64.

    Returns
    -------
    bits : float
        About 0 where only the result was rounded; infinite where `y` overflowed. Float32 has 24, float16 has 11.
    """
    error = np.asarray(y, np.float64) - exact
    if not np.isfinite(error).all():
        return math.inf
    unit = np.finfo(y.dtype).eps / 2
    return float(np.log2(max(np.linalg.norm(error) / np.linalg.norm(exact) / unit, 1e-3)))


def sample_layer(dtype="float32", seed: int = 0):
    """Draw images and 3 x 3 kernels for measuring errors.

    Returns
    -------
    x : (2, 26, 26, 8) array
    W : (3, 3, 8, 8) array
    exact : array
        Their convolution without padding, in float64, of the rounded numbers.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 26, 26, 8)).astype(dtype)
    W = (rng.normal(size=(3, 3, 8, 8)) / (3 * math.sqrt(8))).astype(dtype)
    exact, _ = direct.forward(x.astype(np.float64), W.astype(np.float64), Geometry((3, 3)))
    return x, W, exact


def loss_of_points(points, m: int = 6, dtype="float16", seed: int = 0) -> float:
    """Bits that F(m x m, 3 x 3) with these interpolation points loses on a sample layer.

    Parameters
    ----------
    points : sequence of float
        m + 1 different ones.
    dtype : {"float32", "float16"}
    seed : int
        Of images and kernels.
    """
    x, W, exact = sample_layer(dtype, seed)
    with np.errstate(all="ignore"):  # constants and tiles may overflow
        y, _ = winograd.forward(x, W, Geometry((3, 3)), transforms=winograd.Transforms.from_points(points, m))
    return bits_lost(y, exact)


TRIED = {
    "0, ±1, ±2, ±1/2": (0, 1, -1, 2, -2, 1 / 2, -1 / 2),
    "0, ±1, ±3/2, ±2/3": (0, 1, -1, 3 / 2, -3 / 2, 2 / 3, -2 / 3),
    "0, ±1, ±3, ±1/3": (0, 1, -1, 3, -3, 1 / 3, -1 / 3),
    "0, ±1, ±2, ±3": (0, 1, -1, 2, -2, 3, -3),
}
"""Interpolation points for F(6 x 6, 3 x 3); the first are those of wincnn."""


def rank_points(points) -> dict[str, float]:
    """Compare points for F(6 x 6, 3 x 3) in half precision with sets that others have tried.

    Returns
    -------
    bits : dict of str to float
        Bits lost, the mean over five samples, least first; `points` are "yours".
    """
    sets = {"yours": points, **TRIED}
    bits = {name: float(np.mean([loss_of_points(some, seed=seed) for seed in range(5)])) for name, some in sets.items()}
    return dict(sorted(bits.items(), key=lambda item: item[1]))


@functools.cache
def deep_network(seed: int = 0):
    """Train a network of ten 3 x 3 convolutions on the digits; some seconds."""
    data, seeds = load("digits"), init.seeds(seed)
    h, w, c = 8, 8, 1
    layers = [Reshape(h, w, c)]
    for i in range(10):
        layers += [Conv2d(c, 8, 3, next(seeds), padding="same", input_gradient=i > 0), ReLU()]
        layers += [LocalResponseNorm()] if i == 0 else []
        c = 8
    layers += [MaxPool(2), Flatten(), Linear(h * w * c // 4, data.n_classes, next(seeds), gain=1.0)]
    model = Sequential(*layers)
    trainer = Serial(None, fuse(model), SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 0.003))
    fit(trainer, data, epochs=10, batch_size=64, seed=seed, evaluate_every=0)
    return model


def use_convolution(model, function, dtype="float32"):
    """Copy a model, with `function(x, W)` as the forward pass of its convolutions, in another precision.

    Parameters
    ----------
    function : callable
        function(x, W) -> y, for images that are padded already, (n, h, w, c_in), and kernels (kh, kw, c_in, c_out).
        The backward pass stays the layer's.
    dtype : dtype
        Of parameters, and of the images and kernels that `function` gets.

    Returns
    -------
    model : Layer
        Its input must have this dtype.
    """
    model = move(copy.deepcopy(model), lambda a: a.astype(dtype))
    for layer in walk(model):
        if isinstance(layer, Conv2d):
            layer.__class__, layer.function, layer.algorithm = _Swapped, function, "im2col"
    return model


class _Swapped(Conv2d):
    """A convolution whose forward pass is somebody else's."""

    def convolve(self, x, run):
        padded = self.geometry.pad(x)  # which is what im2col's backward pass needs
        y = self.function(padded, self.W.data)
        return np.ascontiguousarray(y), padded


def digits_recognised(model) -> int:
    """How many of the digits' first 100 test images a model recognises; NaN counts as wrong."""
    data, dtype = load("digits"), model.params[0].data.dtype
    x, labels = data.x_test[:100].astype(dtype), data.y_test[:100]
    with np.errstate(all="ignore"):
        scores = model.forward(x)[0].astype(np.float64)
    return int(np.sum((scores.argmax(axis=1) == labels) & np.isfinite(scores).all(axis=1)))


# -- Which way to convolve is the fastest, by the shape of the layer: by counted work, and by the clock.


class Way(NamedTuple):
    """One algorithm on one layer."""

    name: str
    work: float
    """Multiply-adds of the forward pass; 0 for the fused layer, which chooses for itself."""
    seconds: float
    """Of one forward pass on one thread: the fastest of some."""


def time_ways(shape, c_out: int, k: int = 3) -> list[Way]:
    """Time the forward pass of every algorithm that can compute a layer, and of `nn.fuse`'s.

    Parameters
    ----------
    shape : (n, h, w, c_in)
        Of the images.
    c_out, k : int
        Channels of the output; rows and columns of the kernel. Padding "same", stride 1, float32.

    Returns
    -------
    ways : list of Way
        The plain ones first, "fused" last.
    """
    n, h, w, c_in = shape
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    names = [name for name in ALGORITHMS if k == 3 or not name.startswith("winograd")]
    layers = {name: Conv2d(c_in, c_out, k, 0, padding="same", algorithm=name) for name in names}
    layers["fused"] = fuse(Conv2d(c_in, c_out, k, 0, padding="same"))
    seconds = {name: fewest_seconds(layer.forward, x) for name, layer in layers.items()}
    works = {"fused": 0.0}
    for name in names:
        kind, m = (name[:-1], int(name[-1])) if name.startswith("winograd") else (name, 2)
        works[name] = conv_cost(kind, n, c_in, c_out, h, w, k, m).work
    return [Way(name, works[name], seconds[name]) for name in layers]


# -- Convolution: bits lost to rounding by tile and precision; the times of several algorithms beside their work.


@styled
def plot_bits(losses, *, title):
    """Draw the bits that Winograd's tiles lose, a panel for each precision.

    Parameters
    ----------
    losses : dict of str to dict of (str, int) to float
        By the name of the interpolation points: bits lost in (precision, tile m); infinite where it overflowed.
    """
    kinds = {kind for bits in losses.values() for kind, _ in bits}
    bits_of = {kind: np.finfo(kind).nmant + 1 for kind in kinds}  # significant bits, the implicit one included
    kinds = sorted(kinds, key=bits_of.get, reverse=True)
    tiles = sorted({m for bits in losses.values() for _, m in bits})
    axes = new_axes(len(kinds), figsize=(4.7 * len(kinds), 3.7))
    finite = [b for bits in losses.values() for b in bits.values() if np.isfinite(b)]
    top = 1.12 * max([*finite, *bits_of.values()])
    for ax, kind in zip(axes, kinds, strict=True):
        ax.axhspan(bits_of[kind], 2 * top, color=TRACK, zorder=0)
        ax.axhline(bits_of[kind], color=INK, linewidth=1)
        ax.text(0.02, bits_of[kind] + 0.01 * top, f"all {bits_of[kind]} lost", fontsize=9, color=INK,
                transform=ax.get_yaxis_transform(), va="bottom")  # fmt: skip
        for i, (name, bits) in enumerate(losses.items()):
            values = np.array([bits.get((kind, m), np.nan) for m in tiles])
            look = {"color": COLORS[i % 6], "linestyle": LINES[i % 6], "marker": MARKERS[i % 6]}
            ax.plot(range(len(tiles)), np.where(np.isinf(values), np.nan, values), label=name, **look)
            for place in np.flatnonzero(np.isinf(values)):  # beyond the panel: a separate line, not a number
                ax.annotate("overflow", (place, 0.97 * top), xytext=(-7, 0), textcoords="offset points", ha="right",
                            va="center", fontsize=9)  # fmt: skip
                ends = [value for value in values[max(place - 1, 0) : place] if np.isfinite(value)] + [0.97 * top]
                ax.plot(np.arange(place - len(ends) + 1, place + 1), ends, markevery=[-1], **look)
        ax.set_xticks(range(len(tiles)), [f"F({m},3)" for m in tiles])
        ax.set(xlabel="tile", ylabel=f"bits lost, {kind}", ylim=(0, top), xlim=(-0.2, len(tiles) - 0.8))
    axes[-1].legend(title="points", loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes[0].set_title(title)
    return axes


@styled
def plot_ways(layers, *, title):
    """Draw the seconds of several algorithms on several layers, and what their work predicts.

    Parameters
    ----------
    layers : dict of str to list of Way
        What `lab03.time_ways` returned, by the name of the layer.

    Returns
    -------
    axes : tuple of Axes
        Bars are measured; a diamond is the work, in the time that im2col takes for as much.
    """
    axes = new_axes(len(layers), figsize=(2.9 * len(layers) + 0.6, 3.4))
    for ax, (label, ways) in zip(axes, layers.items(), strict=True):
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
        ax.set(xlabel="time [ms]", xlim=(0, None))
        ax.set_title(label, fontsize=10)
    axes[0].figure.suptitle(title, x=0.01, ha="left")
    kinds = {"measured": MUTED, "measured, fastest plain one": COLORS[0], "measured, fused": COLORS[2]}
    handles = [Patch(color=color, label=label) for label, color in kinds.items()]
    handles += axes[0].get_legend_handles_labels()[0]
    axes[0].figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return axes
