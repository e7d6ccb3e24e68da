"""Students of our own: they hand in an untouched, a solved, or a wrong notebook."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import nbformat
from distcourse.author.exercise import Solved, edited, without_markers
from distcourse.author.source import Cell, Source

COURSE = Path(__file__).parents[2] / "course"


class Student(NamedTuple):
    """A submission and what it must lose: what makes the notebook, and the grade ids of the checks that must fail."""

    name: str
    make: Callable[[], nbformat.NotebookNode]
    loses: set[str]


def graded_id(cell) -> str:
    """nbgrader's name of a cell, or ""."""
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


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
    """Return a solved notebook with one wrong answer, an edit of the cell's text as `exercises.py` has them."""
    notebook = copy.deepcopy(solution)
    (cell,) = (c for c in notebook.cells if graded_id(c) == grade_id)
    code = edited(cell.source, code)
    assert code != cell.source, f"{grade_id}: the wrong answer is the right one"
    cell.source = code
    return notebook


def sliced(notebook):
    """Keep of a notebook's code what is graded and whatever defines a name that it uses, directly or not.

    So a wrong answer is graded in seconds, without the lab's demonstrations. (The student "solved-sliced" proves that
    nothing is lost by it.)
    """
    notebook = copy.deepcopy(notebook)
    code = [cell for cell in map(Cell, range(len(notebook.cells)), notebook.cells) if cell.is_code]
    kept = with_needed(code, {c.id for c in code if c.grader} | {code[0].id})
    notebook.cells = [c for c in notebook.cells if c.cell_type != "code" or c.id in kept]
    return notebook


def with_needed(code, kept) -> set[str]:
    """Ids of some cells and of those that define what they use, directly or not."""
    kept = set(kept)
    while True:
        used = set().union(*(c.uses for c in code if c.id in kept))
        more = {c.id for c in code if c.id not in kept and c.binds & used}
        if not more:
            return kept
        kept |= more


def checks(notebook) -> set[str]:
    """Grade ids of the cells that are graded by running them."""
    return {
        graded_id(c) for c in notebook.cells if c.cell_type == "code" and c.metadata.get("nbgrader", {}).get("grade")
    }


def mutants(lab_name: str) -> dict:
    """By exercise, the lab's known wrong answers: what is wrong, and the edit of the solution."""
    folder = next(COURSE.glob(f"source/{lab_name.partition('_')[0]}_*"))
    return {name: list(exercise.wrong()) for name, exercise in Solved(folder).exercises.items()}


def students(lab_name, released, source) -> list[Student]:
    """Everybody who hands in this lab."""
    solution = solved(released, source)
    found = [
        Student("untouched", lambda: released, checks(released)),
        Student("solved", lambda: solution, set()),
        Student("solved-sliced", lambda: sliced(solution), set()),
    ]
    for i, group in enumerate(grouped(mutants(lab_name))):
        told = " and ".join(f"{grade_id} {what}" for grade_id, (what, _) in group.items())
        slug = "".join(ch if ch.isalnum() else "-" for ch in told)
        loses = {f"check_{grade_id}" for grade_id in group}
        found.append(Student(f"wrong-{i}-{slug}"[:150], partial(_wrong_in_all, solution, group), loses))
    return found


def _wrong_in_all(notebook, group):
    for grade_id, (_, code) in group.items():
        notebook = wrong(notebook, grade_id, code)
    return sliced(notebook)


def grouped(answers: dict) -> list[dict]:
    """Deal the wrong answers out to students, some to each, so that few notebooks need to be graded.

    Nobody is wrong in more than half of the exercises: that the others keep their points is the other half of the test.
    Exercises meet each other as rarely as can be, so that each is also seen wrong without any given other one.
    """
    most = max(1, len(answers) // 2)
    groups, met, names = [], Counter(), list(answers)
    for k in range(max((len(a) for a in answers.values()), default=0)):
        turn = k % max(1, len(answers))  # another one first each time, or the same would meet again and again
        for grade_id in [g for g in (*names[turn:], *names[:turn]) if k < len(answers[g])]:
            free = [g for g in groups if grade_id not in g and len(g) < most]
            group = min(free, key=lambda g: sum(met[grade_id, other] for other in g), default=None)
            if group is None:
                groups.append(group := {})
            met.update(pair for other in group for pair in ((grade_id, other), (other, grade_id)))
            group[grade_id] = answers[grade_id][k]
    return groups


def answered(lab_name: str, exercise: str, what: str = "") -> dict:
    """What a lab's answers define, down to an exercise: the solutions, or there its known wrong answer `what`."""
    source = Source(next((COURSE / "source").glob(f"{lab_name}_*/*.ipynb")))
    notebook = source.notebook
    if what:
        notebook = wrong(notebook, exercise, dict(mutants(lab_name)[exercise])[what])
    nodes = [node for cell in source.code if cell.tree for node in cell.tree.body]
    space = {"__name__": "__main__"}
    exec("\n".join(ast.unparse(node) for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))), space)
    for cell in source.exercises:
        exec(notebook.cells[cell.index].source, space)
        if cell.grade_id == exercise:
            return space
    raise ValueError(f"{lab_name} has no exercise {exercise!r}")
