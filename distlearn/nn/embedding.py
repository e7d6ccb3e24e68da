"""Embedding: a learned vector for every symbol."""

from __future__ import annotations

import math

import numpy as np

from ..backend import get_xp
from . import init
from .layer import Layer, Param, check_positive, describe


class Embedding(Layer):
    r"""Look up a vector for every symbol: equal to a dense layer on one-hot inputs.

    .. math:: y_{n,t} = W_{x_{n,t}}, \qquad dW_s = \sum_{n,t:\, x_{n,t} = s} dy_{n,t}

    Parameters
    ----------
    n_symbols, d_out : int
        Size of the vocabulary, and of a vector.
    rng : numpy.random.Generator or int, optional
        Draws the vectors from N(0, 1 / d_out); an integer is a seed.

    Notes
    -----
    Shapes: (batch, ...) array of int to (batch, ..., d_out). No flops forward, one addition a value backward; there
    is no gradient of the input. Saves the symbols. Most rows of dW are zero, and a framework that sends them all
    wastes bandwidth.

    References
    ----------
    Y. Bengio et al. (2003), A neural probabilistic language model, JMLR 3.
    """

    def __init__(self, n_symbols, d_out, rng=None, *, dtype="float32"):
        check_positive("Embedding", n_symbols=n_symbols, d_out=d_out)
        self.n_symbols, self.d_out, self.costs = n_symbols, d_out, (0, d_out)
        self.W = Param(init.normal((n_symbols, d_out), 1 / math.sqrt(d_out), rng, dtype), "W")
        self.params = [self.W]

    def forward(self, x):
        if x.dtype.kind not in "iu":
            raise TypeError(f"{describe(self)}: expected symbols as integers, got an array of {x.dtype}")
        if x.size and not (int(x.min()) >= 0 and int(x.max()) < self.n_symbols):
            raise ValueError(
                f"{describe(self)}: symbols run from {int(x.min())} to {int(x.max())}, "
                f"expected 0 to {self.n_symbols - 1}"
            )
        return self.W.data[x], x

    def backward(self, dy, saved):
        rows = dy.reshape(-1, self.d_out)
        if get_xp(dy) is not np:  # a GPU has a fast scattered add
            get_xp(dy).add.at(self.W.grad, saved.reshape(-1), rows)
            return
        # the same sums, of rows sorted by symbol: eight times as fast as adding one row after another
        order = np.argsort(saved, axis=None, kind="stable")
        symbols = saved.reshape(-1)[order]
        starts = np.flatnonzero(np.diff(symbols, prepend=symbols[:1] - 1)) if len(symbols) else order
        if len(starts):
            self.W.grad[symbols[starts]] += np.add.reduceat(rows[order], starts, axis=0)

    def output_shape(self, shape):
        return (*shape, self.d_out)

    def bytes_moved(self, shape, itemsize=4):
        return 2 * itemsize * math.prod(shape) * self.d_out

    def __repr__(self):
        return f"Embedding({self.n_symbols}, {self.d_out})"
