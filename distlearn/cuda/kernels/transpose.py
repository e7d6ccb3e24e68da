"""Transpose a matrix: naive, through a tile of shared memory, and through a padded one."""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, f32, i32


def transpose_reference(x, out):
    """Write x transposed into out."""
    out[...] = x.T


def _launch(x, out):
    rows, cols = x.shape
    if out.shape != (cols, rows):
        raise ValueError(f"transpose: out has shape {out.shape}, expected {(cols, rows)} for x of shape {x.shape}")
    return Launch((-(-cols // 32), -(-rows // 32)), (32, 8), (x, out, i32(rows), i32(cols)))


def _example(rng):
    return rng.random((96, 128), dtype=f32), np.zeros((128, 96), f32)


def _variant(kernel, memory):
    return Variant("transpose.cu", kernel, _launch, transpose_reference, _example, {("in", "read"): 4, **memory})


NAIVE = _variant("transpose_naive", {("out", "write"): 32})
TILED = _variant("transpose_tiled<0>", {("out", "write"): 4, ("tile", "write"): 1, ("tile", "read"): 32})
PADDED = _variant("transpose_tiled<1>", {("out", "write"): 4, ("tile", "write"): 1, ("tile", "read"): 1})

VARIANTS = [NAIVE, TILED, PADDED]
