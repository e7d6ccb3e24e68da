"""Softmax and cross-entropy in one pass: the losses and their gradient by the logits."""

from __future__ import annotations

import functools

import numpy as np

from distlearn.cuda.arguments import WORDS
from distlearn.cuda.kernels.variant import Launch, Variant, f32, i32


def softmax_xent_reference(z, label, loss, dz, scale):
    """Write loss = -log softmax(z)[label] by row and dz = (softmax(z) - onehot) * scale."""
    shifted = z - z.max(1, keepdims=True)
    total = np.exp(shifted).sum(1, keepdims=True)
    rows = np.arange(len(z))
    loss[:] = np.log(total[:, 0]) - shifted[rows, label]
    dz[...] = np.exp(shifted) / total
    dz[rows, label] -= 1
    dz *= f32(scale)


def _warps(z, label, loss, dz, scale):
    return Launch((-(-len(z) // 8),), (32, 8), (z, label, loss, dz, f32(scale), *map(i32, z.shape)))


@functools.cache
def warps(dtype: str) -> Variant:
    """Return the kernel with a warp for each row, for labels of a type such as "i8"."""
    return Variant("loss.cu", f"softmax_xent_warp<{WORDS[dtype]}>", _warps, softmax_xent_reference)


VARIANTS = [warps("i4")]


def softmax_xent(z, label, loss, dz, scale):
    """Compute losses and gradient on the arrays' device."""
    warps(label.dtype.str[1:])(z, label, loss, dz, scale)
