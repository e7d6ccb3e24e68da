"""Fused layers, which replace two or three plain ones in `fuse`."""

from __future__ import annotations

import functools

import numpy as np

from ...backend import column_sums, get_xp, matmul
from .. import ops
from ..container import Sequential
from ..conv import ALGORITHMS, Conv2d
from ..conv.cost import conv_cost
from ..layer import Layer, check_dtype
from ..pool import MaxPool
from . import cells, rows


class Fused(Sequential):
    """Base of the fused layers: their shapes and operations are those of the layers, not what they move."""

    splits = False
    bytes_moved = Layer.bytes_moved

    def __init__(self, layers: list[Layer]):
        self.layers, self.params = list(layers), layers[0].params
        self.name = "+".join([layers[0].name, *(type(layer).__name__ for layer in layers[1:])])
        self.input_gradient = layers[0].input_gradient


class FusedLinear(Fused):
    """A dense layer and the ReLU after it: bias and ReLU are one pass over memory."""

    def forward(self, x):
        linear, _ = self.layers
        linear.output_shape(x.shape)
        check_dtype(linear, x)
        y = matmul(x.reshape(-1, linear.d_in), linear.W.data)
        ops.bias_relu(y, linear.b.data)
        y = y.reshape(*x.shape[:-1], linear.d_out)
        return y, (x, y)

    def backward(self, dy, saved):
        x, y = saved
        dy *= y > 0
        return self.layers[0].backward(dy, x)


class FusedPool(Fused):
    """A ReLU and the maximum pooling after it: ReLU is applied to the pooled values."""

    def forward(self, x):
        _, pool = self.layers
        y, won = pool.forward(x)
        get_xp(y).maximum(y, 0, out=y)
        return y, (won, y)

    def backward(self, dy, saved):
        won, y = saved
        dy *= y > 0
        return self.layers[1].backward(dy, won)


class FusedConv2d(Fused):
    """A convolution by the fastest algorithm, and the maximum pooling and ReLU after it."""

    # Where a pooling window sees few values of the image, the convolution's whole output is never in memory at once
    # (module `cells`).

    def __init__(self, layers):
        super().__init__(layers)
        self.conv: Conv2d = layers[0]
        self.pool = next((layer for layer in layers if type(layer) is MaxPool), None)
        self.relu = len(layers) > 1 + (self.pool is not None)

    def forward(self, x):
        conv, pool = self.conv, self.pool
        shape, algorithm = conv.output_shape(x.shape), choose_algorithm(conv, x.shape)
        check_dtype(conv, x)
        won = None
        if pool is not None and algorithm == "rows" and cells.pays(conv, pool, shape):
            algorithm = "cells"
            y, saved = cells.forward(x, conv.W.data, conv.geometry, pool)
        else:
            y, saved = conv.convolve(x, FAST[algorithm][0])
            if pool is not None:
                y, won = pool.forward(y)
        if conv.b is not None:
            (ops.bias_relu if self.relu else ops.add_bias)(y, conv.b.data)
        elif self.relu:
            get_xp(y).maximum(y, 0, out=y)
        return y, (algorithm, saved, won, y if self.relu else None)

    def backward(self, dy, saved):
        algorithm, saved, won, y = saved
        conv = self.conv
        if y is not None:
            dy *= y > 0
        if conv.b is not None:
            conv.b.add(column_sums(dy))
        if algorithm == "cells":
            return conv.convolve_back(dy, saved, functools.partial(cells.backward, pool=self.pool))
        if won is not None:
            dy = self.pool.backward(dy, won)
        return conv.convolve_back(dy, saved, FAST[algorithm][1])


# Functions (forward, backward) by name: the plain algorithms, and one that is faster than im2col.
FAST = {**ALGORITHMS, "rows": (rows.forward, rows.backward)}


def choose_algorithm(layer: Conv2d, shape) -> str:
    """Name the algorithm with which a fused convolution runs; the layers' benchmark measures all side by side.

    One that was given another algorithm than im2col keeps it. For the others it depends on the input's `shape`:

    - "fft" for kernels so large that spectra win: 81 pixels or more, 16 or more channels on both sides, stride 1;
    - Winograd for 3 x 3 kernels on many channels: it saves multiplications, which count pairs of channels, and pays in
      transforms, which count channels. "winograd4" from 512 pairs on where its tiles of 4 x 4 outputs fit the image
      (it rounds some ten times worse than the others: 1e-5 of the largest value); from 2,048 pairs on, it or
      "winograd2", which rounds less and is taken unless "winograd4" saves a quarter of its work (`conv_cost`).
      Measured, the step of a layer took 0.7 times as long with "winograd4" at 7 x 7 pixels and 64 channels (0.63 of
      the work), and between 0.9 and 1.3 times as long, by batch and run, at 14 x 14 (0.81 of it);
    - "rows", which is im2col that copies less, for all others, and for float64, whose users want the
      least rounding.
    """
    if layer.algorithm != "im2col":
        return layer.algorithm
    (kh, kw), stride, _ = layer.geometry
    c_in, c_out = layer.c_in // layer.groups, layer.c_out // layer.groups
    many = min(c_in, c_out) >= 16 and layer.W.data.dtype != np.float64
    if kh * kw >= 81 and stride == (1, 1) and many:
        return "fft"
    if many and ((kh, kw), stride) == ((3, 3), (1, 1)):
        oh, ow = layer.geometry.output(*shape[1:3])
        covered = 16 * -(-oh // 4) * -(-ow // 4)
        if covered <= 1.2 * oh * ow and c_in * c_out >= 512:
            return "winograd4"
        if c_in * c_out >= 2048:
            small, large = (conv_cost("winograd", 64, c_in, c_out, oh, ow, m=m).work for m in (2, 4))
            return "winograd4" if large <= 0.75 * small else "winograd2"
    return "rows"
