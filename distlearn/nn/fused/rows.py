"""im2col along one axis: windows of single image rows become rows of a matrix; one product for every kernel row.

    y_i (ow, c_out)  =  sum over u of  windows of image row i + u (ow, kw c_in)  @  kernel row u (kw c_in, c_out)

The windows that im2col copies for output rows i and i + 1 have all but one image row in common. Here the windows of
every image row are copied once, and kernel row u takes those that lie u rows further down: a slice, no copy. So kw
values are written for an output instead of kh kw, and the border of zeros above and below is not even multiplied. The
price is kh - 1 additions of the output.

Where channels are few, several neighbouring outputs are computed at once (see `neighbours`). The rows of a very small
window, as in a first layer with one channel, stay together in one product, which would have too little to do otherwise.
"""

from __future__ import annotations

import numpy as np

from ...backend import get_xp, matmul
from .. import ops
from ..conv import geometry as geometry_of
from ..conv import im2col
from ..conv.geometry import Geometry, pad

FEW = 40  # Values of a window up to which its rows stay together.


def forward(x, W, geometry: Geometry):
    """Convolve images (n, h, w, c_in) with kernels (kh, kw, c_in, c_out)."""
    if _as_im2col(geometry):
        return im2col.forward(x, W, geometry)
    xp, (oh, ow), k = get_xp(x), geometry.output(*x.shape[1:3]), W.shape[-1]
    q = neighbours(W, ow, geometry)
    together = _rows_together(W, q)
    above, beside = geometry.padding[0] if together > 1 else 0, geometry.padding[1]
    x = pad(x, above, above, beside, beside)
    overlaps = _overlaps(geometry, together, x.shape[1], oh, ow // q)
    whole = any(pixels == slice(0, oh * ow // q) for _, _, pixels in overlaps[:1])  # else zeros to add to
    y = (xp.empty if whole else xp.zeros)((len(x), oh * ow // q, q * k), x.dtype)
    kernels = widen(W, q).reshape(len(W) // together, -1, q * k)
    for samples, windows in _row_windows(x, widen_windows(geometry, q), together, y[:1].nbytes):
        out = y[samples]
        for i, (u, rows, pixels) in enumerate(overlaps):
            if whole and i == 0:
                matmul(windows[:, rows], kernels[u], out=out)
            else:
                out[:, pixels] += matmul(windows[:, rows], kernels[u])
    return y.reshape(len(x), oh, ow, k), x


def backward(dy, saved, W, geometry: Geometry, *, need_dx=True):
    """Return the gradients (dx or None, dW)."""
    if _as_im2col(geometry):
        return im2col.backward(dy, saved, W, geometry, need_dx=need_dx)
    x, xp, (n, oh, ow, k) = saved, get_xp(dy), dy.shape
    q = neighbours(W, ow, geometry)
    together = _rows_together(W, q)
    outputs = xp.ascontiguousarray(dy).reshape(n, oh * ow // q, q * k)
    dW = xp.zeros_like(widen(W, q))
    kernels = dW.reshape(len(W) // together, -1, q * k)
    for samples, windows in _row_windows(x, widen_windows(geometry, q), together, outputs[:1].nbytes):
        for u, rows, pixels in _overlaps(geometry, together, x.shape[1], oh, ow // q):
            kernels[u] += matmul(windows[:, rows].swapaxes(1, 2), outputs[samples, pixels]).sum(axis=0)
    return (input_gradient(dy, W, geometry) if need_dx else None), narrow(dW, q, W.shape)


def input_gradient(dy, W, geometry: Geometry):
    """Return the gradient of the images, (n, h, w, c_in), in the faster of two ways."""
    if band_matrix_is_fast(W, dy.shape[2]):
        return band_matrix_gradient(dy, W, geometry)
    return geometry_of.input_gradient(forward, dy, W, geometry)


def _as_im2col(geometry):
    """Whether rows gain nothing: the kernel has one only, or windows with a stride share little."""
    return geometry.stride != (1, 1) or geometry.size[0] == 1


def _rows_together(W, q):
    """How many rows of the kernel go into one product: all of a small window, else one."""
    kh, kw, c_in, _ = W.shape
    return kh if kh * (kw + q - 1) * c_in <= FEW else 1


def _overlaps(geometry, together, h, oh, width):
    """For every product, (u, rows, pixels): the kernel row, whose windows it multiplies, and where the results belong.

    Output row i overlaps image row i + u - p; those of the border are left out. Both are slices of pixels, `width` to a
    row; a kernel row that overlaps every output row comes first.
    """
    if together > 1:
        return [(0, slice(0, oh * width), slice(0, oh * width))]
    found = []
    for u in range(geometry.size[0]):
        shift = u - geometry.padding[0]
        first, last = max(0, -shift), min(oh, h - shift)
        if first < last:
            pixels = slice(first * width, last * width)
            found.append((u, slice((first + shift) * width, (last + shift) * width), pixels))
    return sorted(found, key=lambda overlap: overlap[2].start - overlap[2].stop)


def _row_windows(x, geometry, together, output_bytes):
    """Yield (samples, windows (samples, h ow, rows kw c_in)), in batches small enough to stay in the cache."""
    # An output takes `output_bytes`, and its products as many again.
    size = (together, geometry.size[1])
    every = geometry_of.windows(x, size, (1, geometry.stride[1]))
    n, h, ow, r, kw, c = every.shape
    if every.strides[-2:] == (c * x.itemsize, x.itemsize):  # a row of a window is one run
        every = get_xp(x).lib.stride_tricks.as_strided(every, (n, h, ow, r, kw * c), (*every.strides[:4], x.itemsize))
    for samples in ops.batches(len(x), every[:1].nbytes + 2 * output_bytes, get_xp(x)):
        yield samples, ops.gathered(every[samples]).reshape(-1, h * ow, r * kw * c)  # copies: the windows overlap


# -- neighbours --------------------------------------------------------------------------------------------------------
# Several neighbouring outputs in one row of the product, for convolutions with few channels.
#
# A matrix product is fast when all of its sides are long. With 6 output channels a row of the result fills less than
# half of a vector register; two or four neighbouring outputs side by side fill it. They share most of their window, so
# their common window is only a little wider, and fewer values are copied:
#
#     windows (n oh ow / q, kh (kw + q - 1) c_in)  @  kernels (kh (kw + q - 1) c_in, q c_out)
#
# The wide matrix contains the kernels q times, shifted, with zeros beside them; the result needs no rearrangement.

WIDE = 32  # Values of a result's row that keep the product busy: two vector registers of 64 bytes. More gain nothing.


def neighbours(W, ow: int, geometry: Geometry) -> int:
    """How many outputs to compute in one row with kernels (kh, kw, c_in, c_out): 4, 2 or 1."""
    _, kw, _, c_out = W.shape
    if geometry.stride[1] != 1 or kw == 1:
        return 1
    for q in (4, 2):
        if ow % q == 0 and q * c_out <= WIDE:
            return q
    return 1


def widen_windows(geometry: Geometry, q: int) -> Geometry:
    """Return the geometry of the wider windows of q outputs."""
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


# -- band matrix -------------------------------------------------------------------------------------------------------
# Gradient of the input where images are narrow and channels few: whole rows of the image at a time.
#
#     dy_i (ow c_out)  @  band (ow c_out, kh w c_in)  =  contribution of output row i to its kh image rows
#
# A window of such an image is a few values long, and a product with so few is slow. Here a whole row of outputs is one
# row of the product, and the matrix contains the kernel once for every output, shifted, with zeros beside it: w / kw
# times the multiplications, at three times the speed, and no windows to copy. The results of output rows overlap, so
# they are added up, kernel row by kernel row.

# Values that fill a vector register of 64 bytes: an image row of fewer a pixel, or of two, leaves some empty.
LANES = 16


def band_matrix_is_fast(W, ow: int) -> bool:
    """Say whether `band_matrix_gradient` is the faster one: few channels, images at most three kernels wide."""
    _, kw, c_in, _ = W.shape
    narrow = 2 * c_in < LANES and ow + kw - 1 <= 3 * kw
    return narrow and kw > 1 and get_xp(W) is np


def band_matrix_gradient(dy, W, geometry: Geometry):
    """Return the gradient (n, h, w, c_in) of a convolution of stride 1 with respect to its input."""
    xp, (n, oh, ow, k), (kh, kw, c, _) = get_xp(dy), dy.shape, W.shape
    h, w = oh + kh - 1, ow + kw - 1
    band = xp.zeros((ow, k, kh, w, c), W.dtype)
    for j in range(ow):
        band[j, :, :, j : j + kw] = W.transpose(3, 0, 1, 2)
    band = band.reshape(ow * k, -1)
    dx = xp.zeros((n, h, w * c), dy.dtype)
    for samples in ops.batches(n, oh * band[0].nbytes, xp):
        parts = matmul(dy[samples].reshape(-1, ow * k), band).reshape(-1, oh, kh, w * c)
        for u in range(kh):
            dx[samples, u : u + oh] += parts[:, :, u]
    return geometry.crop(dx.reshape(n, h, w, c))
