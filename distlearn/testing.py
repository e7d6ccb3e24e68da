"""Checks that a right implementation passes; the library's tests and the labs' check cells use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .backend import get_xp, to_numpy

TOLERANCE = 1e-7  # Largest error of a gradient, relative to max(1, |gradient|).


class GradientError(NamedTuple):
    """How far one analytic gradient is from the numeric one."""

    name: str  # "dx", or the parameter's name.
    error: float  # Largest |analytic - numeric| / max(1, |analytic|, |numeric|).
    index: tuple[int, ...]  # Where that is.
    analytic: float
    numeric: float


def numeric_gradient(f: Callable[[], float], x, eps: float = 1e-6):
    """Differentiate `f` with respect to every element of `x` by central differences."""
    # f: Returns a float, or an array whose sum is differentiated: then what `x` does not change adds no rounding. Reads
    # `x`, which is changed in place and restored.
    # eps: Half the distance of the two points, times |x| where that is above 1. The error is O(eps^2) from the curve
    # and O(1e-16 / eps) from rounding, least near eps = 1e-5 to 1e-6.
    # TypeError: If `x` is not float64.
    if str(x.dtype) != "float64":  # in single precision the two points would be one
        raise TypeError(f"numeric_gradient: x is {x.dtype}, expected float64; pass x.astype('float64')")
    gradient = get_xp(x).zeros_like(x)
    for place in np.ndindex(x.shape):  # not x.reshape(-1): of an array with gaps, that is a copy
        kept = float(x[place])
        step = eps * max(1.0, abs(kept))
        x[place] = kept + step
        above = f()
        x[place] = kept - step
        below = f()
        x[place] = kept
        gradient[place] = np.sum(above - below) / (2 * step)
    return gradient


def gradient_check(layer, x, *, seed: int = 0) -> list[GradientError]:
    """Compare a layer's backward pass with central differences of its forward pass.

    The scalar that is differentiated is sum(R * forward(x)) for a fixed random R, so that dy = R.

    Parameters
    ----------
    layer : Layer
        With parameters in float64.
    x : array
        Input; its gradient is checked when it is float64 and `backward` returns one.
    seed : int
        Of R.

    Returns
    -------
    errors : list of GradientError
        One for the input and one per parameter, each at most 1e-7.

    Raises
    ------
    AssertionError
        Naming the tensor, the element, and both values. Also if `output_shape` does not say the shape of the output:
        ranks without samples rely on it.
    TypeError
        If the layer computes in another precision, in which differences say nothing.
    """
    y, saved = layer.forward(x)
    promised = tuple(layer.output_shape(x.shape))
    if promised != y.shape:
        raise AssertionError(f"{layer!r}: output_shape says {promised} for input {x.shape}, forward gave {y.shape}")
    xp = get_xp(y)
    r = xp.asarray(np.random.default_rng(seed).normal(size=y.shape))

    def terms():
        return layer.forward(x)[0] * r

    before = [p.grad.copy() for p in layer.params]
    dx = layer.backward(r.copy(), saved)
    analytic = [(p.name, p.data, p.grad - g) for p, g in zip(layer.params, before, strict=True)]
    if dx is not None and x.dtype.kind == "f":
        if dx.shape != x.shape:
            raise AssertionError(f"{layer!r}: backward returned a gradient of shape {dx.shape} for an input {x.shape}")
        analytic.insert(0, ("dx", x, dx))
    errors = [_compare(name, to_numpy(g), to_numpy(numeric_gradient(terms, data))) for name, data, g in analytic]
    bad = [e for e in errors if not e.error <= TOLERANCE]
    if bad:
        lines = [
            f"{e.name}{list(e.index)}: backward says {e.analytic:.9g}, differences say {e.numeric:.9g} "
            f"(error {e.error:.2g})"
            for e in bad
        ]
        raise AssertionError(f"{layer!r}: gradient check failed (tolerance {TOLERANCE:g})\n  " + "\n  ".join(lines))
    return errors


def _compare(name, analytic, numeric) -> GradientError:
    """Find the element that differs most."""
    if analytic.size == 0:
        return GradientError(name, 0.0, (), 0.0, 0.0)
    error = np.abs(analytic - numeric) / np.maximum(1, np.maximum(np.abs(analytic), np.abs(numeric)))
    error = np.where(np.isnan(error), np.inf, error)
    index = np.unravel_index(int(error.argmax()), error.shape)
    place = tuple(int(i) for i in index)
    return GradientError(name, float(error[index]), place, float(analytic[index]), float(numeric[index]))


def assert_same_params(got: dict, want: dict, *, tol: float = 1e-12, what: str = "") -> None:
    """Raise unless two sets of trained parameters agree: the same names, shapes, and values to `tol`."""
    if list(got) != list(want):
        raise AssertionError(f"{what}: parameters are {list(got)}, expected {list(want)}")
    for name in want:
        a, b = np.asarray(got[name]), np.asarray(want[name])
        if a.shape != b.shape or a.dtype != b.dtype:
            raise AssertionError(f"{what}: {name} is {a.shape} {a.dtype}, expected {b.shape} {b.dtype}")
        difference = float(np.abs(a - b).max(initial=0.0))
        if not difference <= tol:
            raise AssertionError(f"{what}: {name} differs by {difference:.3g} from the reference (tolerance {tol:g})")
