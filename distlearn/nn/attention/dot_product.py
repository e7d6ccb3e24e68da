r"""Scaled dot-product attention, with all scores in memory.

.. math:: S = \frac{Q K^\top}{\sqrt d}, \qquad P = \operatorname{softmax}(S), \qquad Y = P V

.. math:: dV = P^\top dY, \qquad dP = dY V^\top, \qquad
          dS = P \odot \bigl(dP - \operatorname{rowsum}(dY \odot Y)\bigr), \qquad
          dQ = \frac{dS\, K}{\sqrt d}, \qquad dK = \frac{dS^\top Q}{\sqrt d}

The softmax's backward needs rowsum(dP * P), which is rowsum(dY * Y): d numbers a row instead of one for every key.

A. Vaswani et al. (2017), Attention is all you need, NIPS, section 3.2.1.
"""

from __future__ import annotations

import math

import numpy as np

from ...backend import get_xp, matmul, rounded, single


def attend(q, k, v, *, causal: bool = False):
    """Attend from every query to the keys.

    Parameters
    ----------
    q : (batch, heads, n, d) array
    k, v : (batch, heads, m, d) array
    causal : bool
        Query i sees the keys 0 to i; n is m then.

    Returns
    -------
    y : (batch, heads, n, d) array
    saved : tuple
        For `attend_backward`: the inputs, the probabilities and the output.

    Notes
    -----
    4 batch heads n m d flops and about 5 a score. Saves batch heads n m probabilities. Of half precision, scores and
    sums over the keys are in single, and rounded once.
    """
    check_heads(q, k, v, causal)
    xp, scale, half = get_xp(q), 1 / math.sqrt(q.shape[-1]), q.dtype == np.float16
    y = xp.empty_like(q)
    p = xp.empty((*q.shape[:3], k.shape[2]), q.dtype)
    hidden = causal_mask(xp, q.shape[2], q.dtype) if causal else None
    for i in _parts(q) if q.size else ():
        s = matmul(single(q[i]), single(k[i]).swapaxes(-1, -2), out=None if half else p[i])
        s *= scale
        if causal:
            s += hidden
        s -= s.max(axis=-1, keepdims=True)
        xp.exp(s, out=s)
        s /= s.sum(axis=-1, keepdims=True)
        if half:
            p[i], y[i] = rounded(s, p.dtype), rounded(matmul(s, single(v[i])), y.dtype)
        else:
            matmul(s, v[i], out=y[i])
    return y, (q, k, v, p, y)


def attend_backward(dy, saved):
    """Return the gradients of queries, keys and values.

    Parameters
    ----------
    dy : (batch, heads, n, d) array
    saved : tuple
        What `attend` returned.
    """
    q, k, v, p, y = saved
    xp, scale = get_xp(q), 1 / math.sqrt(q.shape[-1])
    dq, dk, dv = xp.empty_like(y), xp.empty_like(k), xp.empty_like(v)
    for i in _parts(q):
        slope = single(dy[i])
        matmul(p[i].swapaxes(-1, -2), dy[i], out=dv[i])
        ds = matmul(slope, single(v[i]).swapaxes(-1, -2))
        ds -= (slope * y[i]).sum(axis=-1, keepdims=True)
        ds *= p[i]
        ds *= scale
        if q.dtype == np.float16:
            dq[i] = rounded(matmul(ds, single(k[i])), dq.dtype)
            dk[i] = rounded(matmul(ds.swapaxes(-1, -2), single(q[i])), dk.dtype)
        else:
            matmul(ds, k[i], out=dq[i])
            matmul(ds.swapaxes(-1, -2), q[i], out=dk[i])
    return dq, dk, dv


def _parts(q):
    """On a CPU process one sample at a time, whose scores stay in the cache; elsewhere all at once."""
    return range(len(q)) if get_xp(q) is np else [slice(None)]


def causal_mask(xp, n: int, dtype, q_start: int = 0, k_start: int = 0):
    """Return the mask to add to the scores: 0 where a query sees a key, -inf where the key is later."""
    later = q_start + xp.arange(n)[:, None] < k_start + xp.arange(n)
    return xp.where(later, -np.inf, 0.0).astype(dtype)


def check_heads(q, k, v, causal: bool) -> None:
    """Raise unless queries, keys and values fit."""
    fits = q.ndim == k.ndim == 4 and k.shape == v.shape and (*q.shape[:2], q.shape[3]) == (*k.shape[:2], k.shape[3])
    if not fits or (causal and q.shape[2] != k.shape[2]):
        shapes = f"queries {q.shape}, keys {k.shape}, values {v.shape}{', causal' * causal}"
        wanted = "(batch, heads, n, d) and twice (batch, heads, m, d), n = m if causal"
        raise ValueError(f"attention: {shapes}, expected {wanted}")
