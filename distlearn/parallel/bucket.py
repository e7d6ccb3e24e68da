"""Buckets: gradients as views into a few flat arrays, so that one call moves many of them.

A message costs alpha seconds however small it is, and a model has many small parameters; a single call for everything
could not start before the last gradient is there. Buckets of `cap_bytes` lie between: few calls, and the first one
starts while backward still runs. Parameters go into buckets in reverse order, in which backward completes them.
"""

from __future__ import annotations

import math

from ..backend import get_xp
from ..nn.base import Param


class Bucket:
    """Gradients of some parameters as views of one flat array.

    Parameters
    ----------
    params : list of Param
        Same dtype; their `grad` is replaced by views, so nothing is ever packed or unpacked.
    extra : int
        So many free elements at the end, for small numbers that ride along.

    Attributes
    ----------
    flat : (n + extra,) array
    pending : int
        Gradients that backward has not completed yet.
    """

    def __init__(self, params: list[Param], extra: int = 0):
        self.params = params
        n = sum(p.size for p in params)
        xp = get_xp(params[0].data)
        self.flat = xp.zeros(n + extra, params[0].data.dtype)
        self.extra = self.flat[n:]
        self.pending = 0
        offset = 0
        for p in params:
            p.grad = self.flat[offset : offset + p.size].reshape(p.data.shape)
            offset += p.size

    def clear(self) -> None:
        """Clear all gradients, and wait for all of them again; `settle` writes the zeros that are needed."""
        for p in self.params:
            p.zero_grad()
        self.extra[...] = 0
        self.pending = len(self.params)

    def settle(self) -> None:
        """Make `flat` whole before it is read: a gradient to which nothing was added becomes zero now."""
        for p in self.params:
            _ = p.grad


def make_buckets(params: list[Param], cap_bytes: float = math.inf, extra: int = 0) -> list[Bucket]:
    """Deal parameters to buckets of at most `cap_bytes`, in reverse order; a bucket holds one dtype.

    Parameters
    ----------
    params : list of Param
        A parameter larger than `cap_bytes` gets a bucket to itself.
    cap_bytes : float
    extra : int
        Free elements at the end of the last bucket.
    """
    if not cap_bytes > 0:
        raise ValueError(f"make_buckets: cap_bytes is {cap_bytes!r}, expected a size above 0 bytes")
    groups: list[list[Param]] = []
    filled = 0
    for p in reversed(params):
        if not groups or filled + p.nbytes > cap_bytes or groups[-1][0].data.dtype != p.data.dtype:
            groups.append([])
            filled = 0
        groups[-1].append(p)
        filled += p.nbytes
    return [Bucket(group, extra if i == len(groups) - 1 else 0) for i, group in enumerate(groups)]
