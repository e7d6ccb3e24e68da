"""Buckets: gradients as views into a few flat arrays, so that one call moves many of them.

A message costs alpha seconds however small it is, and a model has many small parameters; a single call for everything
could not start before the last gradient is there. Buckets of `cap_bytes` lie between: few calls, and the first one
starts while backward still runs. Parameters go into buckets in reverse order, in which backward completes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...backend import get_xp
from ...nn.layer import Param


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


def group_params(params: list[Param], cap_bytes: float = math.inf, kind: Callable | None = None) -> list[list[Param]]:
    """Deal parameters to groups of at most `cap_bytes`, in reverse order; a group holds one dtype.

    Parameters
    ----------
    params : list of Param
        Frozen ones are left out; one larger than `cap_bytes` gets a group to itself.
    cap_bytes : float
    kind : callable, optional
        `kind(param) -> hashable`: parameters of different kinds are in different groups.
    """
    if not cap_bytes > 0:
        raise ValueError(f"group_params: cap_bytes is {cap_bytes!r}, expected a size above 0 bytes")
    groups: list[list[Param]] = []
    filling: dict = {}  # kind -> the group that is being filled, and its bytes
    for p in reversed([p for p in params if not p.frozen]):
        of = kind(p) if kind else None
        group, filled = filling.get(of, (None, 0))
        if group is None or filled + p.nbytes > cap_bytes or group[0].data.dtype != p.data.dtype:
            group, filled = [], 0
            groups.append(group)
        group.append(p)
        filling[of] = group, filled + p.nbytes
    return groups


def make_buckets(
    params: list[Param], cap_bytes: float = math.inf, extra: int = 0, kind: Callable | None = None
) -> list[Bucket]:
    """Make the buckets of `group_params`.

    Parameters
    ----------
    params : list of Param
    cap_bytes : float
    extra : int
        Free elements at the end of the last bucket.
    kind : callable, optional
    """
    groups = group_params(params, cap_bytes, kind)
    return [Bucket(group, extra if i == len(groups) - 1 else 0) for i, group in enumerate(groups)]
