"""Rules on exercises: lead-in, solution, check, hints, in this order; points, ids, hidden tests."""

from __future__ import annotations

import ast
import re
from collections import Counter

from .. import scope
from .source import BEGIN_HIDDEN, BEGIN_SOLUTION, END_HIDDEN, END_SOLUTION, Problem, Source

LEAD_IN = re.compile(r"^### Exercise (?P<number>\d+) \((?P<stars>★{1,3}), (?P<points>\d+) points?\): \S", re.MULTILINE)
KEYS = {"schema_version", "grade_id", "grade", "solution", "locked", "task"}


def ids(lab: Source):
    """The metadata of nbgrader is complete and its names are unique."""
    names = Counter(c.grade_id for c in lab.cells if c.grader)
    for cell in lab.cells:
        if not cell.grader:
            continue
        missing = KEYS - cell.grader.keys()
        if missing:
            yield Problem(cell, f"nbgrader metadata lacks {', '.join(sorted(missing))}")
        if cell.grader.get("schema_version") != 3:
            yield Problem(cell, f"nbgrader schema_version is {cell.grader.get('schema_version')}, expected 3")
        if names[cell.grade_id] > 1:
            yield Problem(cell, f"grade id {cell.grade_id!r} is used {names[cell.grade_id]} times")
        if cell.grader.get("grade") and not (cell.points or 0) > 0:
            yield Problem(cell, "is graded, but has no points")


def exercises(lab: Source):
    """Each exercise is four cells: lead-in, solution, check, hints."""
    if not lab.exercises:
        yield Problem(None, "no exercise")
    for k, cell in enumerate(lab.exercises, 1):
        lead = LEAD_IN.search(lab.cells[cell.index - 1].source)
        if not lead:
            yield Problem(cell, f"no '### Exercise {k} (★, N points): ...' in the cell above")
        elif int(lead["number"]) != k:
            yield Problem(cell, f"its lead-in says exercise {lead['number']}, expected {k}")
        check, hints = lab.after(cell), lab.after(cell, 2)
        if check is None or not check.is_check or check.grade_id != f"check_{cell.grade_id}":
            yield Problem(cell, f"the cell below must be its check, with grade id 'check_{cell.grade_id}'")
        elif lead and check.points != int(lead["points"]):
            yield Problem(check, f"{check.points} points in the metadata, {lead['points']} in the lead-in")
        yield from _hints(cell, hints)
        yield from _solution(cell)
    solved = {f"check_{c.grade_id}" for c in lab.exercises}
    for cell in lab.cells:
        if cell.is_check:
            yield from _check(cell)
            if cell.grade_id not in solved:
                yield Problem(cell, "checks no exercise")


def _solution(cell):
    text = cell.region(BEGIN_SOLUTION, END_SOLUTION)
    if not text.strip():
        yield Problem(cell, f"no solution between {BEGIN_SOLUTION} and {END_SOLUTION}")
    if re.search(r"\b(dl|distlearn)\b", text):
        yield Problem(cell, "the solution calls the library: write it out")
    defined = [n for n in (cell.tree.body if cell.tree else []) if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    if not defined and cell.tree:
        yield Problem(cell, "defines no function or class")
    for node in defined:
        if not ast.get_docstring(node):
            yield Problem(cell, f"{node.name} has no docstring")
    if re.search(r"^\s*###", cell.without(BEGIN_SOLUTION, END_SOLUTION), re.MULTILINE):
        yield Problem(cell, "has a stray ### marker")


def _check(cell):
    hidden, visible = cell.region(BEGIN_HIDDEN, END_HIDDEN), cell.without(BEGIN_HIDDEN, END_HIDDEN)
    if not hidden.strip():
        yield Problem(cell, f"no hidden tests between {BEGIN_HIDDEN} and {END_HIDDEN}")
    for name, text in (("visible", visible), ("hidden", hidden)):
        if "with lab.check(" not in text:
            yield Problem(cell, f"no `with lab.check(...)` among the {name} checks")
        try:
            body = ast.parse(text).body
        except SyntaxError:
            yield Problem(cell, f"the {name} checks alone are not valid Python")
            continue
        if body and isinstance(body[-1], ast.Expr):
            yield Problem(cell, "ends with an expression, which nbgrader reads as partial credit")
    if not cell.grader.get("locked"):
        yield Problem(cell, "a check must be locked")


def _hints(cell, hints):
    if hints is None or hints.is_code or "hints" not in hints.tags:
        yield Problem(cell, "its hints (markdown, tag `hints`) must stand right below its check")
        return
    found = re.findall(r"<details><summary>Hint (\d)</summary>\n\n.+?\n\n</details>", hints.source, re.DOTALL)
    if found != ["1", "2", "3"] or hints.source.count("<details") != 3:
        yield Problem(hints, "expected three folded hints, <details><summary>Hint 1</summary>, blank line, text, ...")


def prose(lab: Source):
    """No text tells a line of a solution that assigns or returns; the last hint may come near."""
    for cell in lab.exercises:
        lines = [line.strip() for line in cell.region(BEGIN_SOLUTION, END_SOLUTION).splitlines()]
        public = cell.without(BEGIN_SOLUTION, END_SOLUTION)
        telling = [line for line in lines if len(line) > 24 and ("=" in line or line.startswith("return"))]
        for line in (line for line in telling if line not in public):
            for other in lab.cells:
                if not other.is_code and "hints" not in other.tags and _packed(line) in _packed(other.source):
                    yield Problem(other, f"gives away a line of the solution of {cell.grade_id}: {line!r}")


def _packed(text: str) -> str:
    return "".join(text.split())


def variables(lab: Source):
    """No cell uses a variable of a check cell: only its functions, classes and imports outlive it."""
    gone: dict[str, object] = {}
    for cell in lab.code:
        for name in sorted((cell.uses - cell.binds) & gone.keys()):
            yield Problem(
                cell, f"uses {name}, a variable of {gone[name]}, which ends with that cell: make it a function"
            )
        body = cell.tree.body if cell.tree else []
        if any(map(scope.is_check, body)):
            kept = {name for node in body if isinstance(node, scope.KEPT) for name in scope.bound(node)}
            gone |= dict.fromkeys(cell.binds - kept, cell)
        for name in cell.binds & gone.keys():
            if gone[name] is not cell:
                del gone[name]
