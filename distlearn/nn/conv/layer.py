"""The convolutional layer."""

from __future__ import annotations

import functools
import math

import numpy as np

from ...backend import get_xp
from .. import init, ops
from ..fused import cells, rows
from ..layer import Layer, Param, check_dtype, check_positive, check_shape, describe
from . import direct, fft, im2col, winograd
from .geometry import Geometry

ALGORITHMS = {
    "direct": (direct.forward, direct.backward),
    "im2col": (im2col.forward, im2col.backward),
    "rows": (rows.forward, rows.backward),
    "fft": (fft.forward, fft.backward),
    "winograd2": winograd.algorithm(2),
    "winograd4": winograd.algorithm(4),
}
"""Functions (forward, backward) by name; they differ in speed, memory and rounding, not in what they compute."""


class Conv2d(Layer):
    r"""Two-dimensional convolution (as everywhere in deep learning: correlation) of channels-last images.

    .. math:: y_{n,i,j,k} = b_k + \sum_{u,v,c} x_{n,\, s i + d u - p,\, s j + d v - p,\, c} \; W_{u,v,c,k}

    with stride s, dilation d, and zeros outside the image to the width of the padding p.

    Parameters
    ----------
    c_in, c_out : int
        Channels of input and output.
    size : int or (int, int)
        Rows and columns of the kernel.
    rng : numpy.random.Generator or int, optional
        Draws the weights from N(0, gain^2 / (kh kw c_in / groups)); None is seed 0, "zeros" leaves them zero.
    stride, dilation : int or (int, int)
    padding : int, (int, int) or "same"
        "same" keeps the image's size (kernels of odd extent, stride 1).
    groups : int
        Channels fall into so many groups that do not see each other.
    algorithm : {"auto", "direct", "im2col", "rows", "fft", "winograd2", "winograd4"}
        Winograd takes 3 x 3 kernels with stride and dilation 1. "auto" is `choose_algorithm`'s choice.
    bias : bool
    dtype : dtype
    gain : float
    input_gradient : bool
        False for a model's first layer: nobody needs the gradient of the data.

    Notes
    -----
    Shapes: (n, h, w, c_in) to (n, oh, ow, c_out) with oh = floor((h + 2 p - d (kh - 1) - 1) / s) + 1; W is (kh, kw,
    c_in / groups, c_out). Forward: 2 n oh ow c_out kh kw c_in / groups flops (what the direct algorithm computes;
    `conv_cost` has the others'), backward twice that. Saves the padded input (fft: its spectrum).

    `forward(x, pool=...)` computes the maximum pooling behind it as well, before the bias: adding a constant and
    rounding keep an order, so max(x_i) + b = max(x_i + b) to the last bit. Where a pooling window sees few values of
    the image, the convolution's whole output is never in memory at once (module `cells`).

    References
    ----------
    Y. LeCun, L. Bottou, Y. Bengio, P. Haffner (1998), Gradient-based learning applied to document recognition,
    section II. K. Chellapilla, S. Puri, P. Simard (2006), High performance convolutional neural networks for document
    processing (im2col). M. Mathieu, M. Henaff, Y. LeCun (2014), Fast training of convolutional networks through FFTs,
    ICLR. A. Lavin, S. Gray (2016), Fast algorithms for convolutional neural networks, CVPR (Winograd).

    Examples
    --------
    >>> Conv2d(3, 8, 3, padding="same").output_shape((32, 28, 28, 3))
    (32, 28, 28, 8)
    """

    def __init__(
        self,
        c_in,
        c_out,
        size,
        rng=None,
        *,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        algorithm="auto",
        bias=True,
        dtype="float32",
        gain=init.HE,
        input_gradient=True,
    ):
        check_positive("Conv2d", c_in=c_in, c_out=c_out, groups=groups)
        if c_in % groups or c_out % groups:
            raise ValueError(f"Conv2d: groups is {groups}, expected a divisor of c_in = {c_in} and c_out = {c_out}")
        self.c_in, self.c_out, self.groups, self.input_gradient = c_in, c_out, groups, input_gradient
        self.geometry = _geometry(size, stride, padding, dilation)
        self.algorithm = _check_algorithm(algorithm, self.geometry)
        fan_in = math.prod(self.geometry.size) * c_in // groups
        self.W = Param(
            init.normal((*self.geometry.size, c_in // groups, c_out), gain / math.sqrt(fan_in), rng, dtype), "W"
        )
        self.b = Param(init.zeros((c_out,), dtype), "b") if bias else None
        self.params = [self.W, self.b] if bias else [self.W]

    def forward(self, x, relu=False, pool=None):
        """Return the convolution plus bias, with `pool` pooled, with `relu` its positive part: see `Sequential`."""
        shape, algorithm = self.output_shape(x.shape), self._algorithm(x.shape)
        check_dtype(self, x)
        if not len(x):
            shape = shape if pool is None else pool.output_shape(shape)
            return get_xp(x).empty(shape, x.dtype), (algorithm, [], x.shape, pool, None)
        if pool is not None and algorithm == "rows" and cells.pays(self, pool, shape):
            y, saved = cells.forward(x, self.W.data, self.geometry, pool)
            return self._with_bias(y, relu), ("cells", [saved], x.shape, pool, None)
        run, _ = ALGORITHMS[algorithm]
        groups = zip(self._split(ops.single(x)), self._split(ops.single(self.W.data)), strict=True)
        results = [run(part, W, self.geometry) for part, W in groups]
        y = results[0][0] if self.groups == 1 else get_xp(x).concatenate([y for y, _ in results], axis=-1)
        y, won = ops.rounded(y, x.dtype), None
        if pool is not None:
            y, won = pool.forward(y)
        return self._with_bias(y, relu), (algorithm, [s for _, s in results], x.shape, pool, won)

    def _with_bias(self, y, relu):
        """Add the bias and take the positive part, in place."""
        if self.b is not None:
            (ops.bias_relu if relu else ops.add_bias)(y, self.b.data)
        return y

    def backward(self, dy, saved):
        algorithm, saved, shape, pool, won = saved
        if not saved:  # an empty batch
            return get_xp(dy).empty(shape, dy.dtype) if self.input_gradient else None
        if self.b is not None:
            self.b.add(ops.column_sums(dy))
        if algorithm == "cells":
            run = functools.partial(cells.backward, pool=pool)
        else:
            _, run = ALGORITHMS[algorithm]
            if pool is not None:
                dy = pool.backward(dy, won)
        groups = zip(*map(self._split, (ops.single(dy), ops.single(self.W.data), self.W.grad)), saved, strict=True)
        parts = []
        for dy_part, W, grad, s in groups:
            dx, dW = run(dy_part, s, W, self.geometry, need_dx=self.input_gradient)
            grad += ops.rounded(dW, grad.dtype)
            parts.append(dx)
        if not self.input_gradient:
            return None
        dx = parts[0] if self.groups == 1 else get_xp(dy).concatenate(parts, axis=-1)
        return ops.rounded(dx, dy.dtype)

    def _split(self, x):
        """Views of the groups' channels."""
        width = x.shape[-1] // self.groups
        return [x[..., i * width : (i + 1) * width] for i in range(self.groups)]

    def _algorithm(self, shape):
        return choose_algorithm(self, shape) if self.algorithm == "auto" else self.algorithm

    def output_shape(self, shape):
        check_shape(self, shape, "batch", "height", "width", self.c_in)
        oh, ow = self.geometry.output(*shape[1:3])
        if oh < 1 or ow < 1:
            raise ValueError(f"{describe(self)}: an image of {shape[1]} x {shape[2]} is smaller than the kernel")
        return (shape[0], oh, ow, self.c_out)

    def flops(self, shape):
        return 2 * math.prod(self.output_shape(shape)) * math.prod(self.W.data.shape[:3])

    def backward_flops(self, shape):
        return self.flops(shape) * (2 if self.input_gradient else 1)

    def __repr__(self):
        kh, kw = self.geometry.size
        extra = "".join(
            f", {name}={value[0] if value[0] == value[1] else value}"
            for name, value in zip(("stride", "padding", "dilation"), self.geometry[1:], strict=True)
            if value != ((0, 0) if name == "padding" else (1, 1))
        )
        groups = f", groups={self.groups}" if self.groups > 1 else ""
        return f"Conv2d({self.c_in}, {self.c_out}, {kh if kh == kw else (kh, kw)}{extra}{groups})"


def choose_algorithm(layer: Conv2d, shape) -> str:
    """Name the algorithm that "auto" uses for an input of `shape`; the layers' benchmark measures all side by side.

    - "fft" for kernels so large that spectra win: 81 pixels or more, 16 or more channels on both sides, stride 1;
    - Winograd for 3 x 3 kernels on many channels: it saves multiplications, which count pairs of channels, and pays in
      transforms, which count channels. "winograd4" from 512 pairs on where its tiles of 4 x 4 outputs fit the image
      (it rounds some ten times worse than the others: 1e-5 of the largest value), else "winograd2" from 2,048 on;
    - "rows", which is im2col that copies less, for all others, and for float64: who asks for that precision wants the
      least rounding.
    """
    (kh, kw), stride, _, dilation = layer.geometry
    c_in, c_out = layer.c_in // layer.groups, layer.c_out // layer.groups
    many = min(c_in, c_out) >= 16 and layer.W.data.dtype != np.float64
    if kh * kw >= 81 and stride == (1, 1) and many:
        return "fft"
    if many and ((kh, kw), stride, dilation) == ((3, 3), (1, 1), (1, 1)):
        oh, ow = layer.geometry.output(*shape[1:3])
        covered = 16 * -(-oh // 4) * -(-ow // 4)
        if covered <= 1.2 * oh * ow and c_in * c_out >= 512:
            return "winograd4"
        if c_in * c_out >= 2048:
            return "winograd2"
    return "rows"


def _geometry(size, stride, padding, dilation) -> Geometry:
    """Check and complete the four pairs."""
    size = ops.pair(size, "Conv2d: size")
    stride, dilation = ops.pair(stride, "Conv2d: stride"), ops.pair(dilation, "Conv2d: dilation")
    if padding == "same":
        extent = Geometry(size, dilation=dilation).extent
        if stride != (1, 1) or any(e % 2 == 0 for e in extent):
            raise ValueError(
                f"Conv2d: padding 'same' needs stride 1 and an odd extent, got stride {stride} and extent {extent}"
            )
        padding = tuple(e // 2 for e in extent)
    return Geometry(size, stride, ops.pair(padding, "Conv2d: padding", least=0), dilation)


def _check_algorithm(algorithm, geometry) -> str:
    """Raise unless the algorithm exists and can compute this convolution."""
    if algorithm not in ("auto", *ALGORITHMS):
        names = ", ".join(map(repr, ("auto", *ALGORITHMS)))
        raise ValueError(f"Conv2d: algorithm is {algorithm!r}, expected one of {names}")
    if algorithm.startswith("winograd") and (geometry.size, geometry.stride, geometry.dilation) != (
        (3, 3),
        (1, 1),
        (1, 1),
    ):
        raise ValueError(
            f"Conv2d: {algorithm} computes 3 x 3 kernels with stride and dilation 1, got size {geometry.size}, "
            f"stride {geometry.stride}, dilation {geometry.dilation}"
        )
    return algorithm
