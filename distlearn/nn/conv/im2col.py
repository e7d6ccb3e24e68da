"""Convolution as one matrix product: every window becomes a row.

    windows (n oh ow, kh kw c_in)  @  kernels (kh kw c_in, c_out)  =  output (n oh ow, c_out)

The same work and depth as the direct algorithm, in the one operation that every processor is best at. The matrix of
windows is kh kw times as large as the image; so it is made block by block, each as large as a core's cache, and made
again for the backward pass: copying it costs a tenth of the product, and memory is what a large network runs out of
first.
"""

from __future__ import annotations

from ...backend import get_xp
from .. import ops
from .geometry import Geometry, input_gradient

NARROW = 16
"""Windows whose rows have fewer contiguous values than this are copied column by column instead."""


def forward(x, W, geometry: Geometry):
    """Convolve images (n, h, w, c_in) with kernels (kh, kw, c_in, c_out)."""
    x = geometry.pad(x)
    xp, matrix = get_xp(x), W.reshape(-1, W.shape[-1])
    oh, ow = _output(x, geometry)
    y = xp.empty((len(x), oh, ow, W.shape[-1]), x.dtype)
    for block, columns in _window_matrices(x, geometry, oh, ow):
        ops.matmul(columns, matrix, out=_rows(y[block]))
    return y, x


def backward(dy, saved, W, geometry: Geometry, *, need_dx=True):
    """Return the gradients (dx or None, dW)."""
    x, xp = saved, get_xp(dy)
    dW = xp.zeros_like(W)
    matrix = dW.reshape(-1, W.shape[-1])
    dy = xp.ascontiguousarray(dy)
    for block, columns in _window_matrices(x, geometry, *dy.shape[1:3]):
        matrix += ops.matmul(columns.T, _rows(dy[block]))
    if not need_dx:
        return None, dW
    if geometry.stride == (1, 1):
        return input_gradient(forward, dy, W, geometry), dW
    return _scatter(dy, x, W, geometry), dW


def _output(x, geometry):
    """Rows and columns of the output for images that are padded already."""
    return geometry._replace(padding=(0, 0)).output(*x.shape[1:3])


def _rows(y):
    """Images (n, h, w, c) as a matrix with a row per pixel."""
    return y.reshape(-1, y.shape[-1])


def _window_matrices(x, geometry, oh, ow):
    """Yield (block, matrix): some images and rows of the output, and their windows, one a row."""
    xp, (kh, kw), c = get_xp(x), geometry.size, x.shape[-1]
    if geometry.size == geometry.stride == (1, 1):  # a 1 x 1 kernel: the image is the matrix
        yield (slice(None), slice(None)), _rows(x)
        return
    windows = ops.windows(x, geometry.size, geometry.stride, geometry.dilation)
    width = kh * kw * c
    blocks = ops.blocks(len(x), oh, ow * width * x.dtype.itemsize, xp)
    largest = max(((s.stop - s.start) * (r.stop - r.start) for s, r in blocks), default=0)
    buffer = xp.empty(largest * ow * width, x.dtype)
    narrow = kw * c < NARROW
    for block in blocks:
        part = windows[block]
        if narrow:
            part = part.transpose(3, 4, 5, 0, 1, 2)
        matrix = buffer[: part.size].reshape(part.shape)
        matrix[...] = part
        yield block, matrix.reshape(width, -1).T if narrow else matrix.reshape(-1, width)


def _scatter(dy, x, W, geometry):
    """Gradient of the padded input for any stride: every window's gradient is added where the window was."""
    xp, (sy, sx), (dily, dilx) = get_xp(dy), geometry.stride, geometry.dilation
    kh, kw, c, k = W.shape
    _, oh, ow, _ = dy.shape
    dx, turned = xp.zeros_like(x), W.reshape(-1, k).T
    for samples, rows in ops.blocks(len(x), oh, ow * turned.shape[1] * x.dtype.itemsize, xp):
        part = dy[samples, rows]
        dwindows = ops.matmul(_rows(part), turned).reshape(*part.shape[:3], kh, kw, c)
        target, high = dx[samples, rows.start * sy :], part.shape[1]
        for u in range(kh):
            for v in range(kw):
                place = target[:, u * dily :, v * dilx :][:, : sy * (high - 1) + 1 : sy, : sx * (ow - 1) + 1 : sx]
                place += dwindows[:, :, :, u, v]
    return geometry.crop(dx)
