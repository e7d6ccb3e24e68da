"""The convolutional layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import Array, column_sums, get_xp, rounded, single
from ...bounds import check_positive
from .. import init
from ..layer import Layer, Param, check_input, check_shape, describe
from . import direct, fft, im2col, winograd
from .geometry import Geometry, pair

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

# Functions (forward, backward) by name; they differ in speed, memory and rounding, not in the result.
ALGORITHMS = {
    "direct": (direct.forward, direct.backward),
    "im2col": (im2col.forward, im2col.backward),
    "fft": (fft.forward, fft.backward),
    "winograd2": winograd.algorithm(2),
    "winograd4": winograd.algorithm(4),
}


class Conv2d(Layer):
    r"""Two-dimensional convolution (as everywhere in deep learning: correlation) of channels-last images.

    .. math:: y_{n,i,j,k} = b_k + \sum_{u,v,c} x_{n,\, s i + u - p,\, s j + v - p,\, c} \; W_{u,v,c,k}

    with stride s and zeros outside the image to the width of the padding p.

    Parameters
    ----------
    c_in, c_out : int
        Channels of input and output.
    size : int or (int, int)
        Rows and columns of the kernel.
    rng : numpy.random.Generator or int, optional
        Draws the weights from N(0, 2 / (kh kw c_in / groups)) (He); None is seed 0, "zeros" leaves them zero.
    padding : int, (int, int) or "same"
        "same" keeps the image's size (kernels of odd size, stride 1).
    groups : int
        Number of groups of channels, each convolved separately.
    algorithm : {"im2col", "direct", "fft", "winograd2", "winograd4"}
        fft takes stride 1, Winograd also 3 x 3 kernels alone. `nn.fuse` chooses a fast one in im2col's place.
    input_gradient : bool
        False for a model's first layer: the gradient of the data is not needed.

    Notes
    -----
    Shapes: (n, h, w, c_in) to (n, oh, ow, c_out) with oh = floor((h + 2 p - kh) / s) + 1; W is (kh, kw,
    c_in / groups, c_out). Forward: 2 n oh ow c_out kh kw c_in / groups flops (what the direct algorithm computes;
    `conv_cost` has the others'), backward twice that. Saves the padded input (fft: its spectrum).

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
        c_in: int,
        c_out: int,
        size: int | tuple[int, int],
        rng: np.random.Generator | int | None = None,
        *,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] | str = 0,
        groups: int = 1,
        algorithm: str = "im2col",
        dtype: DTypeLike = "float32",
        input_gradient: bool = True,
    ):
        check_positive("Conv2d", c_in=c_in, c_out=c_out, groups=groups)
        if c_in % groups or c_out % groups:
            raise ValueError(f"Conv2d: groups is {groups}, expected a divisor of c_in = {c_in} and c_out = {c_out}")
        self.c_in, self.c_out, self.groups, self.input_gradient = c_in, c_out, groups, input_gradient
        self.geometry = _geometry(size, stride, padding)
        self.algorithm = _check_algorithm(algorithm, self.geometry)
        fan_in = math.prod(self.geometry.size) * c_in // groups
        shape = (*self.geometry.size, c_in // groups, c_out)
        self.W = Param(init.normal(shape, init.HE / math.sqrt(fan_in), rng, dtype), "W")
        self.b = Param(init.zeros((c_out,), dtype), "b")
        self.params = [self.W, self.b]

    def forward(self, x: Array) -> tuple[Array, Any]:
        check_input(self, x)
        run, _ = ALGORITHMS[self.algorithm]
        y, saved = self.convolve(x, run)
        y += self.b.data
        return y, saved

    def backward(self, dy: Array, saved: Any) -> Array | None:
        self.b.add(column_sums(dy))
        _, run = ALGORITHMS[self.algorithm]
        return self.convolve_back(dy, saved, run)

    def convolve(self, x: Array, run: Any) -> Any:
        """Convolve by `run(x, W, geometry) -> (y, saved)`, group by group, without the bias."""
        W, half = self.W.data, x.dtype == np.float16
        if half:  # computed in single precision, rounded once
            x, W = single(x), single(W)
        if self.groups == 1:
            y, saved = run(x, W, self.geometry)
        else:
            parts = zip(self.split(x), self.split(W), strict=True)
            ys, saved = zip(*(run(part, kernels, self.geometry) for part, kernels in parts), strict=True)
            y = get_xp(x).concatenate(ys, axis=-1)
        return rounded(y, np.float16) if half else y, saved

    def convolve_back(self, dy: Array, saved: Any, run: Any) -> Any:
        """Add the gradient of W and return that of the input, by `run(dy, saved, W, geometry, need_dx)`."""
        W, dtype, need = single(self.W.data), dy.dtype, self.input_gradient
        dy = single(dy)
        if self.groups == 1:
            dx, dW = run(dy, saved, W, self.geometry, need_dx=need)
        else:
            parts = zip(self.split(dy), saved, self.split(W), strict=True)
            dxs, dWs = zip(*(run(d, s, kernels, self.geometry, need_dx=need) for d, s, kernels in parts), strict=True)
            dW = get_xp(dy).concatenate(dWs, axis=-1)
            dx = get_xp(dy).concatenate(dxs, axis=-1) if need else None
        self.W.add(dW)
        return rounded(dx, dtype) if need else None

    def split(self, x: Array) -> Any:
        """Views of the groups' channels."""
        width = x.shape[-1] // self.groups
        return [x[..., i * width : (i + 1) * width] for i in range(self.groups)]

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        check_shape(self, shape, "batch", "height", "width", self.c_in)
        oh, ow = self.geometry.output(*shape[1:3])
        if oh < 1 or ow < 1:
            raise ValueError(f"{describe(self)}: an image of {shape[1]} x {shape[2]} is smaller than the kernel")
        return (shape[0], oh, ow, self.c_out)

    def flops(self, shape: tuple[int, ...]) -> int:
        return 2 * math.prod(self.output_shape(shape)) * math.prod(self.W.data.shape[:3])

    def __repr__(self):
        kh, kw = self.geometry.size
        extra = "".join(
            f", {name}={value[0] if value[0] == value[1] else value}"
            for name, value, default in zip(("stride", "padding"), self.geometry[1:], ((1, 1), (0, 0)), strict=True)
            if value != default
        )
        groups = f", groups={self.groups}" if self.groups > 1 else ""
        return f"Conv2d({self.c_in}, {self.c_out}, {kh if kh == kw else (kh, kw)}{extra}{groups})"


def _geometry(size, stride, padding) -> Geometry:
    size, stride = pair(size, "Conv2d: size"), pair(stride, "Conv2d: stride")
    if padding == "same":
        if stride != (1, 1) or any(k % 2 == 0 for k in size):
            raise ValueError(f"Conv2d: padding 'same' needs stride 1 and an odd size, got stride {stride}, size {size}")
        padding = tuple(k // 2 for k in size)
    return Geometry(size, stride, pair(padding, "Conv2d: padding", least=0))


def _check_algorithm(algorithm, geometry) -> str:
    """Raise unless the algorithm exists and can compute this convolution."""
    if algorithm not in ALGORITHMS:
        names = ", ".join(map(repr, ALGORITHMS))
        raise ValueError(f"Conv2d: algorithm is {algorithm!r}, expected one of {names}")
    if algorithm == "fft" and geometry.stride != (1, 1):
        raise ValueError(f"Conv2d: fft computes stride 1, got {geometry.stride}")
    if algorithm.startswith("winograd") and geometry[:2] != ((3, 3), (1, 1)):
        raise ValueError(f"Conv2d: {algorithm} computes 3 x 3 kernels with stride 1, got {geometry[:2]}")
    return algorithm
