"""Students of our own: they hand in an untouched, a solved, or a wrong notebook."""

from __future__ import annotations

import copy
import importlib
from typing import NamedTuple

import nbformat

from distlearn.lab.author.source import BEGIN_SOLUTION, END_SOLUTION


class Student(NamedTuple):
    """A submission and what it must lose: `notebook`, and the grade ids of the checks that must fail."""

    name: str
    notebook: nbformat.NotebookNode
    loses: set[str]


def graded_id(cell) -> str:
    """nbgrader's name of a cell, or ""."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def without_markers(text: str) -> str:
    """Take the solution markers out, keep the solution."""
    return "\n".join(line for line in text.splitlines() if BEGIN_SOLUTION not in line and END_SOLUTION not in line)


def solved(released, source):
    """Fill the released notebook with the source's answers and predictions."""
    answers = {cell.id: cell for cell in source.cells}
    notebook = copy.deepcopy(released)
    for cell in notebook.cells:
        told = cell.metadata.get("nbgrader", {})
        if told.get("solution") or "predict" in cell.metadata.get("tags", []):
            cell.source = without_markers(answers[cell.id].source)
    return notebook


def wrong(solution, grade_id, code):
    """Return a solved notebook with one wrong answer: the cell's new text, or a pair (old, new) to replace in it."""
    notebook = copy.deepcopy(solution)
    (cell,) = (c for c in notebook.cells if graded_id(c) == grade_id)
    if isinstance(code, tuple):
        old, new = code
        assert cell.source.count(old) == 1, f"{grade_id}: {old!r} occurs {cell.source.count(old)} times in the solution"
        code = cell.source.replace(old, new)
    assert code != cell.source, f"{grade_id}: the wrong answer is the right one"
    cell.source = code
    return notebook


def checks(notebook) -> set[str]:
    """Grade ids of the cells that are graded by running them."""
    return {
        graded_id(c) for c in notebook.cells if c.cell_type == "code" and c.metadata.get("nbgrader", {}).get("grade")
    }


def mutants(lab_name: str) -> dict:
    """The lab's known wrong answers ({} if it declares none)."""
    try:
        return importlib.import_module(f".mutants.{lab_name.partition('_')[0]}", __package__).MUTANTS
    except ModuleNotFoundError as error:
        if "mutants" not in str(error):
            raise
        return {}


def students(lab_name, released, source) -> list[Student]:
    """Everybody who hands in this lab."""
    solution = solved(released, source)
    found = [Student("untouched", released, checks(released)), Student("solved", solution, set())]
    for grade_id, answers in mutants(lab_name).items():
        for i, (name, code, loses) in enumerate(answers):
            slug = "".join(ch if ch.isalnum() else "-" for ch in name)
            found.append(Student(f"{grade_id}-{i}-{slug}", wrong(solution, grade_id, code), set(loses)))
    return found
