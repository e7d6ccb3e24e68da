"""Fewer bytes for a model: shared weights, 8-bit integers."""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np

from ..backend import get_xp, rounded, single, to_numpy
from .container import Container
from .conv import Conv2d, im2col
from .formats import BlockFormat, Format
from .layer import Layer, Param
from .linear import Linear

# -- clustering --------------------------------------------------------------------------------------------------------
# Model compression: a network in a fraction of the bytes, for storing, sending and predicting.


ROUNDS = 50  # Of k-means at most; fewer where clusters no longer change.


class Clustered(NamedTuple):
    """An array whose values are drawn from a short list."""

    codebook: np.ndarray  # (clusters,) values.
    codes: np.ndarray  # Index of every element's value, packed: bits bits each.
    shape: tuple[int, ...]
    bits: int

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.codebook.nbytes

    def restore(self) -> np.ndarray:
        n = math.prod(self.shape) * self.bits
        bits = np.unpackbits(self.codes, count=n, bitorder="little").reshape(-1, self.bits)
        return self.codebook[np.packbits(bits, axis=1, bitorder="little")].reshape(self.shape)


def cluster(x, clusters: int = 16) -> Clustered:
    r"""Replace the elements of an array by `clusters` values that are chosen by k-means.

    .. math:: \min_{c_1 \dots c_k} \sum_i \min_j (x_i - c_j)^2

    Lloyd's algorithm from values that are evenly spread between the smallest and the largest, which keeps the few
    large weights that matter most. In one dimension clusters are intervals, so a sorted array makes each round two
    sums per cluster.

    Parameters
    ----------
    clusters : int
        From 2 to 256; 16 take 4 bits an element.

    References
    ----------
    S. Han, H. Mao, W. J. Dally (2016), Deep compression, ICLR, section 3.

    Examples
    --------
    >>> c = cluster(np.array([0.0, 0.1, 5.0, 5.2], "float32"), 2)
    >>> c.restore()
    array([0.05, 0.05, 5.1 , 5.1 ], dtype=float32)
    """
    if not isinstance(clusters, (int, np.integer)) or not 2 <= clusters <= 256:
        raise ValueError(f"cluster: clusters is {clusters!r}, expected a whole number from 2 to 256")
    x = to_numpy(x)
    values = np.sort(x, axis=None).astype(np.float64)
    if not len(values):
        raise ValueError("cluster: the array is empty")
    sums = np.concatenate([[0.0], np.cumsum(values)])
    centres = np.linspace(values[0], values[-1], clusters)
    for _ in range(ROUNDS):
        edges = np.concatenate([[0], np.searchsorted(values, (centres[1:] + centres[:-1]) / 2), [len(values)]])
        counts = np.diff(edges)
        moved = np.where(counts > 0, np.diff(sums[edges]) / np.maximum(counts, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    codes = np.searchsorted((centres[1:] + centres[:-1]) / 2, x.reshape(-1))
    bits = next(b for b in (1, 2, 4, 8) if 2**b >= clusters)
    packed = np.unpackbits(codes.astype(np.uint8)[:, None], axis=1, count=bits, bitorder="little")
    return Clustered(centres.astype(x.dtype), np.packbits(packed, bitorder="little"), x.shape, bits)


class Compressed(NamedTuple):
    """A model with fewer bytes."""

    model: Layer  # A copy; the original is unchanged.
    before: int  # Bytes of the parameters.
    after: int  # Bytes that the compressed parameters take when stored.

    @property
    def ratio(self) -> float:
        return self.before / self.after


def round_weights(model: Layer, to: int | Format | BlockFormat = 16) -> Compressed:
    """Round the weights of every matrix and kernel; biases are unchanged.

    Parameters
    ----------
    to : int, Format or BlockFormat
        To so many values that they share (16 need 4 bits an index, an eighth of float32), or to those of a format, its
        blocks along the inputs of an output.

    Returns
    -------
    compressed : Compressed
        The model computes with the rounded values. Evaluate it to see the loss of accuracy.

    References
    ----------
    S. Han, H. Mao, W. J. Dally (2016), Deep compression, ICLR, section 3: shared values.

    Examples
    --------
    >>> from distlearn.nn import MXFP4, build
    >>> lenet = build("lenet")
    >>> round(round_weights(lenet).ratio, 1), round(round_weights(lenet, MXFP4).ratio, 1)
    (7.7, 7.3)
    """
    smaller, after = copy.deepcopy(model), 0
    for p in smaller.params:
        if p.data.ndim < 2:
            after += p.nbytes
            continue
        W = p.data.reshape(-1, p.data.shape[-1])
        if isinstance(to, Format | BlockFormat):
            values, nbytes = to.round(W, axis=0), to.nbytes(W.shape, 0)
        else:
            shared = cluster(W, to)
            values, nbytes = get_xp(W).asarray(shared.restore()), shared.nbytes
        p.data[...] = values.reshape(p.data.shape)
        after += nbytes
    return Compressed(smaller, sum(p.nbytes for p in model.params), after)


# -- quantization ------------------------------------------------------------------------------------------------------
# 8-bit linear quantization: a trained network predicts with integers of one byte.
#
#     x = s_x q_x,  W = s_W q_W  with integers q from -127 to 127:   x W = s_x s_W (q_x q_W)
#
# Processors have integer units that are several times as fast as the floating-point ones; NumPy has no such product, so
# integers are multiplied as floating-point numbers here, exactly: this shows the loss of accuracy, and the memory
# saved, not the speed.

LEVELS = 127  # Integers run from -127 to 127.


class Quantized(Layer):
    """A dense or convolutional layer with 8-bit weights, a scale for each output channel, and 8-bit inputs."""

    def __init__(self, layer):
        self.layer, self.name = copy.copy(layer), layer.name
        W = single(layer.W.data)
        xp = get_xp(W)
        largest = abs(W).max(axis=tuple(range(W.ndim - 1)))
        scale = (xp.where(largest > 0, largest, 1) / LEVELS).astype(W.dtype)
        arrays = {"W": xp.rint(W / scale).astype(np.int8), "scale": scale, **({"b": layer.b.data} if layer.b else {})}
        prefix = layer.W.name.removesuffix("W")
        self.params = [Param(array, prefix + name, frozen=True) for name, array in arrays.items()]
        self.layer.W, self.layer.b, self.layer.params = self.params[0], None, []

    def forward(self, x):
        self.output_shape(x.shape)
        xp, dtype, x = get_xp(x), x.dtype, single(x)
        scale = abs(x).max() / LEVELS if x.size else xp.ones((), x.dtype)
        scale = xp.where(scale > 0, scale, xp.ones_like(scale))
        codes, scales, *bias = (p.data for p in self.params)
        # sums of at most 2^24 are exact in single precision
        exact = np.float32 if math.prod(codes.shape[:-1]) * LEVELS**2 <= 2**24 else np.float64
        y = self._product(xp.rint(x / scale).astype(exact), codes.astype(exact))
        y *= scale * scales
        for b in bias:
            y += b
        return rounded(y, dtype), None

    def _product(self, x, codes):
        if isinstance(self.layer, Linear):
            return x @ codes
        parts = zip(self.layer.split(x), self.layer.split(codes), strict=True)
        return get_xp(x).concatenate([im2col.forward(a, b, self.layer.geometry)[0] for a, b in parts], axis=-1)

    def output_shape(self, shape):
        return self.layer.output_shape(shape)

    def backward(self, dy, saved):
        raise TypeError(
            f"{self!r}: a quantized layer predicts, it cannot be trained; train the original and quantize again"
        )

    def flops(self, shape):
        return self.layer.flops(shape)

    def __repr__(self):
        return f"Quantized({self.layer!r})"


def quantize(model: Layer) -> Compressed:
    """Make a copy of a trained model that predicts with 8-bit weights and inputs in its dense and convolutional layers.

    Parameters
    ----------
    model : Layer
        It is unchanged.

    Returns
    -------
    compressed : Compressed
        With the bytes before and after. Evaluate it to see the loss of accuracy.

    Examples
    --------
    >>> from distlearn.nn import build
    >>> round(quantize(build("lenet")).ratio, 1)
    3.9
    """
    if not isinstance(model, Layer):
        raise TypeError(f"quantize: expected a model, got {type(model).__name__}")
    smaller, before = _convert(copy.deepcopy(model.eval())), sum(p.nbytes for p in model.params)
    return Compressed(smaller, before, sum(p.nbytes for p in smaller.params))


def _convert(layer):
    if type(layer) in (Linear, Conv2d):
        return Quantized(layer)
    if isinstance(layer, Container):
        layer.layers = [_convert(child) for child in layer.layers]
        layer.params = [p for child in layer.layers for p in child.params]
    return layer
