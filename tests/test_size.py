"""Tokens of code by folder, with caps that only fall: what is added pays for itself by a cut elsewhere.

Docstrings and comments do not count, nor does how code is laid out: three lines that can be read cost no more than one
that cannot. A folder may be 3 % above its cap, which is room for a contribution. `python tests/test_size.py`, which
`make lint` runs, prints the table, and fails where the tests would.
"""

import ast
import functools
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent

CAPS = {
    "distcourse": 132_100,
    "distlearn": 5_897,
    "distlearn/cli": 16_745,
    "distlearn/comm": 21_300,
    "distlearn/cuda": 38_180,
    "distlearn/data": 9_580,
    "distlearn/nn": 41_871,
    "distlearn/optim": 4_450,
    "distlearn/parallel": 53_931,
    "distlearn/sim": 25_481,
    "distlearn/testing": 4_780,
    "distlearn/train": 9_005,
    "distlearn/viz": 17_320,
    "distlearn/world": 15_304,
}
"""By folder: tokens of code."""
GOALS = {"distlearn": 200_000, "distcourse": 110_000, "tests": 30_000}
"""By package: tokens of code; lines of the tests."""
DOCSTRINGS = 9_415
"""Lines of docstrings of both packages."""
FILES = 282
TESTS = 41_473
"""Lines of the tests; the benchmarks beside them, commands that `distlearn bench` runs, are not counted."""
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


def size_of(source: str) -> tuple[int, int]:
    """Tokens of code, and lines of docstrings."""
    text = docstring_lines(ast.parse(source))
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(token.type not in LAYOUT and token.start[0] not in text for token in found), len(text)


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


def too_large() -> list[str]:
    code, docstrings, files = count()
    sizes = [(folder, n, CAPS.get(folder, 0)) for folder, n in code.items()]
    sizes += [("docstrings", docstrings, DOCSTRINGS), ("files", files, FILES), ("tests", lines_of_tests(), TESTS)]
    return [f"{name}: {n:,}, and {SLACK * cap:,.0f} at most" for name, n, cap in sizes if n > SLACK * cap]


def test_no_folder_grows():
    assert not too_large(), "make room, the caps only fall"


def test_caps_are_close():
    """A cut lowers its cap, or the room would be filled again."""
    code, *_ = count()
    assert set(CAPS) == set(code)
    assert {folder: (CAPS[folder], n) for folder, n in code.items() if CAPS[folder] > SLACK * n} == {}


if __name__ == "__main__":
    code, docstrings, files = count()
    for folder, n in sorted(code.items()):
        print(f"{n:8,}  of {CAPS.get(folder, 0):8,}  {folder}")
    library = sum(n for folder, n in code.items() if folder != "distcourse")
    for name, n in {"distlearn": library, "distcourse": code["distcourse"], "tests": lines_of_tests()}.items():
        print(f"{n:8,}  goal {GOALS[name]:8,}  {name}{', lines' * (name == 'tests')}")
    print(f"{docstrings:8,}  of {DOCSTRINGS:8,}  lines of docstrings; {files} files")
    sys.exit("\n".join(too_large()) or None)
