"""Fused layers, which replace two or three plain ones in `fuse`."""

from __future__ import annotations

import copy

import numpy as np

from ...backend import can_launch, column_sums, matmul
from .. import ops
from ..activation import ReLU
from ..container import Container, Sequential
from ..conv import ALGORITHMS, Conv2d
from ..conv.cost import conv_cost
from ..layer import Layer, check_input, walk
from ..linear import Linear
from ..pool import MaxPool
from . import launched, rows


class Fused(Sequential):
    """Base of the fused layers: their shapes and operations are those of the layers; they move fewer bytes."""

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
        check_input(linear, x)
        y = matmul(x.reshape(-1, linear.d_in), linear.W.data)
        ops.bias_relu(y, linear.b.data)
        y = y.reshape(*x.shape[:-1], linear.d_out)
        return y, (x, y)

    def backward(self, dy, saved):
        x, y = saved
        return self.layers[0].backward(dy, x, relu=y)


class FusedConv2d(Fused):
    """A convolution by the fastest algorithm, and the ReLU and maximum pooling after it."""

    def __init__(self, layers):
        super().__init__(layers)
        self.conv: Conv2d = layers[0]
        self.relu, self.pool = len(layers) > 1, layers[2] if len(layers) > 2 else None

    def forward(self, x):
        conv = self.conv
        check_input(conv, x)
        algorithm, won = choose_algorithm(conv, x.shape), None
        if algorithm in ("rows", "winograd2", "winograd4") and conv.groups == 1 and can_launch(x, conv.W.data):
            algorithm = "launched"
        y, saved = conv.convolve(x, FAST[algorithm][0])
        if self.pool is not None:
            y, won = self.pool.forward(y)
        (ops.bias_relu if self.relu else ops.add_bias)(y, conv.b.data)
        return y, (algorithm, saved, won, y if self.relu else None)

    def backward(self, dy, saved):
        algorithm, saved, won, y = saved
        conv = self.conv
        if can_launch(dy, conv.b.data):
            ops.bias_grad(dy, conv.b, y)
        else:
            if y is not None:
                dy *= y > 0
            conv.b.add(column_sums(dy))
        if won is not None:
            dy = self.pool.backward(dy, won)
        return conv.convolve_back(dy, saved, FAST[algorithm][1])


# Functions (forward, backward) by name: the plain algorithms, and one that is faster than im2col.
FAST = {**ALGORITHMS, "rows": (rows.forward, rows.backward), "launched": (launched.forward, launched.backward)}


def choose_algorithm(layer: Conv2d, shape: tuple[int, ...]) -> str:
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


# -- joining layers ----------------------------------------------------------------------------------------------------
#     Conv2d, ReLU, MaxPool   ->   convolve, take the maxima, then add the bias to them and clip them at zero
#
# Maximum pooling commutes with adding a constant and with ReLU, bit for bit: max(max(x_i, 0)) = max(max(x_i), 0), and
# rounding keeps an order, so max(x_i) + b = max(x_i + b). Their gradients commute as well: a positive maximum is the
# same pixel either way, and any other has no gradient either way. Behind a pooling of 2 x 2 a quarter of the values
# is left.


# Layers that become one; the longest pattern wins. Subclasses are not fused: they may do anything.
PATTERNS = {
    (Conv2d, ReLU, MaxPool): FusedConv2d,
    (Conv2d, ReLU): FusedConv2d,
    (Conv2d,): FusedConv2d,
    (Linear, ReLU): FusedLinear,
}


def fuse(model: Layer) -> Layer:
    """Return a model that computes the same as `model`, faster: some of its layers run in one pass.

    Parameters
    ----------
    model : Layer
        It is unchanged. A convolution that was given another algorithm than im2col keeps it.

    Returns
    -------
    fused : Layer
        With the same layers and parameters (the same `Param`s, names and order), so that it may be trained, cut, saved
        and loaded in the model's place; `Sequential.fused_layers` returns the layers that run. A breakpoint in the
        `forward` of a layer that has become part of another does not fire. A NaN or infinity in an image may reach
        more of its outputs than in `model`, and never fewer.

    Examples
    --------
    >>> from distlearn.nn import build
    >>> [type(layer).__name__ for layer in fuse(build("lenet")).fused_layers()]
    ['Reshape', 'FusedConv2d', 'FusedConv2d', 'Flatten', 'FusedLinear', 'FusedLinear', 'Linear']
    """
    if not isinstance(model, Layer):
        raise TypeError(f"fuse: expected a model, got {type(model).__name__}")
    if not isinstance(model, Container):
        return _fuse_row([model])[0]
    view = copy.copy(model)  # a copy: a new container would rename layers and parameters
    view.layers = [fuse(layer) if isinstance(layer, Container) else layer for layer in model.layers]
    if isinstance(model, Sequential):
        view.together = _fuse_row
    return view


def is_fused(model: Layer) -> bool:
    """Say whether some layers of a model run in one pass."""
    rows = [part.fused_layers() for part in walk(model) if isinstance(part, Sequential)]
    return any(isinstance(layer, Fused) for row in rows for layer in row)


def _fuse_row(layers):
    fused, i = [], 0
    while i < len(layers):
        n = next((n for n in (3, 2, 1) if tuple(map(type, layers[i : i + n])) in PATTERNS), 0)
        row = layers[i : i + (n or 1)]
        fused.append(PATTERNS[tuple(map(type, row))](row) if n else row[0])
        i += len(row)
    return fused
