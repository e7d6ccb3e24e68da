"""Element by element: a x + y, and bias + ReLU in one pass."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, aligned, blocks, f32, i32


def saxpy_reference(a, x, y):
    """Y <- a x + y."""
    y += f32(a) * x


def bias_relu_reference(x, bias, y):
    """Y <- max(x + bias, 0), the bias added to every row of x."""
    np.maximum(x + bias, 0, out=y)


def _saxpy(width):
    return lambda a, x, y: Launch(blocks(x.size // width, most=1024), (256,), (f32(a), x, y, i32(x.size)))


def _bias_relu(width):
    return lambda x, bias, y: Launch(
        blocks(x.size // width), (256,), (x, bias, y, i32(x.size // bias.size), i32(bias.size))
    )


def _vectors(rng):
    return 2.5, rng.random(4096, dtype=f32), rng.random(4096, dtype=f32)


def _rows(rng):
    x = rng.normal(size=(50, 64)).astype(f32)
    return x, rng.normal(size=64).astype(f32), np.empty_like(x)


SAXPY = Variant(
    "elementwise.cu", "saxpy", _saxpy(1), saxpy_reference, _vectors,
    {("x", "read"): 4, ("y", "read"): 4, ("y", "write"): 4},
)  # fmt: skip
SAXPY4 = Variant(
    "elementwise.cu", "saxpy4", _saxpy(4), saxpy_reference, _vectors,
    {("x", "read"): 16, ("y", "read"): 16, ("y", "write"): 16},
)  # fmt: skip
BIAS_RELU = Variant(
    "elementwise.cu", "bias_relu", _bias_relu(1), bias_relu_reference, _rows,
    {("x", "read"): 4, ("bias", "read"): 4, ("y", "write"): 4},
)  # fmt: skip
BIAS_RELU4 = Variant(
    "elementwise.cu", "bias_relu4", _bias_relu(4), bias_relu_reference, _rows,
    {("x", "read"): 16, ("bias", "read"): 8, ("y", "write"): 16},
)  # fmt: skip

VARIANTS = [SAXPY, SAXPY4, BIAS_RELU, BIAS_RELU4]


def saxpy(a, x, y):
    """Compute y <- a x + y in one pass over memory, where the arrays are."""
    (SAXPY4 if x.size % 4 == 0 and aligned(x, y) else SAXPY)(a, x, y)


def bias_relu(x, bias, y):
    """Compute y = max(x + bias, 0) in one pass over memory, where the arrays are."""
    (BIAS_RELU4 if bias.size % 4 == 0 and aligned(x, bias, y) else BIAS_RELU)(x, bias, y)
