"""Parameters as one vector."""

from __future__ import annotations

import numpy as np

from distlearn.nn.layer import Param


def flat(params, what: str = "data") -> np.ndarray:
    """Return parameters, or with "grad" their gradients, one after another as one vector: a copy."""
    return np.concatenate([getattr(p, what).ravel() for p in params])


def as_one(params) -> Param:
    """Make parameters and their gradients views into those of one long vector, and return it."""
    whole, offset = Param(flat(params)), 0
    for p in params:
        part = slice(offset, offset + p.size)
        p.data, p.grad = (array[part].reshape(p.data.shape) for array in (whole.data, whole.grad))
        offset += p.size
    return whole
