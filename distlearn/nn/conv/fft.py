"""Convolution as a product of spectra, whose cost does not depend on the kernel's size.

    y = F^-1( F(x) * conj(F(W)) ), summed over input channels frequency by frequency

work: transforms h w log2(h w) (n c_in + c_in c_out + n c_out), products h w n c_in c_out (complex)
depth: 2 ceil(log2(h w)) + ceil(log2 c_in)

The transform is circular, so images must be padded to at least their own size; what wraps around falls outside the
output. With a stride, all outputs are computed and most discarded.
"""

from __future__ import annotations

from ...backend import get_xp
from .geometry import Geometry


def fast_length(n: int) -> int:
    """Smallest length of at least `n` whose only prime factors are 2, 3 and 5."""
    while True:
        rest = n
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return n
        n += 1


def forward(x, W, geometry: Geometry):
    """Convolve images (n, h, w, c_in) with kernels (kh, kw, c_in, c_out)."""
    x = geometry.pad(x)
    xp, size = get_xp(x), tuple(map(fast_length, x.shape[1:3]))
    images = _of_images(x, size)
    kernels = xp.fft.rfft2(W, size, axes=(0, 1))
    y = _to_images(images @ kernels.conj(), size)
    oh, ow = geometry._replace(padding=(0, 0)).output(*x.shape[1:3])
    return xp.ascontiguousarray(y[:, :oh, :ow]), (images, kernels, x.shape, size)


def backward(dy, saved, W, geometry: Geometry, *, need_dx=True):
    """Return the gradients (dx or None, dW)."""
    images, kernels, (_, h, w, _), size = saved
    gradients = _of_images(dy, size)
    spectra = images.swapaxes(-1, -2) @ gradients.conj()
    dW = get_xp(dy).fft.irfft2(spectra, size, axes=(0, 1))[: len(W), : W.shape[1]]
    if not need_dx:
        return None, dW
    dx = _to_images(gradients @ kernels.swapaxes(-1, -2), size)[:, :h, :w]
    return geometry.crop(dx), dW


def _of_images(x, size):
    """Transform images (n, h, w, c) to spectra (fh, fw, n, c): a matrix per frequency."""
    return get_xp(x).fft.rfft2(x, size, axes=(1, 2)).transpose(1, 2, 0, 3)


def _to_images(spectra, size):
    """Transform spectra (fh, fw, n, c) back to images (n, h, w, c)."""
    return get_xp(spectra).fft.irfft2(spectra, size, axes=(0, 1)).transpose(2, 0, 1, 3)
