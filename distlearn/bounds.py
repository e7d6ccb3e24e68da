"""Numbers in their range: sizes, rates and shares that a user gives are checked here, before any work is done."""

from __future__ import annotations

import operator
from numbers import Integral, Real
from typing import Any


def expected_number(value: Any, *, whole=False, least=None, above=None, most=None, below=None) -> str | None:
    """Describe the number that was expected; None if `value` is one. NaN, truth values and arrays are not.

    Examples
    --------
    >>> expected_number(0.5, above=0, most=1)
    >>> expected_number(1.5, above=0, most=1)
    'a number above 0 and up to 1'
    >>> expected_number(1.5, whole=True, least=1)
    'a whole number of 1 or more'
    """
    limits = (
        ("of {} or more", operator.ge, least),
        ("above {}", operator.gt, above),
        ("up to {}", operator.le, most),
        ("below {}", operator.lt, below),
    )
    limits = [limit for limit in limits if limit[-1] is not None]
    right = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if right and all(holds(value, bound) for _, holds, bound in limits):
        return None
    span = " and ".join(text.format(bound) for text, _, bound in limits).replace("below inf", "finite")
    return f"a {'whole ' * whole}number {span}"


def check_number(what: str, *, whole=False, least=None, above=None, most=None, below=None, **values) -> None:
    """Raise ValueError, with the caller `what` and the name, unless every value is a number within the bounds."""
    for name, value in values.items():
        expected = expected_number(value, whole=whole, least=least, above=above, most=most, below=below)
        if expected is not None:
            raise ValueError(f"{what}: {name} is {value!r}, expected {expected}")


def check_positive(what: str, **values) -> None:
    """Raise unless every value is a whole number of 1 or more."""
    check_number(what, whole=True, least=1, **values)
