"""Convolution on a GPU, by few launches: windows to rows by one, a product, and back by another."""

from __future__ import annotations

from ...backend import get_xp, matmul
from ..conv.geometry import Geometry
from ..ops import DEVICE_BYTES, batches


def forward(x, W, geometry: Geometry):
    """Convolve images (n, h, w, c_in) with kernels (kh, kw, c_in, c_out)."""
    y = get_xp(x).empty((len(x), *geometry.output(*x.shape[1:3]), W.shape[-1]), x.dtype)
    for images, col in _rows(x, geometry):
        matmul(col, W.reshape(-1, W.shape[-1]), out=y[images].reshape(-1, W.shape[-1]))
    return y, x


def backward(dy, saved, W, geometry: Geometry, *, need_dx=True):
    """Return the gradients (dx or None, dW)."""
    from ...cuda.kernels import images as kernels

    x, xp, kernel = saved, get_xp(dy), W.reshape(-1, W.shape[-1])
    dW, dx = None, xp.empty(x.shape, x.dtype) if need_dx else None
    for images, col in _rows(x, geometry):
        d = dy[images].reshape(-1, W.shape[-1])
        part = matmul(col.T, d)
        dW = part if dW is None else dW + part
        if need_dx:
            matmul(d, kernel.T, out=col)
            kernels.ADD_WINDOWS(col, dx[images], _windows(x, geometry))
    return dx, dW.reshape(W.shape)


def _windows(x, geometry):
    from ...cuda.kernels.images import Windows

    return Windows(*geometry.output(*x.shape[1:3]), *geometry.size, *geometry.stride, *geometry.padding)


def _rows(x, geometry):
    """Yield slices of the batch, and the rows of their windows."""
    from ...cuda.kernels import images as kernels

    where, xp = _windows(x, geometry), get_xp(x)
    width = where.kh * where.kw * x.shape[-1]
    for images in batches(len(x), where.oh * where.ow * width * x.itemsize, xp, DEVICE_BYTES):
        part = x[images]
        col = xp.empty((len(part) * where.oh * where.ow, width), x.dtype)
        kernels.WINDOWS(part, col, where)
        yield images, col
