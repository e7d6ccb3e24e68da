"""Softmax and cross-entropy in one pass: the losses and their gradient by the logits."""

from __future__ import annotations

import functools

from distlearn.cuda.arguments import WORDS
from distlearn.cuda.kernels.variant import Launch, Variant, f32, i32


def _warps(z, label, loss, dz, scale):
    return Launch((-(-len(z) // 8),), (32, 8), (z, label, loss, dz, f32(scale), *map(i32, z.shape)))


@functools.cache
def warps(dtype: str) -> Variant:
    """Return the kernel with a warp for each row, for labels of a type such as "i8"."""
    return Variant("loss.cu", f"softmax_xent_warp<{WORDS[dtype]}>", _warps)


VARIANTS = [warps("i4")]


def softmax_xent(z, label, loss, dz, scale):
    """Compute losses and gradient on the arrays' device."""
    warps(label.dtype.str[1:])(z, label, loss, dz, scale)
