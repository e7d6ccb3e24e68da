r"""Convolution with 3 x 3 kernels in fewer multiplications, by computing m x m outputs at once.

.. math:: Y = A^\top \left[ (G g G^\top) \odot (B^\top d B) \right] A

d is a tile of alpha x alpha pixels with alpha = m + r - 1, g a kernel of r x r = 3 x 3, Y a tile of m x m outputs. A
tile takes alpha^2 multiplications instead of m^2 r^2: 16 instead of 36 for F(2 x 2, 3 x 3), 36 instead of 144 for F(4
x 4, 3 x 3). Summed over channels, the products are alpha^2 matrix products of (tiles, c_in) with (c_in, c_out).

The price is the transforms, memory, and rounding errors: the constants of the larger F amplify errors some tenfold.
`Transforms.from_points` makes them for other tiles and from other interpolation points, on which the errors depend.

References
----------
A. Lavin, S. Gray (2016), Fast algorithms for convolutional neural networks, CVPR, sections 4.1 to 4.3.
S. Winograd (1980), Arithmetic complexity of computations, SIAM.
B. Barabasz, A. Anderson, K. M. Soodhalter, D. Gregg (2020), Error analysis and improving the accuracy of Winograd
convolution for deep neural networks, ACM Transactions on Mathematical Software.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from ...backend import get_xp, matmul
from .. import ops
from .geometry import Geometry, input_gradient, pad, windows

R = 3  # Rows and columns of the kernels.

POINTS = 0, 1, -1, 2, -2  # Of interpolation: the first m + 1 of them, and infinity.


class Transforms(NamedTuple):
    """The three constant matrices of F(m x m, 3 x 3)."""

    BT: np.ndarray  # (alpha, alpha): of a tile of pixels.
    G: np.ndarray  # (alpha, 3): of a kernel.
    AT: np.ndarray  # (m, alpha): of a tile of products, to outputs.

    @classmethod
    def make(cls, m: int, like) -> Transforms:
        key = m, like.dtype, id(get_xp(like)), getattr(like.device, "id", None)
        if key not in _made:
            points = POINTS[: m + 1]
            made = cls.from_points(points, m)
            # rows of BT are made whole, which rounds less, and those of G divided; signs are those of Lavin and Gray
            whole = [abs(math.prod(a - b for b in points if b != a)) for a in points] + [(-1) ** (m // 2)]
            whole = np.array(whole)[:, None]
            BT, AT = np.rint(made.BT * whole) + 0, made.AT * np.sign(whole).T + 0  # without negative zeros
            _made[key] = cls(BT, made.G / abs(whole), AT).cast(like)
        return _made[key]

    @classmethod
    def from_points(cls, points, m: int) -> Transforms:
        """Derive the matrices of F(m x m, 3 x 3) by the Toom-Cook method, in float64."""
        # points: The m + 1 finite interpolation points, all different; infinity is the last one.
        # With V_k the values of 1, a, ..., a^(k - 1) at every point a (at infinity the last of them), the product of
        # two polynomials is V_alpha^-1 ((V_3 g) * (V_m h)); transposed, that is the correlation: BT = V_alpha^-T, G =
        # V_3, AT = V_m^T. `make` scales their rows.
        points = np.array(points, np.float64)
        if len(set(points.tolist())) != m + R - 2 or not np.isfinite(points).all():
            raise ValueError(f"from_points: points are {points.tolist()}, expected {m + R - 2} different finite ones")

        def values(k):
            return np.concatenate([points[:, None] ** np.arange(k), np.eye(k)[-1:]])

        return cls(np.linalg.inv(values(m + R - 1)).T, values(R), values(m).T)

    def cast(self, like) -> Transforms:
        return Transforms(*(get_xp(like).asarray(matrix, like.dtype) for matrix in self))


# Cache of `Transforms.make`: copying three small matrices to a GPU takes longer than using them.
_made: dict[tuple, Transforms] = {}


def algorithm(m: int):
    """Return the functions (forward, backward) of F(m x m, 3 x 3), for m = 2 or 4."""
    return functools.partial(forward, m=m), functools.partial(backward, m=m)


def forward(x, W, geometry: Geometry, *, m: int = 2, transforms: Transforms | None = None):
    """Convolve images (n, h, w, c_in) with kernels (3, 3, c_in, c_out), stride 1, by other transforms if given."""
    xp, t = get_xp(x), Transforms.make(m, x) if transforms is None else transforms.cast(x)
    m = len(t.AT)
    oh, ow = geometry.output(*x.shape[1:3])
    x, th, tw = geometry.pad(x), -(-oh // m), -(-ow // m)  # rows and columns of tiles, which cover the output
    x = pad(x, 0, th * m + R - 1 - x.shape[1], 0, tw * m + R - 1 - x.shape[2])
    kernels = _two_sided(t.G, W).reshape(-1, *W.shape[2:])
    y = xp.empty((len(x), th, m, tw, m, W.shape[-1]), x.dtype)
    for block, tiles in _tile_blocks(x, th, m, W.shape[-1]):
        products = matmul(_pixels(tiles, t), kernels).reshape(*t.BT.shape, -1, W.shape[-1])
        out = y[block]
        out[...] = _two_sided(t.AT, products).reshape(m, m, len(out), -1, tw, W.shape[-1]).transpose(2, 3, 0, 4, 1, 5)
    y = y.reshape(len(x), th * m, tw * m, W.shape[-1])[:, :oh, :ow]
    return xp.ascontiguousarray(y), x


def backward(dy, saved, W, geometry: Geometry, *, m: int = 2, need_dx=True):
    r"""Return the gradients (dx or None, dW): that of the kernels is the transposed chain.

    .. math:: dW = G^\top \left[ (B^\top d B) \odot (A \, dY A^\top) \right] G
    """
    x, t = saved, Transforms.make(m, dy)
    (_, oh, ow, k), c = dy.shape, x.shape[-1]
    th, tw = -(-oh // m), -(-ow // m)
    padded = pad(dy, 0, th * m - oh, 0, tw * m - ow)
    tiles_of_dy = padded.reshape(len(dy), th, m, tw, m, k)
    kernels = get_xp(dy).zeros((len(t.BT) ** 2, c, k), dy.dtype)
    for block, tiles in _tile_blocks(x, th, m, k):
        part = tiles_of_dy[block].transpose(2, 4, 0, 1, 3, 5).reshape(m, m, -1, k)
        products = _two_sided(t.AT.T, part).reshape(len(t.BT) ** 2, -1, k)
        kernels = kernels + matmul(_pixels(tiles, t).swapaxes(-1, -2), products)
    dW = _two_sided(t.G.T, kernels.reshape(*t.BT.shape, c, k))
    if not need_dx:
        return None, dW
    return input_gradient(functools.partial(forward, m=m), dy, W, geometry), dW


def _tile_blocks(x, th, m, c_out):
    """Yield (block, tiles): some images and rows of tiles, and their tiles (n, rows, tw, alpha, alpha, c)."""
    alpha = m + R - 1
    tiles = windows(x, (alpha, alpha), (m, m))
    row_bytes = tiles.shape[2] * alpha**2 * max(x.shape[-1], c_out) * x.dtype.itemsize
    for block in ops.blocks(len(x), th, row_bytes // 4, get_xp(x)):
        yield block, tiles[block]


def _pixels(tiles, t):
    """Transform tiles (n, th, tw, alpha, alpha, c) to (alpha^2, tiles, c): a matrix per point of the tile."""
    alpha, c = tiles.shape[-2:]
    tiles = get_xp(tiles).ascontiguousarray(tiles.transpose(3, 4, 0, 1, 2, 5)).reshape(alpha, alpha, -1, c)
    return _two_sided(t.BT, tiles).reshape(alpha * alpha, -1, c)


def _two_sided(matrix, x):
    """Multiply the first two axes of (a, b, p, q) by a matrix (r, a = b) from both sides: (r, r, p, q)."""
    a, b, p, q = x.shape
    left = matmul(matrix, x.reshape(a, -1)).reshape(-1, b, p * q)
    return matmul(matrix, left).reshape(len(matrix), len(matrix), p, q)
