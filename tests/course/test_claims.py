"""What labs claim, computed: each `claims_*.py` lists the lab, its words, what computes them, and what must hold."""

import importlib
from pathlib import Path

import pytest
from distcourse.author import source_notebooks
from distcourse.author.source import Source

from .conftest import COURSE

FILES = sorted(path.stem for path in Path(__file__).parent.glob("claims_*.py"))
CLAIMS = [claim for name in FILES for claim in importlib.import_module(f".{name}", __package__).CLAIMS]
TEXTS = {s.number: "\n".join(cell.source for cell in s.cells) for s in map(Source, source_notebooks(COURSE))}


def test_labs_say_what_is_claimed_of_them():
    gone = [f"{c.lab}: {c.said}" for c in CLAIMS if c.said not in " ".join(TEXTS[c.lab].split())]
    assert gone == []


@pytest.mark.parametrize(
    "claim", [pytest.param(c, marks=[pytest.mark.nightly] * c.slow, id=f"{c.lab}: {c.said[:50]}") for c in CLAIMS]
)
def test_what_a_lab_says_is_so(claim):
    found = claim.compute()
    assert claim.holds(found), f"lab {claim.lab} says: {claim.said}; computed: {found}"
