"""What students see at first: the check of an answer that is not written says so."""

import contextlib
import io
import sys

import nbformat
import pytest
from distcourse.author.rules import DEMONSTRATIONS
from distcourse.author.source import Cell

from .conftest import COURSE
from .submissions import with_needed

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(900)]


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
