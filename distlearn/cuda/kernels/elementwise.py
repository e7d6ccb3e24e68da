"""Element by element: a x + y; bias + ReLU in one pass, and one pass back."""

from __future__ import annotations

from distlearn.backend import get_xp
from distlearn.cuda.kernels.variant import Launch, Variant, aligned, f32, i32, per_element


def _saxpy(width):
    return lambda a, x, y: per_element(x.size // width, (f32(a), x, y, i32(x.size)), most=1024)


def _bias_relu(width):
    return lambda x, bias, y: per_element(x.size // width, (x, bias, y, i32(x.size // bias.size), i32(bias.size)))


SAXPY = Variant("elementwise.cu", "saxpy", _saxpy(1))
SAXPY4 = Variant("elementwise.cu", "saxpy4", _saxpy(4))
BIAS_RELU = Variant("elementwise.cu", "bias_relu", _bias_relu(1))
BIAS_RELU4 = Variant("elementwise.cu", "bias_relu4", _bias_relu(4))


def _bias_grad(y, dy, db, add):
    cols, blocks_of_rows = dy.shape[-1], db.size // dy.shape[-1]
    rows = dy.size // cols
    args = y, dy, db, i32(-(-rows // blocks_of_rows)), i32(cols), i32(add), i32(rows)
    return Launch((-(-cols // 32), blocks_of_rows), (32, 8), args)


BIAS_GRAD = Variant("elementwise.cu", "bias_grad<true>", _bias_grad)
COLUMN_SUMS = Variant("elementwise.cu", "bias_grad<false>", _bias_grad)

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
    kernel, y = (COLUMN_SUMS, dy) if y is None else (BIAS_GRAD, y)
    if rows > TALL:  # first the sums of parts, each by blocks of its own
        parts = get_xp(dy).empty((min(-(-rows // TALL), TALL), cols), dy.dtype)
        kernel(y, dy, parts, 0)
        kernel, y, dy = COLUMN_SUMS, parts, parts
    kernel(y, dy, db, add)
