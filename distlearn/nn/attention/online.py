r"""Attention block by block: memory linear in the length, because no more than a block of scores exists at a time.

The state of a query after some of the keys is the largest score m, the sum l of the exponentials and the weighted
sum o of the values, both relative to m. Two such partial results, of different keys, are merged by

.. math:: m = \max(m_1, m_2), \qquad l = e^{m_1 - m} l_1 + e^{m_2 - m} l_2, \qquad
          o = e^{m_1 - m} o_1 + e^{m_2 - m} o_2

and the end result is o / l. The merge is associative and commutative: keys may come in blocks, in any order, from
several thread blocks of a GPU, or from other ranks. Backward computes each block's probabilities again, from
log-sum-exp :math:`L = m + \log l`: :math:`P = e^{S - L}`.

M. Milakov, N. Gimelshein (2018), Online normalizer calculation for softmax, arXiv:1805.02867, section 3.
T. Dao et al. (2022), FlashAttention, NeurIPS, algorithms 1 and 4.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...backend import get_xp, matmul, single


class Partial(NamedTuple):
    """The partial result of queries over some of the keys.

    Attributes
    ----------
    top : (..., n, 1) array
        Largest score; -inf where no key was visible.
    total : (..., n, 1) array
        Sum of exp(score - top).
    out : (..., n, d) array
        Sum of exp(score - top) times value.
    """

    top: Any
    total: Any
    out: Any


def partial(q, k, v, hidden=None) -> Partial:
    """Attend to some of the keys.

    Parameters
    ----------
    q : (..., n, d) array
    k, v : (..., m, d) array
    hidden : (n, m) array, optional
        Added to the scores: -inf for keys that a query must not see.
    """
    xp, q, k, v = get_xp(q), single(q), single(k), single(v)
    s = matmul(q, k.swapaxes(-1, -2))
    s *= 1 / math.sqrt(q.shape[-1])
    if hidden is not None:
        s += hidden
    top = s.max(axis=-1, keepdims=True)
    s -= _finite(xp, top)
    xp.exp(s, out=s)
    return Partial(top, s.sum(axis=-1, keepdims=True), matmul(s, v))


def merge(a: Partial, b: Partial) -> Partial:
    """Merge the partial results over two sets of keys; see the module for the equation."""
    xp = get_xp(a.top)
    top = xp.maximum(a.top, b.top)
    safe = _finite(xp, top)
    x, y = xp.exp(a.top - safe), xp.exp(b.top - safe)
    return Partial(top, x * a.total + y * b.total, x * a.out + y * b.out)


def finish(seen: Partial):
    """Return the attention's output and log-sum-exp of the scores.

    Returns
    -------
    y : (..., n, d) array
    lse : (..., n, 1) array
    """
    return seen.out / seen.total, seen.top + get_xp(seen.top).log(seen.total)


def partial_backward(q, k, v, hidden, lse, inner, dy):
    """Return the contributions of some of the keys to the gradients."""
    scale, (q, k, v, dy) = 1 / math.sqrt(q.shape[-1]), map(single, (q, k, v, dy))
    p = matmul(q, k.swapaxes(-1, -2))
    p *= scale
    if hidden is not None:
        p += hidden
    p -= lse
    get_xp(q).exp(p, out=p)
    dv = matmul(p.swapaxes(-1, -2), dy)
    ds = matmul(dy, v.swapaxes(-1, -2))
    ds -= inner
    ds *= p
    ds *= scale
    return matmul(ds, k), matmul(ds.swapaxes(-1, -2), q), dv


def _finite(xp, top):
    """Replace -inf, the maximum of no key at all, by 0: exp(-inf - 0) is 0 then, where exp(-inf + inf) is NaN."""
    return xp.where(top == -np.inf, top.dtype.type(0), top)
