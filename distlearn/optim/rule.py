"""What an optimizer's formula is: a rule on bare arrays."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

PIECE = 1 << 18
"""Elements that are updated at a time: a rule's arrays then stay in the cache from one operation to the next."""


class Rule(Protocol):
    """An optimizer's formula for one array.

    A rule may say `whole = True`: it must see a parameter as a whole, because it uses more than one element at a time.
    """

    def init(self, data) -> Any:
        """Make the state for an array like `data` (None if the rule has no memory)."""

    def update(self, data, grad, state, lr: float, step: int) -> None:
        """Change `data` (and `state`) in place; `grad` is left as it was. Steps count from 0."""


def pieces(rule, data, grad, state):
    """Yield (data, grad, state) piece by piece, as views; large arrays on a CPU are cut, others come whole.

    A rule makes several passes over its arrays; piece by piece, all but the first find them in the cache.
    """
    cut = isinstance(data, np.ndarray) and data.size > 2 * PIECE and not getattr(rule, "whole", False)
    arrays = [data, grad, *(state if isinstance(state, tuple) else [state] if state is not None else [])]
    if not cut or not all(a.flags.c_contiguous for a in arrays):
        yield data, grad, state
        return
    flat = [a.reshape(-1) for a in arrays]
    for i in range(0, data.size, PIECE):
        d, g, *s = (a[i : i + PIECE] for a in flat)
        yield d, g, tuple(s) if isinstance(state, tuple) else s[0] if s else None


def decayed(grad, data, weight_decay: float):
    """Return the gradient with the weight decay's pull towards zero added."""
    return grad + weight_decay * data if weight_decay else grad


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
