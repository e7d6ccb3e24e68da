"""Convolution by its definition: for every position in the kernel, multiply the shifted image and add.

work: n oh ow c_in c_out kh kw multiply-adds, depth: 1 + ceil(log2 c_in) + ceil(log2(kh kw)); the images of the kernel's
places are added in pairs, and the pairs in pairs, as parallel processors would do
"""

from __future__ import annotations

from ...backend import get_xp
from .geometry import Geometry


def forward(x, W, geometry: Geometry):
    """Convolve images (n, h, w, c_in) with kernels (kh, kw, c_in, c_out)."""
    x = geometry.pad(x)

    def total(places):
        if len(places) == 1:
            u, v, place = places[0]
            return x[place] @ W[u, v]
        half = len(places) // 2
        return total(places[:half]) + total(places[half:])

    return total(list(places(x, geometry))), x


def backward(dy, saved, W, geometry: Geometry, *, need_dx=True):
    """Return the gradients (dx or None, dW)."""
    x, xp = saved, get_xp(dy)
    dW = xp.empty_like(W)
    dx = xp.zeros_like(x) if need_dx else None
    flat = dy.reshape(-1, dy.shape[-1])
    for u, v, place in places(x, geometry):
        dW[u, v] = x[place].reshape(-1, x.shape[-1]).T @ flat
        if need_dx:
            dx[place] += dy @ W[u, v].T
    return (geometry.crop(dx) if need_dx else None), dW


def places(x, geometry):
    """Yield, for every position (u, v) in the kernel, the pixels that it is multiplied with, one for each output."""
    (kh, kw), (sy, sx), _ = geometry
    oh, ow = geometry._replace(padding=(0, 0)).output(*x.shape[1:3])
    for u in range(kh):
        for v in range(kw):
            yield u, v, (slice(None), slice(u, u + sy * (oh - 1) + 1, sy), slice(v, v + sx * (ow - 1) + 1, sx))
