"""Convolution from its definition; images.py has im2col, which layers launch."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, blocks, f32, i32


def output_size(size: int, k: int, stride: int, padding: int) -> int:
    """Return the number of positions of a filter of size `k` along a side of `size`."""
    return (size + 2 * padding - k) // stride + 1


def conv_reference(x, w, y, stride, padding):
    """Write the convolution of images x (N, C, H, W) with filters w (F, C, k, k) into y."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    y[...] = np.einsum("ncyxij,fcij->nfyx", windows, w, optimize=True)


def _conv(x, w, y, stride, padding):
    (n, c, *sides), (f, channels, k, _) = x.shape, w.shape
    sides += [output_size(side, k, stride, padding) for side in sides]
    if channels != c or y.shape != (n, f, *sides[2:]):
        raise ValueError(f"conv: shapes {x.shape} * {w.shape} -> {y.shape} do not fit")
    numbers = n, c, *sides[:2], f, k, stride, padding, *sides[2:]
    return Launch(blocks(y.size), (256,), (x, w, y, *map(i32, numbers)))


def _conv_example(rng):
    w = rng.normal(size=(5, 3, 3, 3)).astype(f32)
    return rng.normal(size=(4, 3, 32, 32)).astype(f32), w, np.zeros((4, 5, 32, 32), f32), 1, 1


CONV_NAIVE = Variant(
    "convolution.cu", "conv_naive", _conv, conv_reference, _conv_example,
    {("x", "read"): 4, ("w", "read"): 1, ("y", "write"): 4}, atol=1e-5,
)  # fmt: skip

VARIANTS = [CONV_NAIVE]
