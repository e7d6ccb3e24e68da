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


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.lab}: {claim.said[:50]}")
def test_what_a_lab_says_is_there_and_is_so(request, claim):
    assert claim.said in " ".join(TEXTS[claim.lab].split()), f"lab {claim.lab} says this no more: {claim.said}"
    if claim.slow and not request.config.getoption("--thorough", default=False):
        pytest.skip("takes long: pytest tests/course/test_claims.py --thorough")
    found = claim.compute()
    assert claim.holds(found), f"lab {claim.lab} says: {claim.said}; computed: {found}"
