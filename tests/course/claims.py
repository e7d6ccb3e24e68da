"""What a claim of a lab is, and the answers that claims are computed with."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import pytest
from distcourse.author import source_notebooks
from distcourse.author.exercise import Solved

import distlearn as dl

from .conftest import COURSE


class Claim(NamedTuple):
    lab: str
    said: str  # words of the lab, spaces and line breaks alike
    compute: Callable
    holds: Callable  # gets what was computed
    slow: bool = False


def need(data: str):
    """Skip a claim where its data would have to be downloaded."""
    if {a.name: a.origin for a in dl.data.available()}[data] not in ("package", "folder", "cache"):
        pytest.skip(f"needs {data}")


@functools.cache
def answers(lab: str, name: str) -> tuple:
    """Return what a lab's solution of an exercise defines."""
    return Solved(next(p.parent for p in source_notebooks(COURSE) if p.stem == f"lab{lab}")).answers(name)


def answer(lab: str, name: str):
    """Return what a lab's solution of an exercise defines, the last if there are several."""
    return answers(lab, name)[-1]
