"""Bits that a convolution loses to rounding, and what that does to a trained network."""

from __future__ import annotations

import copy
import functools
import math

import numpy as np
from threadpoolctl import threadpool_limits

from ...data import Batches, load
from ...nn import (
    Conv2d,
    Flatten,
    Linear,
    LocalResponseNorm,
    MaxPool,
    ReLU,
    Reshape,
    Sequential,
    SoftmaxCrossEntropy,
    fuse,
    init,
    move,
    walk,
)
from ...nn.conv import direct, winograd
from ...nn.conv.geometry import Geometry
from ...optim import Adam, Optimizer
from ...parallel import Serial


def bits_lost(y, exact) -> float:
    r"""Say how many of the significant bits of its precision a result has lost.

    .. math:: \log_2 \frac{\|y - y_{64}\|}{u \, \|y_{64}\|}, \qquad u = 2^{-24}, 2^{-11}, 2^{-8}, \ldots

    Parameters
    ----------
    y : array of float32 or float16
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


def sample_layer(dtype="float32", seed: int = 0, channels: int = 8, size: int = 26):
    """Draw images and 3 x 3 kernels for measuring errors.

    Returns
    -------
    x : (2, size, size, channels) array
    W : (3, 3, channels, channels) array
    exact : array
        Their convolution without padding, in float64, of the rounded numbers.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, size, size, channels)).astype(dtype)
    W = (rng.normal(size=(3, 3, channels, channels)) / (3 * math.sqrt(channels))).astype(dtype)
    exact, _ = direct.forward(x.astype(np.float64), W.astype(np.float64), Geometry((3, 3)))
    return x, W, exact


def loss_of_points(points, m: int = 6, dtype="float16", seed: int = 0) -> float:
    """Bits that F(m x m, 3 x 3) with these interpolation points loses on a sample layer.

    Parameters
    ----------
    points : sequence of float
        m + 1 different ones.
    m : int
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

    Parameters
    ----------
    points : sequence of 7 float

    Returns
    -------
    bits : dict of str to float
        Bits lost, the mean over five samples, least first; `points` are "yours".
    """
    sets = {"yours": points, **TRIED}
    bits = {name: float(np.mean([loss_of_points(some, seed=seed) for seed in range(5)])) for name, some in sets.items()}
    return dict(sorted(bits.items(), key=lambda item: item[1]))


@functools.cache
def deep_network(seed: int = 0, *, depth: int = 10, channels: int = 8, epochs: int = 10):
    """Train a network of many 3 x 3 convolutions on the digits; some seconds.

    Parameters
    ----------
    seed : int
        Of weights and batches.
    depth, channels : int
        Convolutions, and channels of each.
    epochs : int

    Returns
    -------
    model : Sequential
    """
    data, seeds = load("digits"), init.seeds(seed)
    h, w, c = 8, 8, 1
    layers = [Reshape(h, w, c)]
    for i in range(depth):
        layers += [Conv2d(c, channels, 3, next(seeds), padding="same", input_gradient=i > 0), ReLU()]
        layers += [LocalResponseNorm()] if i == 0 else []
        c = channels
    layers += [MaxPool(2), Flatten(), Linear(h * w * c // 4, data.n_classes, next(seeds), gain=1.0)]
    model = Sequential(*layers)
    trainer = Serial(fuse(model), SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 0.003))
    batches = Batches(data.x_train, data.y_train, 64, seed=seed)
    with threadpool_limits(1):
        for epoch in range(epochs):
            for batch in batches.epoch(epoch):
                trainer.step(batch)
    return model


def use_convolution(model, function, dtype="float32"):
    """Copy a model, with `function(x, W)` as the forward pass of its convolutions, in another precision.

    Parameters
    ----------
    model : Layer
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
    model : Layer
    samples : int
        The first ones.
    """
    data, dtype = load("digits"), model.params[0].data.dtype
    x, labels = data.x_test[:samples].astype(dtype), data.y_test[:samples]
    with np.errstate(all="ignore"), threadpool_limits(1):
        scores = model.forward(x)[0].astype(np.float64)
    return float(np.mean((scores.argmax(axis=1) == labels) & np.isfinite(scores).all(axis=1)))
