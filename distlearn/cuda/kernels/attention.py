"""Attention: with all scores in global memory, and in tiles (FlashAttention), forward and backward."""

from __future__ import annotations

from distlearn.cuda.kernels.variant import Launch, Variant, i32

WARPS = 4  # Queries of a block of the naive kernel.


def _sizes(q, k, v, causal):
    (heads, n, d), m = q.shape, k.shape[1]
    if k.shape != (heads, m, d) or v.shape != k.shape or not m or (causal and m != n):
        shapes = f"queries {q.shape}, keys {k.shape}, values {v.shape}, causal {bool(causal)}"
        raise ValueError(f"attention: {shapes}, expected (heads, n, d) and twice (heads, m, d), m = n if causal")
    return heads, n, m, d


def _naive_launch(q, k, v, s, y, causal):
    heads, n, m, d = _sizes(q, k, v, causal)
    args = q, k, v, s, y, i32(n), i32(m), i32(d), i32(causal)
    return Launch((-(-n // WARPS), heads), (32, WARPS), args)


def _tiled_launch(block, width, of_keys=False):
    """Return the launch of a kernel with a block of threads for every `block` queries (or keys)."""

    def launch(q, k, v, *rest):
        *arrays, causal = rest
        heads, n, m, d = _sizes(q, k, v, causal)
        if d != width:
            raise ValueError(f"attention: vectors of length {d}, expected {width}, as compiled")
        grid = (-(-(m if of_keys else n) // block), heads)
        return Launch(grid, (block, block), (q, k, v, *arrays, i32(n), i32(m), i32(causal)))

    return launch


def tiled(block: int, width: int) -> Variant:
    """Return the tiled kernel.

    Parameters
    ----------
    block : {8, 16, 32}
        Queries that a block of threads has, and keys that it has at a time.
    width : int
        Length d of a vector, a multiple of `block`.

    Notes
    -----
    Moves 2 n d + 2 ceil(n / block) m d + n floats a head: queries are read and outputs written once, keys and values by
    every block of queries. A block of threads needs 3 block (d + 1) + block^2 floats of shared memory, so that
    this is the Theta(n^2 d^2 / M) of theorem 2 in Dao et al. (2022).
    """
    if width % block:
        raise ValueError(f"attention.tiled: width is {width}, expected a multiple of the block, {block}")
    kernel, launch = f"attention_tiled<{block}, {width}>", _tiled_launch(block, width)
    return Variant("attention.cu", kernel, launch)


NAIVE = Variant("attention.cu", "attention_naive", _naive_launch)
TILED = tiled(16, 32)
TILED_DQ = Variant("attention.cu", "attention_tiled_dq<16, 32>", _tiled_launch(16, 32))
TILED_DKV = Variant("attention.cu", "attention_tiled_dkv<16, 32>", _tiled_launch(16, 32, of_keys=True))

VARIANTS = [NAIVE, TILED, TILED_DQ, TILED_DKV]
