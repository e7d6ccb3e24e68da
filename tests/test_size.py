"""Tokens of code by folder, with caps that only fall: what is added pays for itself by a cut elsewhere.

Docstrings, comments and types do not count, nor does how code is laid out: three lines that can be read cost no more
than one that cannot. A folder may be 3 % above its cap, which is room for a contribution:
who merges it makes the cap what the folder holds, and cuts as much elsewhere. `python tests/test_size.py`,
which `make lint` runs, prints the table, and fails where the tests would.
"""

import ast
import bisect
import functools
import io
import math
import sys
import tokenize
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

CAPS = {
    "distcourse": 119_007,
    "distlearn": 5_832,
    "distlearn/cli": 11_546,
    "distlearn/comm": 18_839,
    "distlearn/cuda": 32_448,
    "distlearn/data": 8_266,
    "distlearn/nn": 35_768,
    "distlearn/optim": 3_356,
    "distlearn/parallel": 43_019,
    "distlearn/sim": 22_407,
    "distlearn/testing": 5_017,
    "distlearn/train": 8_147,
    "distlearn/viz": 14_255,
    "distlearn/world": 14_355,
}
"""By folder: tokens of code."""
GOALS = {"distlearn": 187_885, "distcourse": 105_042, "tests": 30_000}
"""By package: tokens of code; lines of the tests."""
DOCSTRINGS = 9_073
"""Lines of docstrings of both packages."""
FILES = 284
TESTS = 40_124
"""Lines of the tests; the benchmarks beside them, commands that `python -m tests.benchmarks` runs, are not counted."""
SLACK = 1.03

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def docstring_lines(tree: ast.AST) -> set[int]:
    """Numbers of the lines of strings that stand alone: docstrings, of attributes too."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]
    texts = [s for body in bodies for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)]
    return {line for s in texts if isinstance(s.value.value, str) for line in range(s.lineno, s.end_lineno + 1)}


def types(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations stand, and what is imported for them alone: to be read like docstrings, no code."""
    found = []
    for node in ast.walk(tree):
        found += [getattr(node, "annotation", None), getattr(node, "returns", None)]
        checking = isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        imported = isinstance(node, ast.ImportFrom) and node.module in ("typing", "collections.abc")
        found += [node] * (checking or imported)
    return sorted(((n.lineno, n.col_offset), (n.end_lineno, n.end_col_offset)) for n in found if n is not None)


def size_of(source: str) -> tuple[int, int]:
    """Tokens of code, and lines of docstrings."""
    tree = ast.parse(source)
    docstrings, spans, code, last = docstring_lines(tree), types(tree), 0, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in LAYOUT or token.start[0] in docstrings:
            continue
        n = bisect.bisect_right(spans, (token.start, (math.inf, 0)))  # of the spans that begin at the token or before
        if not n or token.start >= spans[n - 1][1]:
            code += 1
        elif token.start == spans[n - 1][0] and last in (":", "->"):
            code -= 1
        last = token.string
    return code, len(docstrings)


@functools.cache
def count() -> tuple[Counter, int, int]:
    """Tokens of code by folder, lines of docstrings, and the number of files of both packages."""
    code, docstrings, files = Counter(), 0, 0
    for package in (ROOT / "distlearn", ROOT / "course/distcourse"):
        for path in package.rglob("*.py"):
            here, docs = size_of(path.read_text(encoding="utf-8"))
            inside = path.relative_to(package).parts
            folder = package.name if len(inside) == 1 or package.name == "distcourse" else f"distlearn/{inside[0]}"
            code[folder] += here
            docstrings += docs
            files += 1
    return code, docstrings, files


def lines_of_tests() -> int:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if "benchmarks" not in path.parts]
    return sum(path.read_text(encoding="utf-8").count("\n") for path in tests)


def complaints() -> list[str]:
    """What is too large, and which cap is too high: a cut lowers its cap, or the room would be filled again."""
    code, docstrings, files = count()
    sizes = [(folder, n, CAPS.get(folder, 0)) for folder, n in code.items()]
    sizes += [("docstrings", docstrings, DOCSTRINGS), ("files", files, FILES), ("tests", lines_of_tests(), TESTS)]
    found = [f"{name}: {n:,}, and {SLACK * cap:,.0f} at most" for name, n, cap in sizes if n > SLACK * cap]
    return found + [f"{name}: its cap is {cap:,}, and it holds {n:,}" for name, n, cap in sizes if cap > SLACK * n]


@pytest.mark.nightly  # `make lint`, which every commit runs, asks the same
def test_caps():
    assert not complaints(), "make room, the caps only fall"


if __name__ == "__main__":
    code, docstrings, files = count()
    for folder, n in sorted(code.items()):
        print(f"{n:8,}  of {CAPS.get(folder, 0):8,}  {folder}")
    library = sum(n for folder, n in code.items() if folder != "distcourse")
    for name, n in {"distlearn": library, "distcourse": code["distcourse"], "tests": lines_of_tests()}.items():
        print(f"{n:8,}  goal {GOALS[name]:8,}  {name}{', lines' * (name == 'tests')}")
    print(f"{docstrings:8,}  of {DOCSTRINGS:8,}  lines of docstrings; {files} files")
    sys.exit("\n".join(complaints()) or None)
