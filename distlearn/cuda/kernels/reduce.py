"""The sum of an array in parts: 256 elements per block, from bank conflicts to shuffles."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, i32


def reduce_reference(x, out):
    """Write the sums of pieces of 256 elements into out."""
    padded = np.zeros((out.size, 256), x.dtype)
    padded.reshape(-1)[: x.size] = x
    out[:] = padded.sum(axis=1)


def _launch(x, out):
    if out.size != -(-x.size // 256):
        raise ValueError(f"reduce: out has {out.size} elements, expected {-(-x.size // 256)} for {x.size} of x")
    return Launch((out.size,), (256,), (x, out, i32(x.size)))


INTERLEAVED = Variant("reduce.cu", "reduce_interleaved", _launch, reduce_reference)
SEQUENTIAL = Variant("reduce.cu", "reduce_sequential", _launch, reduce_reference)
SHUFFLE = Variant("reduce.cu", "reduce_shuffle", _launch, reduce_reference)

VARIANTS = [INTERLEAVED, SEQUENTIAL, SHUFFLE]
