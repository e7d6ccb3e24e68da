"""Convolution as one matrix product: every window becomes a row.

    windows (n oh ow, kh kw c_in)  @  kernels (kh kw c_in, c_out)  =  output (n oh ow, c_out)

The same work as the direct algorithm, in the operation that every processor is best at. The matrix of windows is kh kw
times as large as the images; so it is made for a few images at a time, and made again in the backward pass.
"""

from __future__ import annotations

import numpy as np

from ...backend import get_xp, matmul
from ..ops import DEVICE_BYTES, batches
from .direct import places
from .geometry import Geometry, input_gradient, windows

# Windows in one product: few enough to stay in the processor's cache until they are multiplied.
WINDOW_BYTES = 2 * 1024 * 1024


def forward(x, W, geometry: Geometry):
    """Convolve images (n, h, w, c_in) with kernels (kh, kw, c_in, c_out)."""
    x = geometry.pad(x)
    xp, kernels = get_xp(x), W.reshape(-1, W.shape[-1])
    oh, ow = geometry._replace(padding=(0, 0)).output(*x.shape[1:3])
    y = xp.empty((len(x), oh, ow, W.shape[-1]), x.dtype)
    for images, rows in _window_rows(x, geometry):
        matmul(rows, kernels, out=y[images].reshape(-1, W.shape[-1]))
    return y, x


def backward(dy, saved, W, geometry: Geometry, *, need_dx=True):
    """Return the gradients (dx or None, dW)."""
    x, xp = saved, get_xp(dy)
    dW = xp.zeros_like(W)
    dkernels, dy = dW.reshape(-1, W.shape[-1]), xp.ascontiguousarray(dy)
    for images, rows in _window_rows(x, geometry):
        dkernels += matmul(rows.T, dy[images].reshape(-1, dy.shape[-1]))
    if not need_dx:
        return None, dW
    if geometry.stride == (1, 1):
        return input_gradient(forward, dy, W, geometry), dW
    return _scatter(dy, x, W, geometry), dW


def _window_rows(x, geometry):
    # a copy costs a tenth of the product, and a large network first runs out of memory
    xp, every = get_xp(x), windows(x, geometry.size, geometry.stride)
    width = x.shape[-1] * geometry.size[0] * geometry.size[1]
    budget = getattr(xp, "WORK_BYTES", WINDOW_BYTES if xp is np else DEVICE_BYTES)
    step = max(1, budget // max(1, every[:1].nbytes))
    for start in range(0, len(x), step):
        images = slice(start, start + step)
        yield images, xp.ascontiguousarray(every[images]).reshape(-1, width)


def _scatter(dy, x, W, geometry):
    """Gradient of the padded input for any stride: every window's gradient is added where the window was."""
    (n, oh, ow, k), (kh, kw, c, _) = dy.shape, W.shape
    xp, turned = get_xp(dy), W.reshape(-1, k).T
    dx = xp.zeros_like(x)
    for images in batches(n, oh * ow * kh * kw * c * x.dtype.itemsize, xp, WINDOW_BYTES):
        dwindows = matmul(dy[images].reshape(-1, k), turned).reshape(-1, oh, ow, kh, kw, c)
        for u, v, (_, rows, columns) in places(x, geometry):
            dx[images, rows, columns] += dwindows[:, :, :, u, v]
    return geometry.crop(dx)
