"""Several neighbouring outputs in one row of the product, for convolutions with few channels.

A matrix product is fast when all of its sides are long. With 6 output channels a row of the result fills less than
half of a vector register; two or four neighbouring outputs side by side fill it. They share most of their window, so
their joint window is only a little wider, and fewer values are copied:

    windows (n oh ow / q, kh (kw + q - 1) c_in)  @  kernels (kh (kw + q - 1) c_in, q c_out)

The wide matrix contains the kernels q times, shifted, with zeros beside them; the result needs no rearrangement.
"""

from __future__ import annotations

from ...backend import get_xp
from ..conv.geometry import Geometry

WIDE = 32
"""Values of a result's row that keep the product busy: two vector registers of 64 bytes. More gain nothing."""


def neighbours(W, ow: int, geometry: Geometry) -> int:
    """How many outputs to compute in one row with kernels (kh, kw, c_in, c_out): 4, 2 or 1."""
    _, kw, _, c_out = W.shape
    if geometry.stride[1] != 1 or kw == 1:
        return 1
    for q in (4, 2):
        if ow % q == 0 and q * c_out <= WIDE:
            return q
    return 1


def joint(geometry: Geometry, q: int) -> Geometry:
    """Return the geometry of the joint windows of q outputs."""
    (kh, kw), (sy, sx) = geometry.size, geometry.stride
    return geometry._replace(size=(kh, kw + q - 1), stride=(sy, sx * q))


def widen(W, q: int):
    """Kernels (kh, kw, c, k) for q neighbours: (kh, kw + q - 1, c, q k)."""
    if q == 1:
        return W
    kh, kw, c, k = W.shape
    wide = get_xp(W).zeros((kh, kw + q - 1, c, q, k), W.dtype)
    for j in range(q):
        wide[:, j : j + kw, :, j] = W
    return wide.reshape(kh, kw + q - 1, c, q * k)


def narrow(dW, q: int, shape):
    """Gradient of `widen`: sum over the q copies of every kernel."""
    kh, kw, c, k = shape
    wide = dW.reshape(kh, kw + q - 1, c, q, k)
    sums = wide[:, :kw, :, 0].copy()
    for j in range(1, q):
        sums += wide[:, j : j + kw, :, j]
    return sums
