"""im2col for few output channels: several neighbouring outputs in one row of the product.

A matrix product is fast when all of its sides are long. With 6 output channels a row of the result fills less than
half of a vector register; two or four neighbouring outputs side by side fill it. They share most of their window, so
their joint window is only a little wider, and fewer values are copied:

    windows (n oh ow / q, kh (kw + q - 1) c_in)  @  kernels (kh (kw + q - 1) c_in, q c_out)

The kernels stand q times in the wide matrix, shifted, with zeros beside them; the result needs no rearrangement at all.
"""

from __future__ import annotations

from ...backend import get_xp
from . import im2col
from .geometry import Geometry, input_gradient

ENOUGH = 16
"""Values that fill a vector register of 64 bytes; more in a row gain nothing."""


def neighbours(c_out: int, ow: int, geometry: Geometry) -> int:
    """How many outputs to compute in one row: 4, 2 or 1."""
    if geometry.stride[1] != 1 or geometry.dilation[1] != 1 or geometry.size[1] == 1:
        return 1
    return next((q for q in (4, 2) if ow % q == 0 and q * c_out <= ENOUGH), 1)


def forward(x, W, geometry: Geometry):
    """Convolve images (n, h, w, c_in) with kernels (kh, kw, c_in, c_out)."""
    oh, ow = geometry.output(*x.shape[1:3])
    q = neighbours(W.shape[-1], ow, geometry)
    y, saved = im2col.forward(x, _widen(W, q), _wide(geometry, q))
    return y.reshape(len(x), oh, ow, W.shape[-1]), saved


def backward(dy, saved, W, geometry: Geometry, *, need_dx=True):
    """Return the gradients (dx or None, dW)."""
    n, oh, ow, k = dy.shape
    q = neighbours(k, ow, geometry)
    rows = get_xp(dy).ascontiguousarray(dy).reshape(n, oh, ow // q, q * k)
    same = need_dx and geometry.stride != (1, 1)  # dx of a strided convolution is im2col's own business
    dx, dW = im2col.backward(rows, saved, _widen(W, q), _wide(geometry, q), need_dx=same)
    if need_dx and not same:
        dx = input_gradient(forward, dy, W, geometry)
    return dx, _narrow(dW, q, W.shape)


def _wide(geometry, q):
    """The geometry of joint windows."""
    (kh, kw), (sy, sx) = geometry.size, geometry.stride
    return geometry._replace(size=(kh, kw + q - 1), stride=(sy, sx * q))


def _widen(W, q):
    """Kernels (kh, kw, c, k) for q neighbours: (kh, kw + q - 1, c, q k)."""
    if q == 1:
        return W
    kh, kw, c, k = W.shape
    wide = get_xp(W).zeros((kh, kw + q - 1, c, q, k), W.dtype)
    for j in range(q):
        wide[:, j : j + kw, :, j] = W
    return wide.reshape(kh, kw + q - 1, c, q * k)


def _narrow(dW, q, shape):
    """Gradient of `_widen`: every kernel stood in q places."""
    kh, kw, c, k = shape
    wide = dW.reshape(kh, kw + q - 1, c, q, k)
    narrow = wide[:, :kw, :, 0].copy()
    for j in range(1, q):
        narrow += wide[:, j : j + kw, :, j]
    return narrow
