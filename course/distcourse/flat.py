"""Parameters as one vector."""

from __future__ import annotations

import numpy as np


def flat(params, what: str = "data") -> np.ndarray:
    """Return parameters, or with "grad" their gradients, one after another as one vector: a copy."""
    return np.concatenate([getattr(p, what).ravel() for p in params])
