"""What an optimizer's formula is: a rule on bare arrays."""

from __future__ import annotations

from typing import Any, Protocol


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
