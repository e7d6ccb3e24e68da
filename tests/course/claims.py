"""What a claim of a lab is, and the answers that claims are computed with."""

import functools
from collections.abc import Callable
from typing import NamedTuple

from distcourse.author import source_notebooks
from distcourse.author.exercise import Solved

from .conftest import COURSE


class Claim(NamedTuple):
    lab: str
    said: str  # words of the lab, spaces and line breaks alike
    compute: Callable
    holds: Callable  # gets what was computed
    slow: bool = False


@functools.cache
def answers(lab: str, name: str) -> tuple:
    """Return what a lab's solution of an exercise defines."""
    return Solved(next(p.parent for p in source_notebooks(COURSE) if p.stem == f"lab{lab}")).answers(name)


def answer(lab: str, name: str):
    """Return what a lab's solution of an exercise defines, the last if there are several."""
    return answers(lab, name)[-1]
