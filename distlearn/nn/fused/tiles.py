"""A convolution of few channels and the maximum pooling behind it: all outputs of a pooling window in one product.

    candidates (ph pw c_out, tiles)  =  kernels (ph pw c_out, K)  @  inputs of every tile (K, tiles)

A tile is a window of the pool, ph x pw outputs; together they see K = (kh + ph - 1) (kw + pw - 1) c_in values of the
image. For a first layer that is few: 16 for a kernel of 3 x 3 on one channel, of which each of the four outputs
ignores 7. So the kernel stands in the matrix once for every place in the tile, with zeros beside it.

The channels come first here, because a pixel of few channels is a short run of values, and short runs are slow to copy,
to multiply and to compare. The image is cut into phases: every ph-th row and pw-th column, from each of the ph pw
places where one can begin. The inputs of an image's tiles at one place lie in one phase as a single run, from the
first tile to the last: K copies of a run for a sample instead of one for every row of every window. Between two rows
of tiles the run passes over the image's border; results there belong to no tile and are dropped.
"""

from __future__ import annotations

import math

import numpy as np

from ...backend import get_xp, matmul
from .. import ops
from ..conv.geometry import Geometry, pad
from ..pool import best_of, give_to_best
from . import rows

FEW = 40  # Values that a tile may see; with more, `rows` and `MaxPool` one after the other are as fast, or faster.


def is_fast(layer, pool, shape) -> bool:
    """Say whether this is fast: tiles of the layer see little, and the pooling's windows tile its output's `shape`."""
    W, (_, oh, ow, _), (ph, pw) = layer.W.data, shape, pool.size
    plain = layer.groups == 1 and layer.geometry.stride == (1, 1)
    exact = pool.stride == pool.size and pool.padding == (0, 0) and oh % ph == ow % pw == 0 and ph * pw > 1
    return plain and exact and W.dtype != np.float16 and W.shape[2] * math.prod(_seen(W.shape, pool.size)) <= FEW


def forward(x, W, geometry: Geometry, pool):
    """Convolve images (n, h, w, c_in) with kernels (kh, kw, c_in, c_out) and pool: (n, oh / ph, ow / pw, c_out)."""
    xp, (oh, ow), (ph, pw), k, won = get_xp(x), geometry.output(*x.shape[1:3]), pool.size, W.shape[-1], []
    y = xp.empty((len(x), oh // ph, ow // pw, k), x.dtype)
    phases, kernels = _phases(x, W.shape, geometry, pool.size), _wide(W, pool.size)
    for samples, seen in _tiles(phases, kernels.shape, y.shape[1]):
        candidates = matmul(kernels.reshape(ph * pw * k, -1), seen).reshape(len(seen), ph, pw, -1)
        columns, down = best_of(list(candidates.swapaxes(0, 1)))
        best, across = best_of(list(columns.swapaxes(0, 1)))
        y[samples] = _images(best, y.shape[1], k)[..., : y.shape[2]].transpose(0, 2, 3, 1)
        won.append((down, across))
    return y, (phases, won)


def backward(dy, saved, W, geometry: Geometry, pool, *, need_dx=True):
    """Return the gradients (dx or None, dW)."""
    (phases, won), xp, (ph, pw), (n, h, w, k) = saved, get_xp(dy), pool.size, dy.shape
    shape = (ph, pw, k, *_seen(W.shape, pool.size), W.shape[2])
    dkernels = xp.zeros((math.prod(shape[3:]), ph * pw * k), W.dtype)
    whole = xp.empty((n, h, ph, w, pw, k), dy.dtype) if need_dx else None
    for (samples, seen), (down, across) in zip(_tiles(phases, shape, h), won, strict=True):
        best = xp.zeros((len(seen), k, h, phases.shape[-1]), dy.dtype)  # zero between the rows of tiles
        best[..., :w] = dy[samples].transpose(0, 3, 1, 2)
        columns = xp.empty((len(seen), pw, best[0].size), dy.dtype)
        candidates = xp.empty((len(seen), ph, *columns.shape[1:]), dy.dtype)
        give_to_best(best.reshape(len(seen), -1), across, list(columns.swapaxes(0, 1)))
        give_to_best(columns, down, list(candidates.swapaxes(0, 1)))
        products = matmul(seen, candidates.reshape(len(seen), ph * pw * k, -1).swapaxes(1, 2))
        dkernels += products.sum(axis=0)
        if need_dx:
            images = _images(candidates, h, ph, pw, k)[..., :w]
            whole[samples] = images.transpose(0, 4, 1, 5, 2, 3)
    dW = _narrow(dkernels.T.reshape(shape), W.shape)
    return (rows.input_gradient(whole.reshape(n, h * ph, w * pw, k), W, geometry) if need_dx else None), dW


def _seen(kernel, tile):
    """Rows and columns that a tile sees, rounded up to whole tiles."""
    return [-(-(size + step - 1) // step) * step for size, step in zip(kernel[:2], tile, strict=True)]


def _phases(x, kernel, geometry, tile):
    """Cut images with their border into phases: (n, ph, pw, c_in, rows, columns)."""
    # A phase has the columns of a row of tiles, and one row more than all tiles: runs end there.
    (n, h, w, c), (py, px), (ph, pw), (kh, kw) = x.shape, geometry.padding, tile, _seen(kernel, tile)
    oh, ow = geometry.output(h, w)
    high, wide = oh // ph + kh // ph, ow // pw + kw // pw - 1
    x = pad(x, py, high * ph - h - py, px, wide * pw - w - px)
    return get_xp(x).ascontiguousarray(x.reshape(n, high, ph, wide, pw, c).transpose(0, 2, 4, 5, 1, 3))


def _tiles(phases, kernels, rows):
    """Yield (samples, seen (samples, K, tiles)), in batches small enough to stay in the cache with their products."""
    # kernels is the shape of the result of `_wide`, `rows` the number of rows of tiles.
    xp, (n, ph, pw, c, _, width) = get_xp(phases), phases.shape
    (_, _, k, kh, kw, _), (of_n, of_i, of_j, of_c, row, column) = kernels, phases.strides
    shape = (n, kh // ph, ph, kw // pw, pw, c, rows * width)
    every = xp.lib.stride_tricks.as_strided(phases, shape, (of_n, row, of_i, column, of_j, of_c, column))
    for samples in ops.batches(n, (kh * kw * c + 2 * ph * pw * k) * rows * width * phases.itemsize, xp):
        yield samples, xp.ascontiguousarray(every[samples]).reshape(-1, kh * kw * c, rows * width)


def _images(x, high, *channels):
    """Results (n, ..., tiles) as images (n, *channels, rows, columns), the columns between rows included."""
    return x.reshape(-1, *channels, high, x.size // (len(x) * math.prod(channels) * high))


def _wide(W, tile):
    """The kernels for every place in a tile, with zeros beside them: (ph, pw, c_out, rows, columns, c_in)."""
    kernels = get_xp(W).zeros((*tile, W.shape[3], *_seen(W.shape, tile), W.shape[2]), W.dtype)
    for place in _places(W.shape, tile):
        kernels[place] = W.transpose(3, 0, 1, 2)
    return kernels


def _narrow(dkernels, kernel):
    """Gradient of `_wide`: sum over the copies of every kernel."""
    return sum(dkernels[place] for place in _places(kernel, dkernels.shape[:2])).transpose(1, 2, 3, 0)


def _places(kernel, tile):
    """Yield where in `_wide` the kernel of each of a tile's outputs stands."""
    for i in range(tile[0]):
        for j in range(tile[1]):
            yield i, j, slice(None), slice(i, i + kernel[0]), slice(j, j + kernel[1])
