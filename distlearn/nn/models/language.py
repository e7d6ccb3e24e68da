"""A language model: predicts the next symbol from all before it."""

from __future__ import annotations

from .. import init
from ..container import Sequential
from ..embedding import Embedding
from ..linear import Linear
from ..recurrent import GRU


def GRULanguageModel(n_symbols=128, d_hidden=128, n_layers=2, *, seed=0, dtype="float32") -> Sequential:
    """Build an embedding, a stack of GRU layers and a dense layer that scores the next symbol at every position.

    Parameters
    ----------
    n_symbols : int
        Size of the vocabulary; 128 holds the characters of plain English text.
    d_hidden : int
        Size of the embedding and of every hidden state.
    n_layers : int
        GRU layers, one on top of the other: different ranks can hold the upper and the lower ones.
    seed : int or None
        Weights depend on (seed, number of the layer) alone; None leaves them zero, for counting.

    References
    ----------
    A. Karpathy (2015), The unreasonable effectiveness of recurrent neural networks.

    Examples
    --------
    >>> GRULanguageModel(50).output_shape((32, 64))
    (32, 64, 50)
    """
    seeds = init.seeds(seed)
    stack = [GRU(d_hidden, d_hidden, next(seeds), dtype=dtype) for _ in range(n_layers)]
    return Sequential(
        Embedding(n_symbols, d_hidden, next(seeds), dtype=dtype),
        *stack,
        Linear(d_hidden, n_symbols, next(seeds), dtype=dtype, gain=1.0),
    )
