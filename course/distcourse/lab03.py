"""Four ways to convolve: what they cost, and what they lose to rounding."""

from __future__ import annotations

import copy
import functools
import math
from typing import NamedTuple

import numpy as np
from matplotlib.patches import Patch
from threadpoolctl import threadpool_limits

from distlearn.data import Batches, load
from distlearn.nn import (
    ALGORITHMS,
    AvgPool,
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
from distlearn.viz.look import COLORS, INK, LINES, MARKERS, MUTED, TRACK, new_axes, styled, write_title

# -- Checks of the exercises, and what common mistakes give.


def library(x, W):
    """The library's convolution, without padding."""
    layer = Conv2d(*W.shape[2:], W.shape[:2], "zeros", bias=False, dtype=x.dtype)
    layer.W.data[...] = W
    return layer.forward(x)[0]


def check_windows(check, convolve, max_pool, lrn, shape, kernel, pool, rng, n=5, k=2.0, alpha=1e-4, beta=0.75):
    """Convolution, pooling and normalisation of random images of a shape."""
    x, W, what = rng.normal(size=shape), rng.normal(size=(*kernel, shape[-1], 4)), f", {shape}"
    (kh, kw), y = kernel, library(x, W)
    small = W * (np.arange(kh) < 3)[:, None, None, None] * (np.arange(kw) < 3)[:, None, None]
    suspects = {
        "the kernel is flipped": library(x, W[::-1, ::-1]),
        "add the positions of the kernel: only the last one is left": x[:, kh - 1 :, kw - 1 :] @ W[-1, -1],
        "a kernel may be larger than 3 x 3": library(x, small),
    }
    if kh == kw:
        suspects["the kernel is transposed: W[u, v] goes with row u, column v"] = library(x, W.swapaxes(0, 1))
    elif kh < kw:
        suspects["a kernel need not be square: kh, kw = W.shape[:2]"] = library(x, W[:, :kh])
        suspects["the kernel's rows and columns are mixed up: W[u, v]"] = sum(
            x[:, u : u + y.shape[1], v : v + y.shape[2]] @ W[v % kh, u % kw] for u in range(kh) for v in range(kw)
        )
    check.close(f"convolve{what} by {kernel}", check.call(convolve, x, W), y, suspects=suspects)
    (largest, _), (mean, _) = (kind(pool).forward(x) for kind in (MaxPool, AvgPool))
    m, h, w, c = shape
    whole = x[:, : h // pool * pool, : w // pool * pool]
    mixed = whole.reshape(m, pool, h // pool, pool, w // pool, c).max(axis=(1, 3))
    check.close(f"max_pool{what} by {pool}", check.call(max_pool, x, pool), largest, suspects={
        "this is the mean": mean,
        "the largest value, not the largest magnitude": MaxPool(pool).forward(abs(x))[0],
        "this is the least: the largest is wanted": -MaxPool(pool).forward(-x)[0],
        "this is the first value of each window": whole[:, ::pool, ::pool],
        "a window is k neighbours: reshape to (n, h // k, k, w // k, k, c)": mixed,
        "windows are k x k, not 2 x 2": MaxPool(2).forward(x)[0],
    })  # fmt: skip
    y, _ = LocalResponseNorm(n, k=k, alpha=alpha, beta=beta).forward(x)
    total = ((y / x) ** (-1 / beta) - k) / alpha  # the sum of squares over the neighbours
    loud, half = k + alpha * (x * x).sum(axis=-1, keepdims=True), n // 2
    damped = lambda squares, alpha=alpha: x * (k + alpha * squares) ** -beta  # noqa: E731
    padded = np.pad(x * x, ((0, 0), (0, 0), (0, 0), (n - 1, 0)))
    around = np.pad(x * x, ((0, 0), (0, 0), (0, 0), (half, half)), mode="wrap")
    slide = lambda a: sum(a[..., i : i + c] for i in range(n))  # noqa: E731
    given, usual = {"n": n, "k": k, "alpha": alpha, "beta": beta}, {"n": 5, "k": 2.0, "alpha": 1e-4, "beta": 0.75}
    fixed = {f"{name} is an argument, not always {it}": {name: it} for name, it in usual.items()}
    check.close(f"lrn{what}, n = {n}", check.call(lrn, x, n, k, alpha, beta), y, suspects={
        "divide, do not multiply: the power is -beta": x * x / y,
        "sum over n channels, not over all": x * loud**-beta,
        "alpha is not divided by n here": damped(total, alpha / n),
        "beyond the first and last channel there is nothing: pad with zeros": damped(slide(around)),
        "n // 2 channels on each side, not n - 1 on one": damped(slide(padded)),
        "n, k, alpha and beta are arguments: this is for the defaults": LocalResponseNorm().forward(x)[0],
        "k, alpha and beta are arguments: this is for the defaults": LocalResponseNorm(n).forward(x)[0],
        "the channel itself counts, too": damped(total - x * x),
        "the power is that of the whole bracket": x / (k + (alpha * total) ** beta),
    } | {text: LocalResponseNorm(**given | it).forward(x)[0] for text, it in fixed.items()})  # fmt: skip


def check_spectra(check, columns, im2col, fft_convolve, shape, kernel, rng):
    """The matrix of windows, and convolution by it and by spectra."""
    x, W = rng.normal(size=shape), rng.normal(size=(*kernel, shape[-1], 4))
    rows = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
    (kh, kw), (_, h, w, _) = kernel, shape
    what, size, y = f", {shape}, {kernel}", W[..., 0].size, library(x, W)
    check.close("columns" + what, check.call(columns, x, *kernel), rows.reshape(-1, size), dtype=float, suspects={
        "channels come last, as in W": rows.transpose(0, 1, 2, 5, 3, 4).reshape(-1, size),
        "rows of the kernel first": rows.swapaxes(3, 4).reshape(-1, size),
    })  # fmt: skip
    mixed = rows.reshape(-1, size) @ W.reshape(4, -1).T
    got = check.call(im2col, x, W, without=("convolve", "fft_convolve"))
    check.close("im2col" + what, got, y, dtype=float, suspects={
        "a kernel is a column, W.reshape(-1, c_out): a transpose mixes them up": mixed.reshape(y.shape)})  # fmt: skip
    f, g = np.fft.fft2(x, axes=(1, 2)), np.fft.fft2(W, (h, w), axes=(0, 1))
    full = np.fft.ifft2(np.einsum("nhwc,hwck->nhwk", f, g.conj()), axes=(1, 2)).real
    turned = np.fft.ifft2(np.einsum("nhwc,hwck->nhwk", f, g), axes=(1, 2)).real
    narrow = np.fft.irfft2(
        np.einsum("nhwc,hwck->nhwk", f, g.conj())[:, :, : w // 2 + 1], (h, max(w // 2 * 2, 2)), axes=(1, 2)
    )
    got = check.call(fft_convolve, x, W, without=("convolve", "im2col"))
    check.close("fft_convolve" + what, got, y, dtype=float, suspects={
        "the conjugate is missing": turned[:, : y.shape[1], : y.shape[2]],
        "outputs whose window wraps around the edge are cut off": full,
        "these are the wrong outputs: the first ones are right, the last ones wrap around": full[:, kh - 1 :, kw - 1 :],
        "the first outputs are right: nothing is to be cut off before them": (
            full[:, (kh - 1) // 2 : h - kh // 2, (kw - 1) // 2 : w - kw // 2]
        ),
        "an odd number of columns: irfft2 needs the size, (h, w)": narrow[:, : y.shape[1], : y.shape[2]],
    })  # fmt: skip
    x, W = np.zeros((1, 9, 7, 1)), rng.normal(size=(2, 5, 1, 4))
    x[:, -1] = rng.normal(size=(7, 1))  # sums of zeros are 0, spectra round
    check.true("spectra", np.any(fft_convolve(x, W)[:, :-1]), "fft_convolve computes no spectra: write it with np.fft")


def by_tiles(x, W, BT, G, AT, right=None, before=False, cut=True):
    """Winograd's formula as it stands, for any matrices; `right` multiplies a tile from the right."""
    (m, a), n, (oh, ow) = AT.shape, len(x), np.subtract(x.shape[1:3], G.shape[1] - 1)
    more = [(pad, 0) if before else (0, pad) for pad in (-oh % m, -ow % m)]
    d = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), *more, (0, 0))), (a, a), axis=(1, 2))[:, ::m, ::m]
    tiles, kernels = BT @ d @ (BT.T if right is None else right), np.einsum("au,uvck,bv->abck", G, W, G)
    y = np.einsum("ia,jb,nxycab,abck->nxiyjk", AT, AT, tiles, kernels, optimize=True)
    y = y.reshape(n, oh + -oh % m, -1, W.shape[3])
    return y[:, :oh, :ow] if cut else y


def check_winograd(check, answer, shape, matrices, rng):
    """Convolution by tiles with any three matrices."""
    (BT, G, AT), dtype = matrices, matrices[0].dtype
    r = G.shape[1]
    x, W = rng.normal(size=shape).astype(dtype), rng.normal(size=(r, r, shape[-1], 4)).astype(dtype)
    got, want = check.call(answer, x, W, *matrices), by_tiles(x, W, *matrices)
    check.close(f"y, {dtype} {shape}, m = {len(AT)}, r = {r}", got, want, dtype=dtype, suspects={
        "do not flip the kernel": by_tiles(x, W[::-1, ::-1], *matrices),
        "the kernel is transposed: its channels move to the front": by_tiles(x, W.swapaxes(0, 1), *matrices),
        "BT is already transposed": by_tiles(x, W, BT.T, G, AT),
        "rows only: a tile is transformed from both sides, BT d B": by_tiles(x, W, *matrices, right=np.eye(len(BT))),
        "from the right comes B, the transpose of BT": by_tiles(x, W, *matrices, right=BT),
        "surplus outputs are cut off": by_tiles(x, W, *matrices, cut=False),
        "pad below and to the right, not above and to the left": by_tiles(x, W, *matrices, before=True),
        "sum over all input channels": by_tiles(x[..., :1], W[:, :, :1], *matrices),
        "this is the plain convolution: use the matrices, whatever they are": library(x, W),
    })  # fmt: skip


def check_cost(check, winograd_cost, n, c_in, c_out, h, w, m, r):
    """Work and depth of a convolution by tiles."""

    def work_of(r=r, kernel_pairs=c_in * c_out, sides=2, output=None, tiles=None):
        a = m + r - 1
        tiles = n * -(-h // m) * -(-w // m) if tiles is None else tiles
        output = m * a * a + m * m * a if output is None else output
        once = kernel_pairs * (a * r * r + a * a * r)
        return once + tiles * (c_in * c_out * a * a + c_in * sides * a**3 + c_out * output)

    log = lambda k: int(np.ceil(np.log2(k)))  # noqa: E731
    a, tiles, pairs = m + r - 1, n * -(-h // m) * -(-w // m), c_in * c_out
    kernels, pixels, outputs, want = a * r * r + a * a * r, 2 * a**3, m * a * a + m * m * a, work_of()
    transform = 1 + log(a)
    work, depth = check.call(winograd_cost, n, c_in, c_out, h, w, m, r)
    parts = {"kernels": pairs * kernels, "tiles": tiles * c_in * pixels, "outputs": tiles * c_out * outputs}
    parts["products"] = tiles * pairs * a * a
    what = f", {(n, c_in, c_out, h, w)}, F({m},{r})"
    whole = not any(isinstance(number, float) for number in (work, depth))
    check.true("whole numbers" + what, whole, "a float: int() or // gives a whole number")
    check.equal("work" + what, work, want, suspects={
        "each transform is done many times": kernels + pixels + outputs + tiles * pairs * a * a,
        "kernels are transformed once, not for each tile": want + (tiles - 1) * pairs * kernels,
        "there is a kernel for each pair of channels": work_of(kernel_pairs=1),
        "pixels serve all output channels": want + (c_out - 1) * tiles * c_in * pixels,
        "a transform is two products, from both sides": work_of(sides=1),
        "the second product of the last transform is (m, a) by (a, m)": work_of(output=2 * m * a * a),
        "channels are added before the last transform": want + (c_in - 1) * tiles * c_out * outputs,
        "a tile has alpha^2 products": want - tiles * pairs * (a * a - 1),
        "tiles that are not full count, too: round up": work_of(tiles=n * (h // m) * (w // m)),
        "there are tiles in each image": work_of(tiles=tiles // n),
        "kernels are r x r, not 3 x 3": work_of(r=3),
        "this is the depth: return work, depth": 4 * transform + 1 + log(c_in),
    } | {f"the {name} are missing": want - part for name, part in parts.items()})  # fmt: skip
    chain = 4 * transform + 1 + log(c_in)
    check.equal("depth" + what, depth, chain, suspects={
        "the multiplications count, too": chain - 5,
        "the products of a transform multiply before they add": chain - 4,
        "channels are added in a tree, log2": chain - 1 - log(c_in) + c_in,
        "input channels are added, not output channels": chain - log(c_in) + log(c_out),
        "a tile is transformed before the products, and its outputs after them": chain - 2 * transform,
        "kernels are transformed while tiles are": chain + 2 * (1 + log(r)),
    })  # fmt: skip


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
    trainer = Serial(fuse(model), SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 0.003))
    batches = Batches(data.x_train, data.y_train, 64, seed=seed)
    with threadpool_limits(1):
        for epoch in range(10):
            for batch in batches.epoch(epoch):
                trainer.step(batch)
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


def digits_accuracy(model, samples: int = 200) -> float:
    """Share of the digits' test images that a model recognises; NaN counts as wrong.

    Parameters
    ----------
    samples : int
        The first ones.
    """
    data, dtype = load("digits"), model.params[0].data.dtype
    x, labels = data.x_test[:samples].astype(dtype), data.y_test[:samples]
    with np.errstate(all="ignore"), threadpool_limits(1):
        scores = model.forward(x)[0].astype(np.float64)
    return float(np.mean((scores.argmax(axis=1) == labels) & np.isfinite(scores).all(axis=1)))


# -- Which way to convolve is the fastest, by the shape of the layer: by counted work, and by the clock.


class Way(NamedTuple):
    """One algorithm on one layer."""

    name: str
    work: float
    """Multiply-adds of the forward pass; 0 for the fused layer, which chooses for itself."""
    seconds: float
    """Of one forward pass on one thread: the fastest of some."""


def time_ways(shape, c_out: int, k: int = 3, *, repeats: int = 5) -> list[Way]:
    """Time the forward pass of every algorithm that can compute a layer, and of `nn.fuse`'s.

    Parameters
    ----------
    shape : (n, h, w, c_in)
        Of the images.
    c_out, k : int
        Channels of the output; rows and columns of the kernel. Padding "same", stride 1, float32.
    repeats : int
        Passes of each.

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
    seconds = {name: fewest_seconds(layer.forward, x, repeats=repeats) for name, layer in layers.items()}
    works = {"fused": 0.0}
    for name in names:
        kind, m = (name[:-1], int(name[-1])) if name.startswith("winograd") else (name, 2)
        works[name] = conv_cost(kind, n, c_in, c_out, h, w, k, m).work
    return [Way(name, works[name], seconds[name]) for name in layers]


# -- Convolution: bits lost to rounding by tile and precision; the times of several algorithms beside their work.


@styled
def plot_bits(losses, *, title=None):
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
    axes = np.atleast_1d(new_axes(len(kinds), figsize=(4.7 * len(kinds), 3.7)))
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
    worst, tile, name = max(
        (b, f"F({m},3) in {kind}", n) for n, bits in losses.items() for (kind, m), b in bits.items()
    )
    write_title(axes[0], f"Most is lost by {tile} with {name}" + " (overflow)" * (worst == np.inf), title)
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
        ax.set(xlabel="ms", xlim=(0, None))
        ax.set_title(label, fontsize=10)
    axes[0].figure.suptitle(title, x=0.01, ha="left")
    kinds = {"measured": MUTED, "measured, fastest plain one": COLORS[0], "measured, fused": COLORS[2]}
    handles = [Patch(color=color, label=label) for label, color in kinds.items()]
    handles += axes[0].get_legend_handles_labels()[0]
    axes[0].figure.legend(handles=handles, loc="outside lower center", ncols=4)
    return axes
