"""Convolution: im2col and its transpose, direct, and direct with the block's part of the image in shared memory."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, blocks, f32, i32


def output_size(size: int, k: int, stride: int, padding: int) -> int:
    """Return the number of positions of a filter of size `k` along a side of `size`."""
    return (size + 2 * padding - k) // stride + 1


def _windows(x, k, stride, padding):
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    return np.lib.stride_tricks.sliding_window_view(padded, (k, k), (2, 3))[:, :, ::stride, ::stride]


def im2col_reference(x, col, k, stride, padding):
    """Write the columns (C k k, N OH OW) of images x (N, C, H, W)."""
    col[...] = _windows(x, k, stride, padding).transpose(1, 4, 5, 0, 2, 3).reshape(col.shape)


def col2im_reference(col, x, k, stride, padding):
    """Add columns back up into images: the transpose of `im2col`."""
    n, c, h, w = x.shape
    oh, ow = output_size(h, k, stride, padding), output_size(w, k, stride, padding)
    padded = np.zeros((n, c, h + 2 * padding, w + 2 * padding), x.dtype)
    parts = col.reshape(c, k, k, n, oh, ow)
    for ky in range(k):
        for kx in range(k):
            rows, columns = slice(ky, ky + stride * oh, stride), slice(kx, kx + stride * ow, stride)
            padded[:, :, rows, columns] += parts[:, ky, kx].swapaxes(0, 1)
    x[...] = padded[:, :, padding : padding + h, padding : padding + w]


def conv_reference(x, w, y, stride, padding):
    """Write the convolution of images x (N, C, H, W) with filters w (F, C, k, k) into y."""
    y[...] = np.einsum("ncyxij,fcij->nfyx", _windows(x, w.shape[2], stride, padding), w, optimize=True)


def _numbers(x, k, stride, padding):
    n, c, h, w = x.shape
    return n, c, h, w, output_size(h, k, stride, padding), output_size(w, k, stride, padding)


def _columns(images, columns, total):
    def launch(first, second, k, stride, padding):
        x = (first, second)[images]
        n, c, h, w, oh, ow = _numbers(x, k, stride, padding)
        wanted = (c * k * k, n * oh * ow)
        if (first, second)[columns].shape != wanted:
            raise ValueError(f"columns have shape {(first, second)[columns].shape}, expected {wanted} for x {x.shape}")
        size = (first, second)[total].size
        return Launch(blocks(size), (256,), (first, second, *map(i32, (n, c, h, w, k, stride, padding, oh, ow))))

    return launch


def _conv(shared):
    def launch(x, w, y, stride, padding):
        f, c, k, _ = w.shape
        n, channels, h, width, oh, ow = _numbers(x, k, stride, padding)
        if channels != c or y.shape != (n, f, oh, ow):
            raise ValueError(f"conv: shapes {x.shape} * {w.shape} -> {y.shape} do not fit")
        args = (x, w, y, *map(i32, (n, c, h, width, f, k, stride, padding, oh, ow)))
        if not shared:
            return Launch(blocks(y.size), (256,), args)
        nbytes = 4 * (7 * stride + k) * (31 * stride + k)
        return Launch((-(-ow // 32), -(-oh // 8), n * f), (32, 8), args, nbytes)

    return launch


def _images(rng):
    return rng.normal(size=(4, 3, 32, 32)).astype(f32)


def _im2col_example(rng):
    return _images(rng), np.zeros((27, 4 * 32 * 32), f32), 3, 1, 1


def _col2im_example(rng):
    return rng.normal(size=(27, 4 * 16 * 16)).astype(f32), np.zeros((4, 3, 32, 32), f32), 3, 2, 1


def _conv_example(rng):
    w = rng.normal(size=(5, 3, 3, 3)).astype(f32)
    return _images(rng), w, np.zeros((4, 5, 32, 32), f32), 1, 1


# Reading a row of 32 floats shifted by one element touches a fifth sector, except where the border cuts it off.
IM2COL = Variant(
    "convolution.cu", "im2col", _columns(0, 1, 1), im2col_reference, _im2col_example,
    {("x", "read"): 4, ("col", "write"): 4},
)  # fmt: skip
COL2IM = Variant(
    "convolution.cu", "col2im", _columns(1, 0, 1), col2im_reference, _col2im_example, {("x", "write"): 4}, atol=1e-5
)
CONV_NAIVE = Variant(
    "convolution.cu", "conv_naive", _conv(False), conv_reference, _conv_example,
    {("x", "read"): 4, ("w", "read"): 1, ("y", "write"): 4}, atol=1e-5,
)  # fmt: skip
CONV_SHARED = Variant(
    "convolution.cu", "conv_shared", _conv(True), conv_reference, _conv_example,
    {("x", "read"): 2.5, ("w", "read"): 1, ("y", "write"): 4, ("dynamic shared memory", "read"): 1,
     ("dynamic shared memory", "write"): 1}, atol=1e-5,
)  # fmt: skip

VARIANTS = [IM2COL, COL2IM, CONV_NAIVE, CONV_SHARED]
