"""Matrix product: naive, tiled in shared memory, and register-blocked (4 x 4 elements a thread, and 8 x 8).

The time of `WIDE` on a card has not been measured.
"""

from __future__ import annotations

from distlearn.cuda.kernels.variant import Launch, Variant, i32


def _launch(columns, rows, block, shared_mem=0):
    def launch(a, b, c):
        (m, k), n = a.shape, b.shape[1]
        if b.shape[0] != k or c.shape != (m, n):
            raise ValueError(f"matmul: shapes {a.shape} x {b.shape} -> {c.shape} do not fit")
        return Launch((-(-n // columns), -(-m // rows)), block, (a, b, c, i32(m), i32(n), i32(k)), shared_mem)

    return launch


NAIVE = Variant("matmul.cu", "matmul_naive", _launch(32, 8, (32, 8)))
TILED = Variant("matmul.cu", "matmul_tiled", _launch(16, 16, (16, 16)))
ANY_TILE = Variant("matmul.cu", "matmul_any_tile", _launch(32, 32, (32, 32), 8 * 32 * 32))
BLOCKED = Variant("matmul.cu", "matmul_blocked", _launch(64, 64, (16, 16)))
WIDE = Variant("matmul.cu", "matmul_wide", _launch(128, 128, (16, 16)))

VARIANTS = [NAIVE, TILED, ANY_TILE, BLOCKED, WIDE]
