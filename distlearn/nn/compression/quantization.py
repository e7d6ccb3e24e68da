"""8-bit linear quantization: a trained network predicts with integers of one byte.

    x = s_x q_x,  W = s_W q_W  with integers q from -127 to 127:   x W = s_x s_W (q_x q_W)

Processors have integer units that are several times as fast as the floating-point ones; NumPy has no such product, so
integers are multiplied as floating-point numbers here, exactly: this shows the loss of accuracy, and the memory
saved, not the speed.
"""

from __future__ import annotations

import copy
import math

import numpy as np

from ...backend import get_xp, rounded, single
from ..container import Container
from ..conv import Conv2d, im2col
from ..fused import unfuse
from ..layer import Layer, check_shape
from ..linear import Linear
from .clustering import Compressed

LEVELS = 127
"""Integers run from -127 to 127."""


class _Quantized(Layer):
    """Weights as 8-bit integers with a scale for every output channel; the input is quantized in every call."""

    def __init__(self, layer):
        self.layer, self.name = copy.copy(layer), layer.name
        W = single(layer.W.data)
        xp = get_xp(W)
        largest = abs(W).max(axis=tuple(range(W.ndim - 1)))
        self.scale = (xp.where(largest > 0, largest, 1) / LEVELS).astype(W.dtype)
        self.codes = xp.rint(W / self.scale).astype(np.int8)
        self.bias = None if layer.b is None else layer.b.data
        self.layer.W = self.layer.b = None
        self.layer.params = []

    @property
    def nbytes(self) -> int:
        """Bytes of codes, scales and bias."""
        return self.codes.nbytes + self.scale.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def forward(self, x):
        self.output_shape(x.shape)
        xp, dtype, x = get_xp(x), x.dtype, single(x)
        scale = abs(x).max() / LEVELS if x.size else xp.ones((), x.dtype)
        scale = xp.where(scale > 0, scale, xp.ones_like(scale))
        # sums of at most 2^24 are exact in single precision
        exact = np.float32 if math.prod(self.codes.shape[:-1]) * LEVELS**2 <= 2**24 else np.float64
        y = self._product(xp.rint(x / scale).astype(exact), self.codes.astype(exact))
        y *= scale * self.scale
        if self.bias is not None:
            y += self.bias
        return rounded(y, dtype), None

    def backward(self, dy, saved):
        raise TypeError(
            f"{self!r}: a quantized layer predicts, it cannot be trained; train the original and quantize again"
        )

    def flops(self, shape):
        return self.layer.flops(shape)

    def bytes_moved(self, shape, itemsize=4):
        return super().bytes_moved(shape, itemsize) + self.nbytes

    def __repr__(self):
        return f"Quantized({self.layer!r})"


class QuantizedLinear(_Quantized):
    """A `Linear` layer with 8-bit weights and inputs, for prediction."""

    def _product(self, x, codes):
        return x @ codes

    def output_shape(self, shape):
        check_shape(self, shape, "...", self.codes.shape[0])
        return (*shape[:-1], self.codes.shape[1])


class QuantizedConv2d(_Quantized):
    """A `Conv2d` layer with 8-bit kernels and inputs, for prediction."""

    def __init__(self, layer):
        self._kernel = layer.W.data.shape
        super().__init__(layer)

    def _product(self, x, codes):
        parts = zip(self.layer.split(x), self.layer.split(codes), strict=True)
        return get_xp(x).concatenate([im2col.forward(a, b, self.layer.geometry)[0] for a, b in parts], axis=-1)

    def output_shape(self, shape):
        return self.layer.output_shape(shape)

    def flops(self, shape):
        return 2 * math.prod(self.output_shape(shape)) * math.prod(self._kernel[:3])


_QUANTIZED = {Linear: QuantizedLinear, Conv2d: QuantizedConv2d}


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
    before = sum(p.nbytes for p in model.params)
    smaller = _convert(copy.deepcopy(unfuse(model).eval()))
    return Compressed(smaller, before, _stored(smaller))


def _convert(layer):
    """Replace the layers that can be quantized, inside containers too."""
    if type(layer) in _QUANTIZED:
        return _QUANTIZED[type(layer)](layer)
    if isinstance(layer, Container):
        layer.layers = [_convert(child) for child in layer.layers]
        layer.params = [p for child in layer.layers for p in child.params]
    return layer


def _stored(layer) -> int:
    """Bytes of a quantized model's parameters."""
    if isinstance(layer, _Quantized):
        return layer.nbytes
    if layer.children:
        return sum(_stored(child) for child in layer.children)
    return sum(p.nbytes for p in layer.params)
