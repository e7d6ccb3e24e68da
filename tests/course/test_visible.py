"""What students see: the visible checks alone must catch every known wrong answer, and pass the solution.

An answer that passes visibly and loses points later teaches nothing. `python -m tests.course.test_visible [LAB ...]`
counts the wrong answers of each lab, those that pass, and those that are told numbers only.
"""

import contextlib
import copy
import io
import re
import sys

import nbformat
import pytest
from distcourse.author.rules import DEMONSTRATIONS
from distcourse.author.source import BEGIN_HIDDEN, END_HIDDEN, Cell

from .conftest import COURSE, LABS, only_if_thorough
from .submissions import mutants, with_needed, without_markers, wrong

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(900)]

SPECIAL = {"only where it is looked at", "in turn, where nobody looks"}
"""No mistakes: they are right for the visible numbers of ranks alone. Hidden tests are there for these."""
BARE = {}
"""How many wrong answers may be told numbers only, in labs whose checks no other test feeds with all of them."""


@pytest.fixture(scope="module")
def shell():
    from IPython.core.interactiveshell import InteractiveShell

    main = sys.modules["__main__"]  # the shell takes its place, and processes that are started look there
    shell = InteractiveShell.instance()
    with pytest.MonkeyPatch.context() as patch:  # both take longer than most checks
        patch.setattr("distcourse.show.Picture", lambda *given, **more: "")
        patch.setattr("gc.collect", lambda *given: 0)  # in every reset of the shell
        yield shell
    InteractiveShell.clear_instance()
    sys.modules["__main__"] = main


def needed(notebook, exercise):
    """Code cells that the check of an exercise needs, in order; the check is the last."""
    code = [c for c in map(Cell, range(len(notebook.cells)), notebook.cells) if c.is_code]
    check = next(c for c in code if c.grade_id == f"check_{exercise}")
    above = [c for c in code if c.index < check.index and not DEMONSTRATIONS & set(c.tags)]
    kept = with_needed([*above, check], {check.id, code[0].id, *(c.id for c in above if c.grade_id == exercise)})
    return [c for c in code if c.id in kept]


def failure(shell, notebook, exercise):
    """How the visible check of an exercise fails; None if it passes."""
    shell.reset(new_session=True)
    for cell in needed(notebook, exercise):
        with contextlib.redirect_stdout(io.StringIO()):
            done = shell.run_cell(cell.without(BEGIN_HIDDEN, END_HIDDEN))
    return done.error_before_exec or done.error_in_exec


def is_bare(error):
    """Whether the table of a failed check has numbers only, and no sentence."""
    wrong = [line for line in str(error).splitlines() if line.startswith("  ✗")]
    numbers = re.compile("largest difference|wanted |at \\[|is false")
    return not re.search("^ +-> ", str(error), re.MULTILINE) and all(map(numbers.search, wrong))


def tried(shell, lab):
    """Yield (exercise, what is wrong, how it fails) for the solution, "", and every known wrong answer of a lab."""
    solved = nbformat.read(next((COURSE / "source" / lab).glob("*.ipynb")), as_version=4)
    for cell in solved.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = without_markers(cell.source)
    for exercise, answers in mutants(lab).items():
        yield exercise, "", failure(shell, copy.deepcopy(solved), exercise)
        for text, code, _ in answers:
            yield exercise, text, failure(shell, wrong(solved, exercise, code), exercise)


def test_the_visible_checks_catch_every_known_mistake(lab, shell, request, monkeypatch):
    only_if_thorough(request, lab)
    monkeypatch.chdir(COURSE / "source" / lab)
    bare = 0
    for exercise, text, error in tried(shell, lab):
        assert (error is None) == (not text or text in SPECIAL), f"{exercise}: {text or 'the solution'}"
        bare += error is not None and is_bare(error)
    assert bare <= BARE.get(lab[:5], bare)


def test_an_exercise_without_an_answer_is_said_to_be_not_written_yet(lab, shell, monkeypatch):
    """All checks of an untouched notebook, in one pass over the cells that they need."""
    monkeypatch.chdir(COURSE.parent / "labs" / lab)
    released = nbformat.read(next((COURSE.parent / "labs" / lab).glob("*.ipynb")), as_version=4)
    code = [c for c in map(Cell, range(len(released.cells)), released.cells) if c.is_code]
    code = [c for c in code if not DEMONSTRATIONS & set(c.tags)]
    kept = with_needed(code, {c.id for c in code if c.is_check} | {code[0].id})
    shell.reset(new_session=True)
    for cell in [c for c in code if c.id in kept]:
        with contextlib.redirect_stdout(io.StringIO()):
            done = shell.run_cell(cell.source)
        if cell.is_check:
            error = done.error_in_exec
            assert type(error).__name__ == "CheckFailed", cell.grade_id
            assert "not written yet" in str(error), cell.grade_id


if __name__ == "__main__":
    from IPython.core.interactiveshell import InteractiveShell

    for lab in [name for name in LABS if name in sys.argv[1:] or len(sys.argv) == 1]:
        errors = [error for _, text, error in tried(InteractiveShell.instance(), lab) if text]
        bare = sum(error is not None and is_bare(error) for error in errors)
        print(f"{lab:30} {len(errors):4} wrong answers, {errors.count(None)} pass, {bare} without a sentence")
