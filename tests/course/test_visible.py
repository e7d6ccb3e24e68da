"""What students see: the visible checks alone must catch every known wrong answer, and pass the solution.

An answer that passes visibly and loses points later teaches nothing.
"""

import contextlib
import copy
import io

import nbformat
import pytest
from distcourse.author.rules import DEMONSTRATIONS
from distcourse.author.source import BEGIN_HIDDEN, END_HIDDEN, Cell

from .conftest import COURSE, only_if_thorough
from .submissions import mutants, with_needed, without_markers, wrong

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(900)]

SPECIAL = {"only where it is looked at", "in turn, where nobody looks"}
"""No mistakes: they are right for the visible numbers of ranks alone. Hidden tests are there for these."""


@pytest.fixture(scope="module")
def shell():
    from IPython.core.interactiveshell import InteractiveShell

    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def needed(notebook, exercise):
    """Code cells that the check of an exercise needs, in order; the check is the last."""
    code = [c for c in map(Cell, range(len(notebook.cells)), notebook.cells) if c.is_code]
    check = next(c for c in code if c.grade_id == f"check_{exercise}")
    above = [c for c in code if c.index < check.index and not DEMONSTRATIONS & set(c.tags)]
    kept = with_needed([*above, check], {check.id, code[0].id, *(c.id for c in above if c.grade_id == exercise)})
    return [c for c in code if c.id in kept]


def fails(shell, notebook, exercise):
    """Whether the visible check of an exercise fails."""
    shell.reset(new_session=True)
    for cell in needed(notebook, exercise):
        with contextlib.redirect_stdout(io.StringIO()):
            done = shell.run_cell(cell.without(BEGIN_HIDDEN, END_HIDDEN))
    return done.error_before_exec is not None or done.error_in_exec is not None


def test_the_visible_checks_catch_every_known_mistake(lab, shell, request):
    only_if_thorough(request, lab)
    solved = nbformat.read(next((COURSE / "source" / lab).glob("*.ipynb")), as_version=4)
    for cell in solved.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = without_markers(cell.source)
    for exercise, answers in mutants(lab).items():
        assert not fails(shell, copy.deepcopy(solved), exercise), f"{exercise}: the solution fails"
        passed = [text for text, code, _ in answers if not fails(shell, wrong(solved, exercise, code), exercise)]
        assert set(passed) == SPECIAL & {text for text, _, _ in answers}, exercise
