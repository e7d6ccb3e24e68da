"""im2col along one axis: windows of single image rows become rows of a matrix; one product for every kernel row.

    y (oh ow, c_out)  =  sum over u of  windows of image rows u, u + 1, ... (oh ow, kw c_in)  @  kernel row u

The windows that im2col copies for output rows i and i + 1 have all but one image row in common. Here the windows of
every image row are copied once, and kernel row u takes those that lie u rows further down: a slice, no copy. So kw
values are written for an output instead of kh kw. The price is kh - 1 additions of the output.

Where channels are few, several neighbouring outputs are computed at once (see `neighbours`).
"""

from __future__ import annotations

from ...backend import get_xp
from .. import ops
from . import im2col
from .geometry import Geometry, input_gradient
from .neighbours import joint, narrow, neighbours, widen


def forward(x, W, geometry: Geometry):
    """Convolve images (n, h, w, c_in) with kernels (kh, kw, c_in, c_out)."""
    if _as_im2col(geometry):
        return im2col.forward(x, W, geometry)
    x, k = geometry.pad(x), W.shape[-1]
    xp, (oh, ow), q = get_xp(x), *_parts(x, W, geometry)
    y = xp.empty((len(x), oh * ow // q, q * k), x.dtype)
    first, *others = widen(W, q).reshape(len(W), -1, q * k)
    for samples, windows in _row_windows(x, joint(geometry, q), *y.shape[1:]):
        out, more = xp.matmul(next(windows), first, out=y[samples]), None
        for part, kernels in zip(windows, others, strict=True):
            more = xp.matmul(part, kernels, out=more)
            out += more
    return y.reshape(len(x), oh, ow, k), x


def backward(dy, saved, W, geometry: Geometry, *, need_dx=True):
    """Return the gradients (dx or None, dW)."""
    if _as_im2col(geometry):
        return im2col.backward(dy, saved, W, geometry, need_dx=need_dx)
    x, xp = saved, get_xp(dy)
    (oh, ow), q = _parts(x, W, geometry)
    rows = xp.ascontiguousarray(dy).reshape(len(dy), oh * ow // q, -1)
    dW = xp.zeros_like(widen(W, q))
    for samples, windows in _row_windows(x, joint(geometry, q), *rows.shape[1:]):
        for part, kernels in zip(windows, dW.reshape(len(W), -1, rows.shape[-1]), strict=True):
            kernels += (part.swapaxes(1, 2) @ rows[samples]).sum(axis=0)
    return (input_gradient(forward, dy, W, geometry) if need_dx else None), narrow(dW, q, W.shape)


def _as_im2col(geometry):
    """Whether rows gain nothing: the kernel has one only, or windows with a stride share little."""
    return geometry.stride != (1, 1) or geometry.size[0] == 1


def _parts(x, W, geometry):
    """Rows and columns of the output for images that are padded already, and how many columns go together."""
    oh, ow = geometry._replace(padding=(0, 0)).output(*x.shape[1:3])
    return (oh, ow), neighbours(W, ow, geometry)


def _row_windows(x, geometry, pixels, k):
    """Yield (samples, windows) for outputs (pixels, k); windows yields (samples, pixels, kw c_in) for every kernel row.

    Windows and outputs of the samples stay in the cache.
    """
    every = ops.windows(x, (1, geometry.size[1]), (1, geometry.stride[1]), (1, geometry.dilation[1]))
    (_, h, ow, *_), width = every.shape, geometry.size[1] * x.shape[-1]
    starts = [u * geometry.dilation[0] * ow for u in range(geometry.size[0])]
    for samples in ops.batches(len(x), (h * ow * width + 2 * pixels * k) * x.dtype.itemsize, get_xp(x)):
        matrix = every[samples].reshape(-1, h * ow, width)  # copies: the windows overlap
        yield samples, (matrix[:, start : start + pixels] for start in starts)
