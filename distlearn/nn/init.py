"""Initial values of parameters: drawn by NumPy, so that every rank and every device starts from the same bits."""

from __future__ import annotations

import itertools
import math

import numpy as np

HE = math.sqrt(2)  # Gain that suits ReLU: it zeroes half of the values, so the weights need twice the variance.


def normal(shape, std, rng=None, dtype="float32") -> np.ndarray:
    """Draw from N(0, std^2) in float64 and round to `dtype`: the same values in every precision.

    Parameters
    ----------
    rng : numpy.random.Generator, int, sequence of int, or "zeros", optional
        An integer or several are a seed; None is seed 0. "zeros" draws nothing: for models that are only counted, as
        memory that was never written costs neither time nor space.
    """
    values = np.zeros(shape, dtype)
    if isinstance(rng, str):
        if rng != "zeros":
            raise ValueError(f"rng is {rng!r}, expected a Generator, a seed, or 'zeros'")
        return values
    rng = rng if isinstance(rng, np.random.Generator) else np.random.default_rng(0 if rng is None else rng)
    flat = values.reshape(-1)
    for start in range(0, flat.size, PIECE):  # in pieces: 38 million float64 would be 300 MB for nothing
        part = flat[start : start + PIECE]
        part[...] = rng.normal(0.0, std, part.size)
    return values


PIECE = 1 << 20  # Values drawn at a time; the sequence is the same for any size.


def seeds(seed: int | None):
    """Give the layers of a model their seeds: (seed, 0), (seed, 1), ...; None leaves all weights zero, for counting."""
    return itertools.repeat("zeros") if seed is None else ([seed, i] for i in itertools.count())


def zeros(shape, dtype="float32") -> np.ndarray:
    """Return an array of zeros."""
    return np.zeros(shape, dtype)
