"""Parameters as one vector."""

from __future__ import annotations

import numpy as np

from distlearn.backend import views_like
from distlearn.nn.layer import Param


def flat(params) -> np.ndarray:
    """Return parameters one after another as one vector: a copy."""
    return np.concatenate([p.data.ravel() for p in params])


def as_one(params) -> Param:
    """Make parameters and their gradients views into those of one long vector, and return it."""
    whole, arrays = Param(flat(params)), [p.data for p in params]
    views = views_like(whole.data, arrays), views_like(whole.grad, arrays)
    for p, data, grad in zip(params, *views, strict=True):
        p.data, p.grad = data, grad
    return whole
