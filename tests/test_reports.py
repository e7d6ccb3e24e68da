"""The rows of public_reports.md name tests that exist."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
TEXT = (TESTS / "public_reports.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]*#[^|]*) \| ([^|]*) \| `(.*)::(.*)` \|$", TEXT, re.MULTILINE)


def test_every_row_is_read():
    assert len(ROWS) == TEXT.count("::") > 40


@pytest.mark.parametrize(("source", "expected", "file", "name"), ROWS, ids=[row[0].strip() for row in ROWS])
def test_a_test_holds_what_was_reported(source, expected, file, name):
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, expected
