"""What an optimizer's formula is: a rule on bare arrays."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import numpy as np

PIECE = 1 << 16
"""Elements that are updated at a time: a rule's arrays then stay in the cache from one operation to the next."""
SETTLE = 64
"""Updates between two searches of the state for subnormal values."""


class Rule(Protocol):
    """An optimizer's formula for one array.

    A rule that uses more than one element at a time says `whole = True`: it must see a parameter as a whole.
    """

    def init(self, data) -> Any:
        """Make the state for an array like `data` (None if the rule has no memory)."""

    def update(self, data, grad, state, lr: float, step: int) -> None:
        """Change `data` (and `state`) in place; `grad` is left as it was. Steps count from 0."""


def check_rule(what: str, rule) -> None:
    """Raise unless something is a rule: not its class, and not an optimizer, which has one."""
    if isinstance(rule, type) or not (hasattr(rule, "init") and hasattr(rule, "update")):
        raise TypeError(f"{what}: rule is {rule!r}, expected a rule, such as Momentum()")


def needs_whole(rule: Rule) -> bool:
    """Say whether a rule must see whole parameters."""
    return getattr(rule, "whole", False)  # a user's rule may omit the attribute


def memory_of(state) -> tuple:
    """Return the arrays of a rule's state for one parameter: none, one, or several."""
    return state if isinstance(state, tuple) else () if state is None else (state,)


def pieces(rule, data, grad, state):
    """Yield (data, grad, state) piece by piece, as views; large arrays on a CPU are split, others are not.

    A rule makes several passes over its arrays; piece by piece, all but the first find them in the cache.
    """
    cut = isinstance(data, np.ndarray) and data.size > 2 * PIECE and not needs_whole(rule)
    arrays = [data, grad, *memory_of(state)]
    if not cut or not all(a.flags.c_contiguous for a in arrays):
        yield data, grad, state
        return
    flat = [a.reshape(-1) for a in arrays]
    for i in range(0, data.size, PIECE):
        d, g, *s = (a[i : i + PIECE] for a in flat)
        yield d, g, tuple(s) if isinstance(state, tuple) else s[0] if s else None


def apply(rule, data, grad, state, lr: float, step: int) -> None:
    """Update an array by a rule, piece by piece, and now and then `settle` its state.

    Parameters
    ----------
    rule : Rule
    data, grad : array
        `data` changes in place.
    state : object
        What `rule.init` returned.
    lr : float
    step : int
        From 0.
    """
    for d, g, s in pieces(rule, data, grad, state):
        rule.update(d, g, s, lr, step)
        if step % SETTLE == SETTLE - 1 and isinstance(d, np.ndarray):
            settle(s)


def settle(state) -> None:
    """Set to zero, in place, values so small that their products are subnormal numbers.

    The velocity of a weight whose gradient stays zero halves every few steps; at 1e-45 rounding keeps it above zero
    forever. Processors compute with subnormal numbers a hundred times as slowly: after 1,000 steps on MNIST, a
    network's updates took five times as long as at first. In half precision, which is
    computed in single, nothing is that small.
    """
    for s in memory_of(state):
        if s.dtype in (np.float32, np.float64):
            limits = np.finfo(s.dtype)
            s[abs(s) < limits.tiny / limits.eps] = 0


def decayed(grad, data, weight_decay: float):
    """Return the gradient with the weight decay's pull towards zero added."""
    return grad + weight_decay * data if weight_decay else grad


def add_scaled(data, factor: float, values) -> None:
    """Add `factor * values` to `data`, in place.

    NumPy makes two passes and a temporary array; BLAS one pass, in which the product is not rounded before it is added.
    """
    if isinstance(data, np.ndarray) and data.flags.carray and 0 < data.size < 2**31:
        axpy = _axpy().get(data.dtype)
        if axpy is not None and values.dtype == data.dtype and values.flags.c_contiguous:
            axpy(values.reshape(-1), data.reshape(-1), a=factor)
            return
    data += factor * values


@functools.cache
def _axpy():
    """BLAS's functions for y + a x, by precision."""
    from scipy.linalg.blas import daxpy, saxpy

    return {np.dtype("float32"): saxpy, np.dtype("float64"): daxpy}


def check_share(rule, **values) -> None:
    """Raise unless every value is from 0 to below 1."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{type(rule).__name__}: {name} is {value!r}, expected 0 <= {name} < 1")


def check_not_negative(rule, **values) -> None:
    """Raise unless every value is 0 or more."""
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"{type(rule).__name__}: {name} is {value!r}, expected 0 or more")
