"""What an optimizer's formula is: a rule on bare arrays."""

from __future__ import annotations

from typing import Any, Protocol


class Rule(Protocol):
    """An optimizer's formula for one array."""

    def init(self, data) -> Any:
        """Make the state for an array like `data` (None if the rule has no memory)."""

    def update(self, data, grad, state, lr: float, step: int) -> None:
        """Change `data` (and `state`) in place; `grad` is left as it was. Steps count from 0."""


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
