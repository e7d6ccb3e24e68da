"""The mistakes that everyone makes once, each with the test that recognises it.

Every explanation undoes one mistake: if the result is right, that was the mistake. The functions take `right(x)`,
which says whether `x` equals the reference within the tolerance of the check.
"""

from __future__ import annotations

import itertools
import re

import numpy as np

ACTIONS = re.compile(r"(\d*[A-Z]\d+ ?)+")


def shape_mistake(name, got, want, right) -> str:
    """Name the mistake behind a wrong shape, or return ""."""
    if got.ndim >= 2 and got.shape == want.shape[::-1]:
        return f"{name} is the transpose of what is wanted" if right(got.T) else f"{name} has the transpose's shape"
    if got.size == want.size and right(got.reshape(want.shape)):
        return f"the numbers of {name} are right, the shape is not: reshape, or leave out keepdims"
    if got.ndim == want.ndim + 1:
        batch = want.ndim and want.dtype.kind == "f"  # or the mean of a few whole numbers may be right by chance
        for axis in range(got.ndim):
            for word, reduced in (("summed", got.sum(axis)), ("averaged", got.mean(axis) if batch else got)):
                if right(reduced):
                    return f"{name} is not {word} over axis {axis} yet" + (" (the batch)" if batch and not axis else "")
    for axis in range(want.ndim):
        for word, reduced in (("summed", want.sum(axis)), ("averaged", want.mean(axis))):
            if got.shape == reduced.shape and _same(got, reduced):
                return f"{name} is {word} over axis {axis}, which should be kept"
    if want.ndim and got.ndim == 0:
        return f"{name} is a single number, wanted one per element: did you reduce over all axes?"
    if got.ndim == want.ndim:
        axes = [k for k in range(got.ndim) if got.shape[k] != want.shape[k]]
        gaps = [got.shape[k] - want.shape[k] for k in axes]
        if set(gaps) in ({1}, {-1}):
            which = f"axis {axes[0]} of {name} is" if len(axes) == 1 else f"axes {axes} of {name} are"
            return f"{which} one {'longer' if gaps[0] > 0 else 'shorter'} than wanted"
    return ""


def value_mistake(name, got, want, right, factors) -> str:
    """Name the mistake behind wrong numbers in the right shape, or return ""."""
    if not np.isfinite(got).all() and np.isfinite(want).all():
        bad = ~np.isfinite(got)
        first = ", ".join(str(int(k)) for k in np.argwhere(bad)[0])
        kind = "NaN" if np.isnan(got[bad]).all() else "infinite" if not np.isnan(got).any() else "NaN or infinite"
        if not got.ndim:
            return f"{name} is {kind}"
        return f"{int(bad.sum())} of {got.size} elements of {name} are {kind}, the first at [{first}]"
    if np.ptp(got) == 0 and (np.ptp(want) > 0 or not got.any()):
        return f"every element of {name} is {got.flat[0]:.4g}" if got.size > 1 else ""
    for explain in (_factor, _undone, _order, _precision, _place):
        text = explain(name, got, want, right, factors)
        if text:
            return text
    return ""


def _factor(name, got, want, right, factors) -> str:
    if got.dtype.kind not in "iuf" or want.dtype.kind not in "iuf":
        return ""
    big = np.abs(want) > 1e-6 * np.max(np.abs(want), initial=0.0)
    if not big.any():
        return ""
    k = float(np.median(got[big] / want[big]))
    if k == 0 or f"{k:.4g}" == "1" or not right(got / k):
        return ""
    if np.isclose(k, -1):
        return f"{name} is the negative of what is wanted"
    known = _named_factor(abs(k), factors, got.shape if want.dtype.kind == "f" else ())  # counts are no axis' mean
    if not known and big.sum() < 2:
        return ""  # any two numbers are multiples of each other
    flipped = ", with the opposite sign" if k < 0 else ""
    if abs(k) >= 1 or not np.isclose(1 / abs(k), round(1 / abs(k))):
        times = f"{abs(k):.4g} times"
    else:
        times = f"1/{round(1 / abs(k))} of"
    return f"{name} is {times} the reference{known}{flipped}"


def _named_factor(k, factors, shape) -> str:
    """Name a factor, or a length of the array: that both are equal is unlikely to be a coincidence."""
    counts = "did you divide by their number?", "did you divide once too often?"
    lengths = "summed where a mean is expected?", "averaged where a sum is expected?"
    known = [(n, f"there are {n:g} {label}", counts) for label, n in factors.items()]
    known += [(n, f"axis {axis} has length {n}", lengths) for axis, n in enumerate(shape)]
    for n, fact, (many, few) in known:
        if n > 1 and (np.isclose(k, n) or np.isclose(k, 1 / n)):
            return f", and {fact}: {many if k > 1 else few}"
    return ""


def _undone(name, got, want, right, factors) -> str:
    whole = want.size == 1 and want.dtype.kind in "iuf" and not np.any(want % 1)
    if whole or not (np.isfinite(want) & (want != 0)).any():
        return ""  # 0 is exp(-50), too, infinity exp(800), and 1024 may be the square of 32 by chance
    for undone, text in (
        (lambda: got.T, f"{name} is the transpose of what is wanted"),
        (lambda: np.exp(got), f"{name} is the logarithm of what is wanted"),
        (lambda: np.log(got), f"{name} is the exponential of what is wanted"),
        (lambda: np.sqrt(got), f"{name} is the square of what is wanted: did you forget the root?"),
        (lambda: np.square(got), f"{name} is the square root of what is wanted: did you forget to square?"),
        (lambda: 1 / got, f"{name} is the reciprocal of what is wanted"),
        (lambda: 1 - got, f"{name} is one minus what is wanted"),
    ):
        if right(undone()):
            return text
    gap = got - want if got.dtype.kind != "b" else np.zeros(1)
    if got.size > 2 and np.ptp(want) > 0 and right(got - np.median(gap)):
        return f"{name} is too {'large' if np.median(gap) > 0 else 'small'} by {abs(np.median(gap)):.4g} everywhere"
    if got.dtype.kind in "iu" and want.dtype.kind == "f" and np.all(np.abs(got - want) <= 1):
        return f"{name} is rounded to whole numbers (dtype {got.dtype}): an integer array or // where / is wanted?"
    return ""


def _order(name, got, want, right, factors) -> str:
    differ = len(np.unique(want))
    if got.ndim == 0 or differ <= want.size / 2 or (want.dtype.kind in "iu" and differ < 4):
        return ""  # a few numbers are the same in another order by chance
    if right(got[::-1]):
        return f"{name} is in reverse order"
    for k in range(1, min(len(got), 64)):
        if right(np.roll(got, -k, axis=0)):
            back = len(got) - k
            by = f"{k} down" if k <= back else f"{back} up"
            return f"the rows of {name} are shifted by {by}: a neighbour's result?"
    if right(np.sort(got, axis=None)[np.argsort(np.argsort(want, axis=None))].reshape(want.shape)):
        return f"{name} holds the right numbers in another order"
    return ""


def _place(name, got, want, right, factors) -> str:
    scale = np.max(np.abs(want[np.isfinite(want)]), initial=0.0) or 1.0
    wrong = ~np.isclose(got, want, rtol=1e-6, atol=1e-9 * scale, equal_nan=True)
    if not wrong.any() or wrong.all():
        return ""
    for axis, n in enumerate(wrong.shape):
        rows = np.unique(np.nonzero(wrong)[axis])
        if n > 2 and len(rows) == 1:
            ordinal = " (the last)" if rows[0] == n - 1 else " (the first)" if rows[0] == 0 else ""
            return f"only index {rows[0]}{ordinal} of axis {axis} of {name} is wrong"
        if n > 3 and rows[-1] == n - 1 and rows[0] > n // 2 and len(rows) == n - rows[0]:
            return f"{name} is right up to index {rows[0] - 1} of axis {axis}, wrong from there to the end"
    return ""


def _precision(name, got, want, right, factors) -> str:
    scale = float(np.max(np.abs(want), initial=0.0)) or 1.0
    error = float(np.max(np.abs(got - want), initial=0.0)) / scale
    if error < 1e-5 and got.dtype.kind == "f":
        why = "float32 somewhere on the way, or a small constant missing or misplaced?"
        return f"{name} is right to {-int(np.floor(np.log10(error or 1e-16)))} digits only: {why}"
    return ""


def row_mistake(got: str, want: str) -> str:
    """Say where a row of actions, such as `F0 F1 B0`, leaves the right one; "" if it is another text."""
    pairs = itertools.zip_longest(got.split(), want.split(), fillvalue="the end")
    for k, (mine, due) in enumerate(pairs):
        if mine != due and ACTIONS.fullmatch(want):
            return f"right up to position {k}, where {due} is due, not {mine}"
    return ""


def _same(a, b) -> bool:
    return bool(np.allclose(a, b, rtol=1e-6, atol=1e-9))
