"""Dropout: noise against overfitting."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend import Array, get_xp
from ..bounds import check_number
from .layer import Layer
from .shape import Identity


class Dropout(Layer):
    r"""Set a random share of the values to zero while training, and scale the others up to keep the mean.

    .. math:: y = x \odot \frac{m}{1 - p}, \qquad m_i = 1 \text{ with probability } 1 - p, \text{ else } 0

    `eval()` returns the layer for prediction, the identity: the mean of y is x already.

    Parameters
    ----------
    p : float
        Share of zeros, from 0 to below 1.
    rng : numpy.random.Generator, int or sequence of int, optional
        Draws the masks; an integer or several are a seed, None is 0. Two layers, runs or ranks of the same seed drop
        the same places.

    Notes
    -----
    Shapes: any to the same. 2 flops an element. Saves the mask (a byte an element). The generator is the only thing
    that a forward pass changes; `Recompute` restores it before it runs forward again. On a GPU masks come from a
    generator there that is seeded from this one: reproducible, but not the CPU's masks.

    References
    ----------
    N. Srivastava et al. (2014), Dropout: a simple way to prevent neural networks from overfitting, JMLR 15.
    """

    costs = 2, 2

    def __init__(self, p: float = 0.5, rng: np.random.Generator | int | list[int] | None = None):
        check_number("Dropout", least=0, below=1, p=p)
        self.p = p
        self.rng = rng if isinstance(rng, np.random.Generator) else np.random.default_rng(0 if rng is None else rng)

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp = get_xp(x)
        rng = self.rng if xp is np else xp.random.default_rng(int(self.rng.integers(2**63)))
        kept = rng.random(x.shape, dtype=np.float32) >= self.p
        return self._mask(x.copy(), kept), kept

    def backward(self, dy: Array, saved: Any) -> Array | None:
        return self._mask(dy, saved)

    def _mask(self, x, kept):
        x *= kept
        x *= 1 / (1 - self.p)
        return x

    def eval(self) -> Layer:
        return Identity()
