"""Convolution from its definition; images.py has im2col, which layers launch."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, blocks, i32


def conv_reference(x, w, y, stride, padding):
    """Write the convolution of images x (N, C, H, W) with filters w (F, C, k, k) into y."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    y[...] = np.einsum("ncyxij,fcij->nfyx", windows, w, optimize=True)


def _conv(x, w, y, stride, padding):
    (n, c, *sides), (f, channels, k, _) = x.shape, w.shape
    sides += [(side + 2 * padding - k) // stride + 1 for side in sides]
    if channels != c or y.shape != (n, f, *sides[2:]):
        raise ValueError(f"conv: shapes {x.shape} * {w.shape} -> {y.shape} do not fit")
    numbers = n, c, *sides[:2], f, k, stride, padding, *sides[2:]
    return Launch(blocks(y.size), (256,), (x, w, y, *map(i32, numbers)))


CONV_NAIVE = Variant("convolution.cu", "conv_naive", _conv, conv_reference)

VARIANTS = [CONV_NAIVE]
