"""Transpose a matrix: naive, through a tile of shared memory, and through a padded one."""

from __future__ import annotations

from distlearn.cuda.kernels.variant import Launch, Variant, i32


def _launch(x, out):
    rows, cols = x.shape
    if out.shape != (cols, rows):
        raise ValueError(f"transpose: out has shape {out.shape}, expected {(cols, rows)} for x of shape {x.shape}")
    return Launch((-(-cols // 32), -(-rows // 32)), (32, 8), (x, out, i32(rows), i32(cols)))


NAIVE = Variant("transpose.cu", "transpose_naive", _launch)
TILED = Variant("transpose.cu", "transpose_tiled<0>", _launch)
PADDED = Variant("transpose.cu", "transpose_tiled<1>", _launch)

VARIANTS = [NAIVE, TILED, PADDED]
