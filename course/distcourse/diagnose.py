"""What went wrong with this tensor? Compare two arrays and name the common mistake that explains the difference.

When they differ, explanations are tried, the most specific first: shape, missing values, factors, signs, order. The
student is told the first that turns the wrong array into the right one.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from distlearn.backend import to_numpy

from .mistakes import shape_mistake, value_mistake

# Default relative tolerance by bytes of the less precise float: a few hundred roundings.
RTOL = {2: 1e-2, 4: 1e-5, 8: 1e-9}


class Comparison(NamedTuple):
    """Outcome of one comparison: is it right, what was seen, and which mistake explains it ("" if none does)."""

    ok: bool
    seen: str
    mistake: str = ""


def compare(name, got, want, *, rtol=None, dtype=None, factors=None) -> Comparison:
    """Compare an answer with the reference.

    Parameters
    ----------
    rtol : float, optional
        An element is right if it differs by at most `rtol * (abs(want) + largest)` with the largest wanted value, so
        that entries that cancel to nearly zero do not fail the check. By default it follows the less precise dtype:
        float64 1e-9, float32 1e-5, float16 1e-2.
    factors : dict of str to number, optional
        Numbers of the exercise by name, `{"ranks": 4, "batch size": 32}`: the message says if an answer is off by one.
    """
    want = np.asarray(to_numpy(want))
    problem = _not_an_array(got)
    if problem:
        return Comparison(False, f"wanted {_brief(want)}", f"{name} {problem}")
    listed, got = isinstance(got, (list, tuple)), np.asarray(to_numpy(got))
    if got.dtype.kind == "c" and want.dtype.kind != "c":  # imaginary parts of 0 are lost in a later cell
        dtype = want.dtype
    if rtol is None:
        rtol = _default_rtol(got, want)
    largest = float(np.max(np.abs(want[np.isfinite(want)]), initial=0.0)) if want.dtype.kind in "fc" else 1.0
    atol = rtol * largest or rtol

    def right(x, y=want):
        x, y = np.asarray(x), np.asarray(y)
        return x.shape == y.shape and bool(np.allclose(x, y, rtol=rtol, atol=atol, equal_nan=True))

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of overflow, empty means, lost imaginary parts: undoing mistakes makes them
        if right(got):
            if dtype is not None and (listed or got.dtype != np.dtype(dtype)):
                found = "it is a list" if listed else f"its dtype is not: {got.dtype}"
                mistake = f"the numbers of {name} are right, {found}, wanted an array of {np.dtype(dtype)}"
                return Comparison(False, f"{_brief(got)}", mistake)
            return Comparison(True, _brief(got))
        # booleans do not subtract, and unsigned integers wrap
        got, want = (a.astype(np.int64) if a.dtype.kind in "bu" else a for a in (got, want))
        few = got.ndim == want.ndim == 1 and got.size + want.size < 17 and got.dtype.kind == want.dtype.kind == "i"
        lists = f"wanted {want.tolist()}, got {got.tolist()}" if few else ""
        if got.shape != want.shape:
            mistake = shape_mistake(name, got, want, right)
            return Comparison(False, lists or f"wanted shape {want.shape}, got {got.shape}", mistake)
        mistake = value_mistake(name, got, want, right, factors or {})
        return Comparison(False, lists or _difference(got, want), mistake)


def _not_an_array(got) -> str:
    if got is None:
        return "is None: did you forget `return`?"
    if got is Ellipsis or got is NotImplemented:
        return f"is still {got!r}"
    if callable(got):
        return "is a function: did you forget to call it?"
    if isinstance(got, (dict, set)):
        return f"is {kind_of(got)}, wanted an array"
    try:
        array = np.asarray(to_numpy(got))
    except Exception as error:
        if isinstance(got, (list, tuple)):  # NumPy's message is long and does not help
            return f"is {kind_of(got)} of {len(got)}, wanted one array"
        return f"is a {type(got).__name__} that NumPy cannot turn into an array ({error})"
    if array.dtype.kind == "O" and any(item is None for item in array.flat):
        return "has None in it: did you forget `return`?"
    if array.dtype.kind not in "biufc":
        return f"is {kind_of(got)}, wanted an array of numbers"
    return ""


def _default_rtol(got, want) -> float:
    sizes = [a.dtype.itemsize // (2 if a.dtype.kind == "c" else 1) for a in (got, want) if a.dtype.kind in "fc"]
    return RTOL.get(min(sizes, default=8), 1e-9)


def _brief(a) -> str:
    return f"{a.dtype} {a.item():.6g}" if a.ndim == 0 else f"{a.dtype} {a.shape}"


def _difference(got, want) -> str:
    if got.ndim == 0:
        return _both(want.item(), got.item())
    wrong = np.abs(got.astype(np.result_type(got, want, np.float64)) - want)
    where = np.unravel_index(int(np.argmax(np.where(np.isnan(wrong), np.inf, wrong))), wrong.shape)
    index = ", ".join(map(str, map(int, where)))
    return f"largest difference {wrong[where]:.3g} at [{index}]: {_both(want[where], got[where])}"


def _both(want, got) -> str:
    digits = 6 if f"{want:.6g}" != f"{got:.6g}" else 12
    return f"wanted {want:.{digits}g}, got {got:.{digits}g}"


def kind_of(value) -> str:
    """Return the type of a value with its article: "a list", "an array"."""
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
