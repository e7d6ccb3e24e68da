"""Max pooling, forward and backward."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, blocks, f32, i32


def _windows(x, k, stride):
    view = np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))[:, :, ::stride, ::stride]
    return view.reshape(*view.shape[:4], k * k)


def max_pool_reference(x, y, arg, k, stride):
    """Write each window's largest element and its index in the window (ky k + kx)."""
    windows = _windows(x, k, stride)
    arg[...] = windows.argmax(-1)
    y[...] = windows.max(-1)


def max_pool_backward_reference(dy, arg, dx, k, stride):
    """Add each dy to the element of dx that won its window."""
    dx[...] = 0
    n, c, oh, ow = np.indices(dy.shape)
    np.add.at(dx, (n, c, oh * stride + arg // k, ow * stride + arg % k), dy)


def _sizes(large, small, k, stride):
    n, c, h, w = large.shape
    wanted = (n, c, (h - k) // stride + 1, (w - k) // stride + 1)
    if small.shape != wanted or k * k > 256:
        raise ValueError(
            f"max_pool: images {large.shape}, window {k}, stride {stride} give {wanted}, not {small.shape}"
        )
    return map(i32, (n * c, h, w, k, stride, *wanted[2:]))


def _forward(x, y, arg, k, stride):
    return Launch(blocks(y.size), (256,), (x, y, arg, *_sizes(x, y, k, stride)))


def _backward(dy, arg, dx, k, stride):
    return Launch(blocks(dx.size), (256,), (dy, arg, dx, *_sizes(dx, dy, k, stride)))


def _example(rng, k=3, stride=2):
    x = rng.integers(0, 50, (2, 3, 33, 33)).astype(f32)  # whole numbers, so that there are ties
    return x, np.zeros((2, 3, 16, 16), f32), np.zeros((2, 3, 16, 16), np.uint8), k, stride


def _backward_example(rng):
    x, y, arg, k, stride = _example(rng)
    max_pool_reference(x, y, arg, k, stride)
    return rng.normal(size=y.shape).astype(f32), arg, np.zeros_like(x), k, stride


FORWARD = Variant(
    "pool.cu", "max_pool", _forward, max_pool_reference, _example, {("y", "write"): 4, ("arg", "write"): 1}
)
BACKWARD = Variant(
    "pool.cu", "max_pool_backward", _backward, max_pool_backward_reference, _backward_example, {("dx", "write"): 4}
)

VARIANTS = [FORWARD, BACKWARD]
