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

from ...backend import get_xp, matmul, rounded, single
from .dot_product import causal_mask, check_heads, group_heads


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
        Added to the scores: -inf for keys that a query must not see. Rows repeat where q holds several heads.
    """
    xp, q, k, v = get_xp(q), single(q), single(k), single(v)
    s = matmul(q, k.swapaxes(-1, -2))
    s *= 1 / math.sqrt(q.shape[-1])
    if hidden is not None:
        rows = s.reshape(*s.shape[:-2], s.shape[-2] // len(hidden), *hidden.shape)
        rows += hidden
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


def online_attend(q, k, v, *, causal: bool = False, block: int = 512):
    """Attend to the keys block by block; the same numbers as `attend`."""
    check_heads(q, k, v, causal)
    xp, (batch, heads, n, d), m = get_xp(q), q.shape, k.shape[2]
    y, lse = xp.empty_like(q), xp.empty((*q.shape[:3], 1), np.promote_types(q.dtype, np.float32))
    for i in range(batch):
        for rows in _blocks(n, block):
            part = group_heads(q[i : i + 1, :, rows], k)[0]
            seen = None
            for cols in _blocks(m if not causal else rows.stop, block):
                hidden = _mask(xp, q.dtype, rows, cols) if causal else None
                more = partial(part, k[i, :, cols], v[i, :, cols], hidden)
                seen = more if seen is None else merge(seen, more)
            out, sums = finish(seen)
            y[i, :, rows] = rounded(out.reshape(heads, -1, d), y.dtype)
            lse[i, :, rows] = sums.reshape(heads, -1, 1)
    return y, (q, k, v, y, lse, causal, block)


def online_attend_backward(dy, saved):
    """Return the gradients of queries, keys and values; every block of scores is recomputed."""
    q, k, v, y, lse, causal, block = saved
    xp, m = get_xp(q), k.shape[2]
    dq, (dk, dv) = xp.zeros_like(q), (single(xp.zeros_like(a)) for a in (k, v))
    for i in range(len(q)):
        for rows in _blocks(q.shape[2], block):
            at = slice(i, i + 1), slice(None), rows
            part, ends, slope = (group_heads(a[at], k)[0] for a in (q, lse, dy))
            slope = single(slope)
            inner = (slope * group_heads(y[at], k)[0]).sum(axis=-1, keepdims=True)
            found = xp.zeros_like(single(part))
            for cols in _blocks(m if not causal else rows.stop, block):
                hidden = _mask(xp, q.dtype, rows, cols) if causal else None
                keys, values = k[i, :, cols], v[i, :, cols]
                gq, gk, gv = partial_backward(part, keys, values, hidden, ends, inner, slope)
                found += gq
                dk[i, :, cols] += gk
                dv[i, :, cols] += gv
            dq[at] = rounded(found.reshape(q[at].shape), dq.dtype)
    return dq, rounded(dk, k.dtype), rounded(dv, v.dtype)


def partial_backward(q, k, v, hidden, lse, inner, dy):
    """Return the contributions of some of the keys to the gradients."""
    scale, (q, k, v, dy) = 1 / math.sqrt(q.shape[-1]), map(single, (q, k, v, dy))
    p = matmul(q, k.swapaxes(-1, -2))
    p *= scale
    if hidden is not None:
        rows = p.reshape(*p.shape[:-2], p.shape[-2] // len(hidden), *hidden.shape)
        rows += hidden
    p -= lse
    get_xp(q).exp(p, out=p)
    dv = matmul(p.swapaxes(-1, -2), dy)
    ds = matmul(dy, v.swapaxes(-1, -2))
    ds -= inner
    ds *= p
    ds *= scale
    return matmul(ds, k), matmul(ds.swapaxes(-1, -2), q), dv


def _blocks(n: int, block: int):
    return [slice(start, min(start + block, n)) for start in range(0, n, block)]


def _mask(xp, dtype, rows: slice, cols: slice):
    """Return the causal mask of a block; None where every query sees every key."""
    if cols.stop <= rows.start + 1:
        return None
    return causal_mask(xp, rows.stop - rows.start, dtype, rows.start, cols.start, cols.stop - cols.start)


def _finite(xp, top):
    """Replace -inf, the maximum of no key at all, by 0: exp(-inf - 0) is 0 then, where exp(-inf + inf) is NaN."""
    return xp.where(top == -np.inf, top.dtype.type(0), top)
