"""What a claim of a lab is."""

from collections.abc import Callable
from typing import NamedTuple


class Claim(NamedTuple):
    lab: str
    said: str  # words of the lab, spaces and line breaks alike
    compute: Callable
    holds: Callable  # gets what was computed
    slow: bool = False
