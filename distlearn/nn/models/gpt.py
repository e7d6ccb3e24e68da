"""A transformer that predicts the next symbol."""

from __future__ import annotations

from .. import init
from ..activation import GELU
from ..attention import MultiHeadAttention
from ..container import Residual, Sequential
from ..embedding import Embedding
from ..linear import Linear
from ..norm import RMSNorm


def GPT(
    n_symbols=128, width=64, heads=4, n_blocks=4, *, kv_heads=None, online=False, seed=0, dtype="float32"
) -> Sequential:
    """Build an embedding, pre-norm blocks of causal attention and two dense layers, and a dense layer of scores.

    Parameters
    ----------
    n_symbols : int
        Size of the vocabulary; 128 holds the characters of plain English text.
    width : int
        Of the vector at each position; the dense layers of a block are four times as wide.
    kv_heads : int, optional
        As for `MultiHeadAttention`.
    online : bool
        Attention in memory linear in the length.
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting.

    Notes
    -----
    About 12 n_blocks width^2 + 2 n_symbols width parameters. Positions are rotations of queries and keys, so any length
    can be computed; it has learned those that it was trained on.

    References
    ----------
    A. Radford et al. (2019), Language models are unsupervised multitask learners, section 2.3: pre-norm blocks.
    J. Su et al. (2021), RoFormer, arXiv:2104.09864: positions.

    Examples
    --------
    >>> GPT(50).output_shape((32, 64))
    (32, 64, 50)
    """
    seeds = init.seeds(seed)
    options = {"dtype": dtype}

    def block():
        attention = MultiHeadAttention(
            width, heads, [next(seeds) for _ in range(4)], kv_heads=kv_heads, online=online, **options
        )
        dense = Sequential(
            RMSNorm(width, **options),
            Linear(width, 4 * width, next(seeds), gain=1.0, **options),
            GELU(),
            Linear(4 * width, width, next(seeds), gain=1.0, **options),
        )
        return Residual(Sequential(RMSNorm(width, **options), attention)), Residual(dense)

    embedding = Embedding(n_symbols, width, next(seeds), **options)
    blocks = [layer for _ in range(n_blocks) for layer in block()]
    return Sequential(
        embedding, *blocks, RMSNorm(width, **options), Linear(width, n_symbols, next(seeds), gain=1.0, **options)
    )
