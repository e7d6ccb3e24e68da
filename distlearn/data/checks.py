"""Checks of arguments that several modules share."""

from __future__ import annotations

import operator


def check_arrays(where: str, **arrays) -> None:
    """Raise unless these are arrays, of NumPy or CuPy."""
    for name, value in arrays.items():
        if not hasattr(value, "shape"):
            kind = type(value).__name__
            raise TypeError(f"{where}: {name} is a {kind}, expected an array, such as np.array({name})")


def whole(where: str, name: str, value, least: int, most: int | None = None) -> int:
    """Return `value` as an int, or raise if it is not a whole number from `least` to `most`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or number < least or (most is not None and number > most):
        span = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ValueError(f"{where}: {name} is {value!r}, expected a whole number, {span}")
    return number
