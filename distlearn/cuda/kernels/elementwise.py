"""Element by element: a x + y; bias + ReLU in one pass, and one pass back."""

from __future__ import annotations

import functools

import numpy as np

from distlearn.backend import get_xp
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


SAXPY = Variant("elementwise.cu", "saxpy", _saxpy(1), saxpy_reference)
SAXPY4 = Variant("elementwise.cu", "saxpy4", _saxpy(4), saxpy_reference)
BIAS_RELU = Variant("elementwise.cu", "bias_relu", _bias_relu(1), bias_relu_reference)
BIAS_RELU4 = Variant("elementwise.cu", "bias_relu4", _bias_relu(4), bias_relu_reference)


def bias_grad_reference(y, dy, db, add, masked=True):
    """Set dy to 0 where y is not above 0, and db (+)= the sums of dy's columns."""
    if masked:
        dy *= y > 0
    db[...] = dy.sum(axis=0) + add * db


def _bias_grad(y, dy, db, add):
    cols, blocks_of_rows = dy.shape[-1], db.size // dy.shape[-1]
    rows = dy.size // cols
    args = y, dy, db, i32(-(-rows // blocks_of_rows)), i32(cols), i32(add), i32(rows)
    return Launch((-(-cols // 32), blocks_of_rows), (32, 8), args)


BIAS_GRAD = Variant("elementwise.cu", "bias_grad<true>", _bias_grad, bias_grad_reference)
COLUMN_SUMS = Variant(
    "elementwise.cu", "bias_grad<false>", _bias_grad, functools.partial(bias_grad_reference, masked=False)
)

VARIANTS = [SAXPY, SAXPY4, BIAS_RELU, BIAS_RELU4, BIAS_GRAD, COLUMN_SUMS]


def saxpy(a, x, y):
    """Compute y <- a x + y in one pass over memory, on the arrays' device."""
    (SAXPY4 if x.size % 4 == 0 and aligned(x, y) else SAXPY)(a, x, y)


def bias_relu(x, bias, y):
    """Compute y = max(x + bias, 0) in one pass over memory, on the arrays' device."""
    (BIAS_RELU4 if bias.size % 4 == 0 and aligned(x, bias, y) else BIAS_RELU)(x, bias, y)


TALL = 256  # rows that one block sums


def bias_grad(y, dy, db, add):
    """Go back through a ReLU whose output was y (or None) and the bias before it: dy in place, db (+)= its sums."""
    rows, cols = dy.size // db.size, db.size
    if rows > TALL:  # first the sums of parts, each by blocks of its own
        parts = get_xp(dy).empty((min(-(-rows // TALL), TALL), cols), dy.dtype)
        (COLUMN_SUMS if y is None else BIAS_GRAD)(dy if y is None else y, dy, parts, 0)
        y, dy = None, parts
    (COLUMN_SUMS if y is None else BIAS_GRAD)(dy if y is None else y, dy, db, add)
