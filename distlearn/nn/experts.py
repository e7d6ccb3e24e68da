"""A mixture of experts: many layers side by side, of which each row of the input uses a few.

    row i ──► gate ──► its k best experts ──► a place in each one's queue, while there are any ──► weighted sum

Weights grow with the number of experts, operations only with k.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..backend import get_xp
from .container import Container
from .layer import Layer, check_shape
from .linear import Linear


class Routes(NamedTuple):
    """Which experts some rows go to."""

    weights: object  # (n, experts) array: the gate's softmax.
    chosen: object  # (n, k) array of int: the experts of each row, the best one first.
    counts: object  # (k, experts) array of int: how many rows have an expert as their first, second, ... choice.

    def kept(self, capacity: int, before):
        xp, kept = get_xp(self.weights), []
        for c in range(self.chosen.shape[1]):
            mine = self.chosen[:, c, None] == xp.arange(self.weights.shape[1])
            place = xp.asarray(before[c]) + xp.cumsum(mine, axis=0) - 1
            kept.append((mine & (place < capacity)).any(axis=1))
        return xp.stack(kept, axis=1)


class MixtureOfExperts(Container):
    r"""Experts of which every row uses the best k.

    .. math:: p = \operatorname{softmax}(x W_g + b_g), \qquad y = \sum_{e \,\in\, \text{top}_k(p)} p_e\, f_e(x)

    An expert takes at most :math:`\lceil c\, k\, n / E \rceil` of n rows (its *capacity*): in the order of the rows,
    all first choices before the second ones. A choice that finds no place adds nothing, so that a row may be left
    out; put the layer into a `Residual`. The gate learns by the weights of the experts that were used.

    Parameters
    ----------
    experts : list of Layer
        E layers from (n, width) to (n, width), each row on its own.
    k : int
        Experts of each row.
    capacity : float
        c: the share of an even load that an expert takes at most.
    rng : Generator or int, optional
        Of the gate's weights.

    Notes
    -----
    Shapes: (batch, ..., width) to the same. Work: the gate, and k rows' work for each row that is kept. Saves what the
    experts save, their outputs and the gate's weights. The loss that balances the load of experts (Fedus et al.,
    section 2.2) is not included: a layer has no loss of its own.

    References
    ----------
    N. Shazeer et al. (2017), Outrageously large neural networks: the sparsely-gated mixture-of-experts layer, ICLR,
    section 2. D. Lepikhin et al. (2021), GShard, ICLR, section 2.2 (first choices first). W. Fedus, B. Zoph,
    N. Shazeer (2022), Switch transformers, JMLR 23, section 2.1 (k = 1, capacity).

    Examples
    --------
    >>> from distlearn.nn import Linear
    >>> layer = MixtureOfExperts(6, [Linear(6, 6, seed) for seed in range(4)], k=2)
    >>> layer.output_shape((8, 6)), layer.room(8)
    ((8, 6), 5)
    """

    def __init__(self, width, experts, k=1, *, capacity=1.25, rng=None, dtype="float32"):
        if not experts or not 1 <= k <= len(experts):
            raise ValueError(f"MixtureOfExperts: k is {k} of {len(experts)} experts, expected 1 to their number")
        if not capacity > 0:
            raise ValueError(f"MixtureOfExperts: capacity is {capacity!r}, expected a factor above 0")
        self.width, self.k, self.capacity = width, k, capacity
        super().__init__([Linear(width, len(experts), rng, dtype=dtype, gain=1.0), *experts])

    @property
    def gate(self) -> Linear:
        return self.layers[0]

    @property
    def experts(self) -> list[Layer]:
        return self.layers[1:]

    def room(self, n: int) -> int:
        """Return how many of n rows an expert takes at most."""
        return math.ceil(self.capacity * self.k * n / len(self.experts))

    def route(self, scores) -> Routes:
        """Choose experts by the gate's scores; of equal ones, the first."""
        xp = get_xp(scores)
        e = xp.exp(scores - scores.max(axis=1, keepdims=True)) if len(scores) else scores
        weights = e / e.sum(axis=1, keepdims=True)
        chosen = xp.argsort(-weights, axis=1, kind="stable")[:, : self.k]
        counts = (chosen[:, :, None] == xp.arange(weights.shape[1])).sum(axis=0)
        return Routes(weights, chosen, counts)

    def forward(self, x):
        check_shape(self, x.shape, "...", self.width)
        xp, rows = get_xp(x), x.reshape(-1, self.width)
        scores, gate = self.gate.forward(rows)
        routes = self.route(scores)
        kept = routes.kept(self.room(len(rows)), xp.cumsum(routes.counts, axis=0) - routes.counts)
        y, used = xp.zeros_like(rows), []
        for e, expert in enumerate(self.experts):
            here = xp.flatnonzero(((routes.chosen == e) & kept).any(axis=1))
            if not len(here):  # an expert without rows is not called
                continue
            out, saved = expert.forward(rows[here])
            y[here] += routes.weights[here, e, None] * out
            used.append((e, here, out, saved))
        return y.reshape(x.shape), (gate, routes.weights, used)

    def backward(self, dy, saved):
        gate, weights, used = saved
        xp, shape, dy = get_xp(dy), dy.shape, dy.reshape(-1, self.width)
        dp, dx = xp.zeros_like(weights), xp.zeros_like(dy)
        for e, here, out, kept in used:
            dp[here, e] = (dy[here] * out).sum(axis=1)
            dx[here] += self.experts[e].backward(weights[here, e, None] * dy[here], kept)
        dx += self.gate.backward(softmax_backward(dp, weights), gate)
        return dx.reshape(shape)

    def parts(self, shape):
        rows = math.prod(shape[:-1])
        each = -(-self.k * rows // len(self.experts))  # of an even load
        return [(self.gate, (rows, self.width)), *((expert, (each, self.width)) for expert in self.experts)]

    def output_shape(self, shape):
        check_shape(self, shape, "...", self.width)
        return shape

    def __repr__(self):
        return f"MixtureOfExperts({self.width}, {len(self.experts)} experts, k={self.k})"


def softmax_backward(dp, p):
    """Return the gradient of the scores from that of their softmax, row by row."""
    return p * (dp - (dp * p).sum(axis=1, keepdims=True))


def kept_counts(counts, capacity: int) -> np.ndarray:
    """Return how many rows of each rank every expert takes."""
    return np.clip(capacity - places_before(counts), 0, counts).sum(axis=1)


def places_before(counts) -> np.ndarray:
    """Return the places taken before the first row of each rank makes each of its choices: (ranks, k, experts)."""
    in_order = np.moveaxis(np.asarray(counts), 0, 1)  # choices before ranks
    flat = in_order.reshape(-1, in_order.shape[-1])
    before = (np.cumsum(flat, axis=0) - flat).reshape(in_order.shape)
    return np.moveaxis(before, 0, 1)
