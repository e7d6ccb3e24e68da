"""Convolution from its definition; images.py has im2col, which layers launch."""

from __future__ import annotations

from distlearn.cuda.kernels.variant import Variant, i32, per_element


def _conv(x, w, y, stride, padding):
    (n, c, *sides), (f, channels, k, _) = x.shape, w.shape
    sides += [(side + 2 * padding - k) // stride + 1 for side in sides]
    if channels != c or y.shape != (n, f, *sides[2:]):
        raise ValueError(f"conv: shapes {x.shape} * {w.shape} -> {y.shape} do not fit")
    numbers = n, c, *sides[:2], f, k, stride, padding, *sides[2:]
    return per_element(y.size, (x, w, y, *map(i32, numbers)))


CONV_NAIVE = Variant("convolution.cu", "conv_naive", _conv)

VARIANTS = [CONV_NAIVE]
