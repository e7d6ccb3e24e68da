"""The sum of an array in parts: 256 elements per block, from bank conflicts to shuffles."""

from __future__ import annotations

from distlearn.cuda.kernels.variant import Launch, Variant, i32


def _launch(x, out):
    if out.size != -(-x.size // 256):
        raise ValueError(f"reduce: out has {out.size} elements, expected {-(-x.size // 256)} for {x.size} of x")
    return Launch((out.size,), (256,), (x, out, i32(x.size)))


INTERLEAVED = Variant("reduce.cu", "reduce_interleaved", _launch)
SEQUENTIAL = Variant("reduce.cu", "reduce_sequential", _launch)
SHUFFLE = Variant("reduce.cu", "reduce_shuffle", _launch)

VARIANTS = [INTERLEAVED, SEQUENTIAL, SHUFFLE]
