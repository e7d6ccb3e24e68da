"""The attention layer: projections, several heads, positions by rotation."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import Array, get_xp, rounded, single
from ...bounds import check_positive
from ..container import Container, layer_span
from ..layer import Layer, check_shape
from ..linear import Linear
from .dot_product import attend, attend_backward

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class MultiHeadAttention(Container):
    r"""Attention from every position of a sequence to all others, in several heads.

    .. math:: Y = \operatorname{concat}_h\bigl(\operatorname{softmax}(Q_h K_h^\top / \sqrt d)\, V_h\bigr) W_o + b_o,
              \qquad Q = X W_q + b_q, \ldots

    Parameters
    ----------
    width : int
        Length of the vector at each position, in and out.
    heads : int
        Of width d = `width` / `heads`.
    seeds : sequence of Generator or int, optional
        Four, one for each projection: query, key, value, output; the same ones in every layer if None.
    causal : bool
        A position sees itself and what comes before it.

    Notes
    -----
    Shapes: (batch, length, width) to the same. Queries and keys are rotated by their position, so that scores depend on
    the distance of two positions; a pair is one value of each half, where the paper has neighbours. Forward: 8 batch
    length width^2 flops in the projections, 4 batch length^2 width in the heads. Saves x, queries, keys, values, the
    heads' output, and the probabilities, batch heads length^2.

    References
    ----------
    A. Vaswani et al. (2017), Attention is all you need, NIPS, section 3.2.2.
    J. Su et al. (2021), RoFormer: enhanced transformer with rotary position embedding, arXiv:2104.09864, equation 34.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        seeds: Sequence[Any] | None = None,
        *,
        causal: bool = True,
        dtype: DTypeLike = "float32",
    ):
        check_positive("MultiHeadAttention", width=width, heads=heads)
        if width % (2 * heads):
            raise ValueError(f"MultiHeadAttention: width {width}, heads {heads}: expected heads of the same even width")
        self.width, self.heads, self.d, self.causal = width, heads, width // heads, causal
        if seeds is not None and (not hasattr(seeds, "__len__") or len(seeds) != 4):
            raise ValueError(f"MultiHeadAttention: seeds is {seeds!r}, expected four")
        draw = [[0, i] for i in range(4)] if seeds is None else seeds
        query, key, value, output = (Linear(width, width, seed, dtype=dtype, gain=1.0) for seed in draw)
        super().__init__([query, key, value, output])

    def forward(self, x: Array) -> tuple[Array, Any]:
        self.output_shape(x.shape)
        projected = [self._project(layer, x) for layer in self.layers[:3]]
        q, k, v = map(self.split, projected)
        y, saved = self.attend(self.rotate(q), self.rotate(k), v)
        joined = self.join(y)
        return self._project(self.layers[3], joined), (x, saved, joined)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        x, heads, joined = saved
        dy = self._project_backward(self.layers[3], dy, joined)
        dq, dk, dv = self.attend_backward(self.split(dy), heads)
        dx, parts = None, (self.rotate(dq, back=True), self.rotate(dk, back=True), dv)
        for layer, part in zip(self.layers[:3], parts, strict=True):
            more = self._project_backward(layer, self.join(part), x)
            dx = more if dx is None else dx + more
        return dx

    def _project(self, layer, x):
        with layer_span(self.clock, layer, "forward", x.shape, x.dtype.itemsize):
            return layer.forward(x)[0]

    def _project_backward(self, layer, dy, x):
        with layer_span(self.clock, layer, "backward", x.shape, x.dtype.itemsize):
            return layer.backward(dy, x)

    # -- what `parallel.sequence` does in another way: there a rank has a part of the positions
    clock = None

    def attend(self, q: Array, k: int, v: Array) -> Any:
        """Attend in all heads; q, k, v are (batch, heads, length, d)."""
        return attend(q, k, v, causal=self.causal)

    def attend_backward(self, dy: Array, saved: Any) -> Any:
        return attend_backward(dy, saved)

    def rotate(self, x: Array, back: bool = False) -> Array:
        return rotate(x, back=back)

    def split(self, x: Array) -> Any:
        """Cut rows into heads: (batch, length, heads * d) to (batch, heads, length, d)."""
        return get_xp(x).ascontiguousarray(x.reshape(*x.shape[:2], self.heads, self.d).swapaxes(1, 2))

    def join(self, x: Array) -> Array:
        return get_xp(x).ascontiguousarray(x.swapaxes(1, 2)).reshape(len(x), x.shape[2], x.shape[1] * self.d)

    def parts(self, shape: tuple[int, ...]) -> list[tuple[Layer, tuple[int, ...]]]:
        widths = self.width, self.width, self.width, self.heads * self.d
        return [(layer, (*shape[:2], n)) for layer, n in zip(self.layers, widths, strict=True)]

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        check_shape(self, shape, "batch", "length", self.width)
        return shape

    def _scores(self, shape) -> int:
        return shape[0] * self.heads * shape[1] ** 2

    def flops(self, shape: tuple[int, ...]) -> int:
        return super().flops(shape) + self._scores(shape) * (4 * self.d + 5)

    def backward_flops(self, shape: tuple[int, ...]) -> int:
        return super().backward_flops(shape) + self._scores(shape) * (8 * self.d + 4)

    __repr__ = Layer.__repr__


def rotate(x, *, start: int = 0, back: bool = False):
    r"""Rotate vectors by their position: coordinates i and i + d / 2 by the angle :math:`t\, 10000^{-2i/d}`."""
    xp, half = get_xp(x), x.shape[-1] // 2
    dtype, x = x.dtype, single(x)
    cos, sin = (xp.asarray(table) for table in _angles(x.shape[-2], half, start, np.dtype(x.dtype)))
    a, b = x[..., :half], x[..., half:]
    y = xp.empty_like(x)
    if back:
        sin = -sin
    y[..., :half] = a * cos - b * sin
    y[..., half:] = b * cos + a * sin
    return rounded(y, dtype)


@functools.lru_cache(maxsize=64)
def _angles(length: int, half: int, start: int, dtype):
    """Cosine and sine of all angles, (length, half) each."""
    angles = (start + np.arange(length))[:, None] * 10_000.0 ** (-np.arange(half) / half)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
