"""The sum of an array in parts: 256 elements per block, from bank conflicts to shuffles."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, f32, i32


def reduce_reference(x, out):
    """Write the sums of pieces of 256 elements into out."""
    padded = np.zeros((out.size, 256), x.dtype)
    padded.reshape(-1)[: x.size] = x
    out[:] = padded.sum(axis=1)


def _launch(x, out):
    if out.size != -(-x.size // 256):
        raise ValueError(f"reduce: out has {out.size} elements, expected {-(-x.size // 256)} for {x.size} of x")
    return Launch((out.size,), (256,), (x, out, i32(x.size)))


def _example(rng):
    return rng.random(2048, dtype=f32), np.zeros(8, f32)


def _variant(kernel, memory):
    return Variant("reduce.cu", kernel, _launch, reduce_reference, _example, {("x", "read"): 4, **memory})


INTERLEAVED = _variant("reduce_interleaved", {("s", "read"): 8, ("s", "write"): 8})
SEQUENTIAL = _variant("reduce_sequential", {("s", "read"): 1, ("s", "write"): 1})
SHUFFLE = _variant("reduce_shuffle", {("part", "read"): 1, ("part", "write"): 1})

VARIANTS = [INTERLEAVED, SEQUENTIAL, SHUFFLE]
