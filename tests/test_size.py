"""Lines of code by folder, with caps that may only be lowered: what is added pays for itself by a cut elsewhere.

A line of code has a token; docstrings, comments and blank lines do not count. `python tests/test_size.py`, which
`make lint` runs, prints the table.
"""

import ast
import functools
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent

CAPS = {
    "distcourse": 11_461,
    "distlearn": 473,
    "distlearn/cli": 1_511,
    "distlearn/comm": 1_845,
    "distlearn/cuda": 3_085,
    "distlearn/data": 797,
    "distlearn/nn": 3_403,
    "distlearn/optim": 498,
    "distlearn/parallel": 5_363,
    "distlearn/sim": 2_264,
    "distlearn/train": 832,
    "distlearn/viz": 1_531,
    "distlearn/world": 1_924,
}
"""By folder: the largest number of lines of code."""
DOCSTRINGS = 9_584
"""Lines of docstrings of both packages."""
FILES = 282
TESTS = 41_473
"""Lines of the tests; the benchmarks beside them, commands that `distlearn bench` runs, are not counted."""


def docstring_lines(tree: ast.AST) -> set[int]:
    """Numbers of the lines of strings that stand alone: docstrings, of attributes too."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(getattr(node, "body", None), list)]
    texts = [s for body in bodies for s in body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)]
    return {line for s in texts if isinstance(s.value.value, str) for line in range(s.lineno, s.end_lineno + 1)}


def lines_of(source: str) -> tuple[int, int]:
    """Lines of code and of docstrings."""
    tree = ast.parse(source)
    text = docstring_lines(tree)
    code = {i for i, line in enumerate(source.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr))
    for node in strings:  # their lines may be empty, or look like comments
        code.update(range(node.lineno, node.end_lineno + 1))
    return len(code - text), len(text)


@functools.cache
def count() -> tuple[Counter, int, int]:
    """Lines of code by folder, lines of docstrings, and the number of files of both packages."""
    code, docstrings, files = Counter(), 0, 0
    for package in (ROOT / "distlearn", ROOT / "course/distcourse"):
        for path in package.rglob("*.py"):
            here, docs = lines_of(path.read_text(encoding="utf-8"))
            inside = path.relative_to(package).parts
            folder = package.name if len(inside) == 1 or package.name == "distcourse" else f"distlearn/{inside[0]}"
            code[folder] += here
            docstrings += docs
            files += 1
    return code, docstrings, files


def test_no_folder_grows():
    code, docstrings, files = count()
    too_large = {folder: n for folder, n in code.items() if n > CAPS.get(folder, 0)}
    assert not too_large, f"caps: { ({f: CAPS.get(f, 0) for f in too_large}) }; make room, the caps only fall"
    assert docstrings <= DOCSTRINGS
    assert files <= FILES
    tests = [path for path in (ROOT / "tests").rglob("*.py") if "benchmarks" not in path.parts]
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in tests) <= TESTS


def test_caps_are_close():
    """A cut lowers its cap, or the room would be filled again."""
    code, *_ = count()
    assert set(CAPS) == set(code)
    assert {folder: CAPS[folder] for folder in code if CAPS[folder] > code[folder] + 50} == {}


if __name__ == "__main__":
    code, docstrings, files = count()
    for folder, n in sorted(code.items()):
        print(f"{n:6,}  of {CAPS.get(folder, 0):6,}  {folder}")
    library = sum(n for folder, n in code.items() if folder != "distcourse")
    print(f"{library:6,}  library, {code['distcourse']:,} course; {docstrings:,} lines of docstrings, {files} files")
