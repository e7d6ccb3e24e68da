"""Convolution and pooling of images (n, h, w, c), as layers launch them: windows to rows and back, and the maximum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, blocks, f32, i32


class Windows(NamedTuple):
    """Where windows lie in an image: sizes of the output, of a window, strides, rows above and columns left of it."""

    oh: int
    ow: int
    kh: int
    kw: int
    sy: int
    sx: int
    top: int
    left: int


def _bordered(x, where, value):
    """Return images with the border that the windows need, and the view of the images in it."""
    (n, h, w, c), (oh, ow, kh, kw, sy, sx, top, left) = x.shape, where
    out = np.full((n, max(h + top, (oh - 1) * sy + kh), max(w + left, (ow - 1) * sx + kw), c), value, f32)
    inside = out[:, top : top + h, left : left + w]
    inside[...] = x
    return out, inside


def _pixels(bordered, where):
    """Yield (u, v, the pixels that all windows have there)."""
    oh, ow, kh, kw, sy, sx, *_ = where
    for v in range(kw):
        for u in range(kh):
            yield u, v, bordered[:, u : u + (oh - 1) * sy + 1 : sy, v : v + (ow - 1) * sx + 1 : sx]


def _by_window(col, n, where):
    return col.reshape(n, where.oh, where.ow, where.kh, where.kw, -1)


def windows_reference(x, col, where):
    """Write every window of every image into a row."""
    for u, v, pixels in _pixels(_bordered(x, where, 0)[0], where):
        _by_window(col, len(x), where)[:, :, :, u, v] = pixels


def add_windows_reference(col, dx, where):
    """Add the windows up where they came from."""
    bordered, inside = _bordered(np.zeros_like(dx), where, 0)
    for u, v, pixels in _pixels(bordered, where):
        pixels += _by_window(col, len(dx), where)[:, :, :, u, v]
    dx[...] = inside


def max_pool_reference(x, y, won, where):
    """Write the largest value of every window, and its place in the window."""
    y[...], won[...] = -np.inf, -1
    for u, v, pixels in _pixels(_bordered(x, where, -np.inf)[0], where):
        better = pixels > y
        y[better], won[better] = pixels[better], u * where.kw + v


def max_pool_back_reference(dy, won, dx, where):
    """Give each window's gradient to its largest value."""
    col = np.zeros((*dy.shape[:3], where.kh * where.kw, dy.shape[3]), f32)
    np.put_along_axis(col, won[:, :, :, None], dy[:, :, :, None], 3)
    add_windows_reference(col, dx, where)


def _launch(image, result):
    """Return a launch with a thread for each element of an argument, `result`, for the images that `image` is."""

    def launch(*args):
        *arrays, where = args
        sizes = (*args[image].shape[1:], *where, args[result].size)
        return Launch(blocks(args[result].size), (256,), (*arrays, *map(i32, sizes)))

    return launch


WINDOWS = Variant("images.cu", "windows", _launch(0, 1), windows_reference)
ADD_WINDOWS = Variant("images.cu", "add_windows", _launch(1, 1), add_windows_reference)
MAX_POOL = Variant("images.cu", "max_pool", _launch(0, 1), max_pool_reference)
MAX_POOL_BACK = Variant("images.cu", "max_pool_back", _launch(2, 2), max_pool_back_reference)

VARIANTS = [WINDOWS, ADD_WINDOWS, MAX_POOL, MAX_POOL_BACK]
