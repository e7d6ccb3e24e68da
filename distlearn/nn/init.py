"""Initial values of parameters: drawn by NumPy, so that every rank and every device starts from the same bits."""

from __future__ import annotations

import numpy as np


def normal(shape, std, rng=None, dtype="float32") -> np.ndarray:
    """Draw from N(0, std^2) in float64 and round to `dtype`: the same values in every precision.

    Parameters
    ----------
    shape : tuple of int
    std : float
    rng : numpy.random.Generator or int, optional
        An integer is a seed; None is seed 0.
    dtype : dtype
    """
    rng = rng if isinstance(rng, np.random.Generator) else np.random.default_rng(0 if rng is None else rng)
    return rng.normal(0.0, std, shape).astype(dtype)


def zeros(shape, dtype="float32") -> np.ndarray:
    """All zeros."""
    return np.zeros(shape, dtype)
