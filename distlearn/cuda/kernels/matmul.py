"""Matrix product: naive, tiled in shared memory, and register-blocked (4 x 4 elements a thread, and 8 x 8).

The time of `WIDE` on a card has not been measured.
"""

from __future__ import annotations

import numpy as np

from distlearn.cuda.kernels.variant import Launch, Variant, f32, i32


def matmul_reference(a, b, c):
    """C <- A B."""
    np.matmul(a, b, out=c)


def _launch(columns, rows, block, shared_mem=0):
    def launch(a, b, c):
        (m, k), n = a.shape, b.shape[1]
        if b.shape[0] != k or c.shape != (m, n):
            raise ValueError(f"matmul: shapes {a.shape} x {b.shape} -> {c.shape} do not fit")
        return Launch((-(-n // columns), -(-m // rows)), block, (a, b, c, i32(m), i32(n), i32(k)), shared_mem)

    return launch


def _example(rng):
    return rng.random((128, 64), dtype=f32), rng.random((64, 192), dtype=f32), np.zeros((128, 192), f32)


def _variant(kernel, launch, memory):
    return Variant("matmul.cu", kernel, launch, matmul_reference, _example, memory, rtol=1e-5)


SHARED = {(tile, use): 1 for tile in "ab" for use in ("read", "write")}
GLOBAL = {("A", "read"): 4, ("B", "read"): 4, ("C", "write"): 4}
NAIVE = _variant("matmul_naive", _launch(32, 8, (32, 8)), GLOBAL | {("A", "read"): 1})
TILED = _variant("matmul_tiled", _launch(16, 16, (16, 16)), GLOBAL | SHARED)
ANY_TILE = _variant("matmul_any_tile", _launch(32, 32, (32, 32), 8 * 32 * 32), GLOBAL)
BLOCKED = _variant("matmul_blocked", _launch(64, 64, (16, 16)), GLOBAL | SHARED)
WIDE = _variant("matmul_wide", _launch(128, 128, (16, 16)), dict.fromkeys(GLOBAL, 16) | {("B", "read"): 12} | SHARED)

VARIANTS = [NAIVE, TILED, ANY_TILE, BLOCKED, WIDE]
