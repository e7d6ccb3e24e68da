"""Pooling: one value for every window of an image."""

from __future__ import annotations

import math
from typing import Any

from ..backend import Array, can_launch, get_xp, rounded, single
from . import ops
from .conv.geometry import pad, pair
from .layer import Layer, check_shape, describe


class MaxPool(Layer):
    r"""Keep the largest value of every window, channel by channel.

    .. math:: y_{n,i,j,c} = \max_{u,v} x_{n,\, s i + u,\, s j + v,\, c}

    The gradient goes to the pixel that was the largest; among equal ones to that in the upper row of the leftmost
    column. A NaN is the largest of its window, whose gradient goes to any of its pixels then.

    Parameters
    ----------
    size : int or (int, int)
        Rows and columns of the window.
    stride : int or (int, int), optional
        By default the size: windows side by side.
    padding : int or (int, int)
        Width of a border of minus infinity.
    ceil : bool
        Add a last window that extends beyond the edge where windows do not fit exactly.

    Notes
    -----
    Shapes: (n, h, w, c) to (n, oh, ow, c) with oh = floor((h + 2 p - k) / s) + 1 (rounded up with `ceil`). kh kw
    comparisons an output. Saves for either axis which of the k candidates won, one byte or less an element.

    References
    ----------
    M. Riesenhuber, T. Poggio (1999), Hierarchical models of object recognition in cortex, Nature Neuroscience 2(11).
    """

    # A window's maximum is the maximum of its columns' maxima, so the two axes are reduced one after the other: k + k
    # passes over the data instead of k k.

    def __init__(
        self,
        size: int | tuple[int, int],
        stride: int | tuple[int, int] | None = None,
        *,
        padding: int | tuple[int, int] = 0,
        ceil: bool = False,
    ):
        self.size = pair(size, "MaxPool: size")
        self.stride = self.size if stride is None else pair(stride, "MaxPool: stride")
        self.padding, self.ceil = pair(padding, "MaxPool: padding", least=0), ceil
        if any(p >= k for p, k in zip(self.padding, self.size, strict=True)):
            raise ValueError(f"MaxPool: padding is {self.padding}, expected less than the window {self.size}")

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        check_shape(self, shape, "batch", "height", "width", "channels")
        counts = []
        for n, k, s, p in zip(shape[1:3], self.size, self.stride, self.padding, strict=True):
            room = n + 2 * p - k
            count = (-(-room // s) if self.ceil else room // s) + 1
            if self.ceil and (count - 1) * s >= n + p:  # a window that would begin beyond the image
                count -= 1
            counts.append(count)
        if min(counts) < 1:
            raise ValueError(f"{describe(self)}: an image of {shape[1]} x {shape[2]} is smaller than the window")
        return (shape[0], *counts, shape[3])

    def flops(self, shape: tuple[int, ...]) -> int:
        return math.prod(self.size) * math.prod(self.output_shape(shape))

    def backward_flops(self, shape: tuple[int, ...]) -> int:
        return self.flops(shape)

    def __repr__(self):
        (kh, kw), (sy, sx) = self.size, self.stride
        size = kh if kh == kw else (kh, kw)
        stride = "" if self.stride == self.size else f", {sy if sy == sx else (sy, sx)}"
        padding = f", padding={self.padding[0]}" if any(self.padding) else ""
        return f"MaxPool({size}{stride}{padding}{', ceil=True' if self.ceil else ''})"

    def forward(self, x: Array) -> tuple[Array, Any]:
        shape, xp = self.output_shape(x.shape), get_xp(x)
        if can_launch(x):
            from ..cuda.kernels import images

            y, won = xp.empty(shape, x.dtype), xp.empty(shape, "int32")
            images.MAX_POOL(x, y, won, self._launched(x.shape))
            return y, (won, None, x.shape)
        axes = zip(x.shape[1:3], shape[1:3], self.size, self.stride, self.padding, strict=True)
        bottom, right = (max(p, (count - 1) * s + k - n - p) for n, count, k, s, p in axes)  # the last window fits
        padded = pad(x, self.padding[0], bottom, self.padding[1], right, value=-math.inf)
        y, won = xp.empty(shape, x.dtype), []
        for part in ops.batches(len(x), padded[:1].nbytes, xp):
            columns, down = _max_along(padded[part], 1, self.size[0], self.stride[0], shape[1])
            y[part], across = _max_along(columns, 2, self.size[1], self.stride[1], shape[2])
            won.append((part, down, across))
        return y, (won, padded.shape, x.shape)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        won, padded, shape = saved
        if padded is None:
            from ..cuda.kernels import images

            dx = get_xp(dy).empty(shape, dy.dtype)
            images.MAX_POOL_BACK(get_xp(dy).ascontiguousarray(dy), won, dx, self._launched(shape))
            return dx
        n, *rest = padded
        xp, (top, left) = get_xp(dy), self.padding
        exact = self.size == self.stride and rest[0] % self.size[0] == rest[1] % self.size[1] == 0
        dx = (xp.empty if exact else xp.zeros)((n, *rest), dy.dtype)  # some pixels get no gradient
        for part, down, across in won:
            samples = dx[part]
            columns = (len(samples), dy.shape[1], *rest[1:])
            dcolumns = (xp.empty if exact else xp.zeros)(columns, dy.dtype)
            _give_to_winners(dy[part], across, dcolumns, 2, self.size[1], self.stride[1])
            _give_to_winners(dcolumns, down, samples, 1, self.size[0], self.stride[0])
        return dx[:, top : top + shape[1], left : left + shape[2]]

    def _launched(self, shape):
        """The geometry of the windows, for a kernel."""
        from ..cuda.kernels.images import Windows

        return Windows(*self.output_shape(shape)[1:3], *self.size, *self.stride, *self.padding)


def _shifts(x, axis, size, stride, count):
    """Views of `x`: the first element of every window along `axis`, the second, ..."""
    before = (slice(None),) * axis
    return [x[(*before, slice(i, i + stride * (count - 1) + 1, stride))] for i in range(size)]


def _max_along(x, axis, size, stride, count):
    """Maximum of every window along one axis, and where each later candidate beat those before it."""
    best, *others = _shifts(x, axis, size, stride, count)
    if axis == 2:  # pixels with a gap between them
        best, *others = map(ops.gathered, (best, *others))
    beats, xp = [], get_xp(x)
    for other in others:
        beats.append(other > best)
        best = xp.maximum(best, other)
    return best, beats


def _give_to_winners(dy, beats, dx, axis, size, stride):
    """Gradient before `_max_along`, into `dx`: the last candidate that beat all before it gets everything."""
    # `dy` is overwritten.
    first, *others = _shifts(dx, axis, size, stride, dy.shape[axis])

    def give(target, part):
        if stride >= size:  # in windows apart every pixel gets at most one gradient
            target[...] = part
        else:
            target += part

    for target, won in zip(reversed(others), reversed(beats), strict=True):
        part = dy * won
        dy -= part
        give(target, part)
    give(first, dy)


class GlobalAvgPool(Layer):
    r"""Replace every channel's image by its mean: it replaces large dense layers in GoogLeNet.

    .. math:: y_{n,c} = \frac{1}{h w} \sum_{i,j} x_{n,i,j,c}

    Shapes: (n, h, w, c) to (n, c). h w additions an output. Saves nothing but the shape.

    References
    ----------
    M. Lin, Q. Chen, S. Yan (2014), Network in network, ICLR, section 3.2.
    """

    costs = 1, 1

    def forward(self, x: Array) -> tuple[Array, Any]:
        self.output_shape(x.shape)
        return rounded(single(x).mean(axis=(1, 2)), x.dtype), x.shape

    def backward(self, dy: Array, saved: Any) -> Array | None:
        _, h, w, _ = saved
        dx = get_xp(dy).empty(saved, dy.dtype)
        dx[...] = rounded(single(dy) / (h * w), dy.dtype)[:, None, None, :]
        return dx

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        check_shape(self, shape, "batch", "height", "width", "channels")
        return (shape[0], shape[3])
