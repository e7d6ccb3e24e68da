"""Gradient of the input where images are narrow and channels few: whole rows of the image at a time.

    dy_i (ow c_out)  @  bands (ow c_out, kh w c_in)  =  contribution of output row i to its kh image rows

A window of such an image is a few values long, and a product with so few is slow. Here a whole row of outputs is one
row of the product, and the matrix contains the kernel once for every output, shifted, with zeros beside it: w / kw
times the multiplications, at three times the speed, and no windows to copy. The results of output rows overlap, so
they are added up, kernel row by kernel row.
"""

from __future__ import annotations

import numpy as np

from ...backend import get_xp, matmul
from .. import ops
from ..conv.geometry import Geometry

LANES = 16
"""Values that fill a vector register of 64 bytes: an image row of fewer a pixel, or of two, leaves some empty."""


def pays(W, ow: int) -> bool:
    """Say whether this is faster than `geometry.input_gradient`: few channels, images at most three kernels wide."""
    _, kw, c_in, _ = W.shape
    narrow = 2 * c_in < LANES and ow + kw - 1 <= 3 * kw
    return narrow and kw > 1 and get_xp(W) is np


def input_gradient(dy, W, geometry: Geometry):
    """Return the gradient (n, h, w, c_in) of a convolution of stride 1 with respect to its input."""
    xp, (n, oh, ow, k), (kh, kw, c, _) = get_xp(dy), dy.shape, W.shape
    h, w = oh + kh - 1, ow + kw - 1
    bands = xp.zeros((ow, k, kh, w, c), W.dtype)
    for j in range(ow):
        bands[j, :, :, j : j + kw] = W.transpose(3, 0, 1, 2)
    bands = bands.reshape(ow * k, -1)
    dx = xp.zeros((n, h, w * c), dy.dtype)
    for samples in ops.batches(n, oh * bands[0].nbytes, xp):
        parts = matmul(dy[samples].reshape(-1, ow * k), bands).reshape(-1, oh, kh, w * c)
        for u in range(kh):
            dx[samples, u : u + oh] += parts[:, :, u]
    return geometry.crop(dx.reshape(n, h, w, c))
