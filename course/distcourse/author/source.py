"""A lab's source notebook, read for checking."""

from __future__ import annotations

import ast
import copy
import hashlib
import re
import warnings
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import nbformat

from ..check import globals_of, named_by

SECTION = re.compile(r"^## (?:(?P<number>\d+)\. )?(?P<title>.+?)(?: \((?P<minutes>\d+) min\))?\s*$", re.MULTILINE)
BEGIN_SOLUTION, END_SOLUTION = "### BEGIN SOLUTION", "### END SOLUTION"
BEGIN_HIDDEN, END_HIDDEN = "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"
CASES = "exercises.py"  # The file beside a notebook that its checks are made of.


class Problem(NamedTuple):
    """A violation of a rule; `cell` is None where it is about the whole file."""

    cell: Cell | None
    text: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.text}" if self.cell else self.text


class Section(NamedTuple):
    """A `##` heading: its cell, number (None if it has none), title and minutes."""

    cell: Cell
    number: int | None
    title: str
    minutes: int | None


DEFINE = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BIND = (*DEFINE, ast.Assign, ast.AnnAssign)


class Cell:
    """One cell: `source`, `tags`, nbgrader's metadata as `grader` ({} if none), and its `index` in the notebook."""

    def __init__(self, index: int, node):
        self.index, self.node = index, node
        self.source: str = node.source
        self.is_code = node.cell_type == "code"
        self.id: str = node.get("id", "")
        self.tags = list(node.metadata.get("tags", []))
        self.grader = dict(node.metadata.get("nbgrader", {}))

    def __str__(self) -> str:
        return f"cell {self.index + 1}" + (f" ({self.id})" if self.id else "")

    @property
    def grade_id(self) -> str:
        """Name of the cell in nbgrader, or ""."""
        return self.grader.get("grade_id", "")

    @property
    def points(self):
        return self.grader.get("points")

    @property
    def is_solution(self) -> bool:
        """Whether it is code that the student writes."""
        return self.is_code and bool(self.grader.get("solution")) and not self.grader.get("grade")

    @property
    def is_check(self) -> bool:
        """Whether it is graded by running it."""
        return is_check(self.node)

    @property
    def is_answer(self) -> bool:
        """Whether it is a text that is graded by hand."""
        return not self.is_code and bool(self.grader.get("grade")) and bool(self.grader.get("solution"))

    def region(self, begin: str, end: str) -> str:
        """The lines between two markers ("" if there are none)."""
        found = re.findall(rf"{re.escape(begin)}\s*\n(.*?)^\s*{re.escape(end)}", self.source, re.DOTALL | re.MULTILINE)
        return "\n".join(found)

    def without(self, begin: str, end: str) -> str:
        """The source without the lines between two markers."""
        return re.sub(
            rf"^[^\n]*{re.escape(begin)}.*?{re.escape(end)}[^\n]*\n?", "", self.source, flags=re.DOTALL | re.M
        )

    @cached_property
    def python(self) -> str:
        """The source with IPython's magics blanked out."""
        if self.source.startswith("%%"):
            return ""
        return re.sub(r"^(\s*)[%!].*$", r"\1pass", self.source, flags=re.MULTILINE)

    @cached_property
    def tree(self) -> ast.Module | None:
        """The source parsed, or None if it is not Python."""
        try:  # some errors of syntax are found by the compiler alone
            self._code = compile(self.python, "cell", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
            return ast.parse(self.python)
        except SyntaxError as error:
            self.error = f"line {error.lineno}, {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:
            self.error = str(error)
        return None

    def calls(self, *names: str) -> list[ast.Call]:
        """Calls of dotted names such as `lab.predict`, in order."""
        if not self.is_code or self.tree is None:
            return []
        found = [n for n in ast.walk(self.tree) if isinstance(n, ast.Call) and ast.unparse(n.func) in names]
        return sorted(found, key=lambda n: (n.lineno, n.col_offset))

    @cached_property
    def uses(self) -> set[str]:
        """Names of the notebook that the cell reads, also inside its functions; not their parameters and locals."""
        return globals_of(self._code) if self.tree else set()

    @cached_property
    def binds(self) -> set[str]:
        """Names to which the cell gives a value, outside of functions and classes."""
        return named_by(self._code, "STORE_NAME") if self.tree else set()

    @cached_property
    def parts(self) -> list[Cell]:
        """Its statements that give names a value, each as a cell."""
        nodes = self.tree.body if self.tree else []
        return [Cell(0, Text(ast.unparse(node))) for node in nodes if isinstance(node, BIND)]

    @cached_property
    def code_lines(self) -> int:
        """Lines of code that a student reads here: no blank lines, docstrings, markers, hidden tests."""
        lines = self.without(BEGIN_HIDDEN, END_HIDDEN).splitlines()
        told = [line for line in lines if line.strip() and "### BEGIN" not in line and "### END" not in line]
        return len(told) - sum(_docstring_lines(node) for node in ast.walk(self.tree or ast.Module([], [])))


class Source:
    """A source notebook with its cells, sections and number."""

    def __init__(self, path):
        self.path = Path(path)
        try:
            self.text = self.path.read_text(encoding="utf-8-sig")  # students' editors may write a byte-order mark
            self.notebook = nbformat.v4.reads(self.text)  # nbformat.reads would fix ids, which the rules report
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nbformat.validate(copy.deepcopy(self.notebook))
        except (ValueError, AttributeError, KeyError, TypeError, nbformat.ValidationError) as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"{self.path}: not a notebook of format 4 ({reason})") from error
        self.cells = [Cell(i, node) for i, node in enumerate(self.notebook.cells)]
        match = re.match(r"lab(\d\d)", self.path.name)
        self.number = match.group(1) if match else ""

    @property
    def code(self) -> list[Cell]:
        return [c for c in self.cells if c.is_code]

    @cached_property
    def sections(self) -> list[Section]:
        """The `##` headings, in order."""
        found = []
        for cell in self.cells:
            if cell.is_code:
                continue
            for m in SECTION.finditer(cell.source):
                number, minutes = m["number"], m["minutes"]
                found.append(Section(cell, number and int(number), m["title"], minutes and int(minutes)))
        return found

    @property
    def points(self) -> float:
        return sum(c.points or 0 for c in self.cells)

    @property
    def minutes(self) -> int:
        return sum(s.minutes or 0 for s in self.sections)

    @property
    def exercises(self) -> list[Cell]:
        return [c for c in self.cells if c.is_solution]

    def after(self, cell: Cell, steps: int = 1) -> Cell | None:
        """The cell so many steps below, or None."""
        i = cell.index + steps
        return self.cells[i] if 0 <= i < len(self.cells) else None

    def summary(self) -> str:
        """Summary of the lab in one line."""
        words = sum(len(c.source.split()) for c in self.cells if not c.is_code)
        code_words = sum(len(c.source.split()) for c in self.code)
        figures = sum(len(c.calls("lab.show")) for c in self.code)
        return (
            f"{len(self.cells)} cells, {words} words of text to {code_words} of code, {figures} figures, "
            f"{len(self.exercises)} exercises, {self.points:g} points, {self.minutes} min"
        )


def tests_of(source: Source) -> str:
    """Return a digest of what a lab grades: cells, points and checks, with solutions and cases."""
    graded = [(c.grade_id, c.points, c.source if c.is_check else "") for c in source.cells if c.points is not None]
    cases = source.path.with_name(CASES)
    by = [c.source for c in source.exercises], cases.read_text(encoding="utf-8") if cases.is_file() else ""
    return hashlib.sha256(repr((graded, by)).encode()).hexdigest()[:16]


def is_check(cell) -> bool:
    """Return whether a notebook's cell is code that is graded by running it."""
    told = cell.metadata.get("nbgrader", {})
    return cell.cell_type == "code" and bool(told.get("grade")) and not told.get("solution")


def packed(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())


def grade_id_of(cell) -> str:
    """Return nbgrader's name of a notebook's cell, or ""."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def name_of(cell) -> str:
    """How the instructor finds a cell: by nbgrader's name, or by its first line."""
    grade_id = grade_id_of(cell)
    first = next((line.strip() for line in cell.source.splitlines() if line.strip()), "")
    first = "".join(ch for ch in first if ch.isprintable())  # it is shown in terminals
    return f"'{grade_id}'" if grade_id else f"'{first[:50]}{'...' if len(first) > 50 else ''}'"


def course_of(config) -> str:
    """Return the course directory."""
    from nbgrader.coursedir import CourseDirectory

    return CourseDirectory(config=config).root


def source_of(config, assignment: str, notebook: str) -> Source | None:
    """Return the lab's source from the course directory, or None if it is not there."""
    from nbgrader.coursedir import CourseDirectory

    course = CourseDirectory(config=config)
    folder = Path(course.format_path(course.source_directory, ".", assignment))
    try:
        return Source(folder / f"{notebook}.ipynb")
    except (OSError, ValueError):
        return None


class Text(dict):
    """The attributes of a notebook's code cell that `Cell` reads."""

    cell_type, metadata = "code", {}

    def __init__(self, source: str):
        self.source = source


def _docstring_lines(node) -> int:
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)) or ast.get_docstring(node) is None:
        return 0
    return len([line for line in ast.get_docstring(node, clean=False).splitlines() if line.strip()]) or 1
