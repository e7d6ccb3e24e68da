"""What students see: the visible checks alone must catch every known wrong answer, and pass the solution.

An answer that passes visibly and loses points later teaches nothing.
"""

import contextlib
import copy
import io

import nbformat
import pytest
from distcourse.author.source import BEGIN_HIDDEN, END_HIDDEN, Cell

from .conftest import COURSE, only_if_thorough
from .submissions import mutants, without_markers, wrong

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(900)]

STRICT = [
    "lab00_welcome",
    "lab01_backprop",
    "lab02_optimizers",
    "lab03_convolution",
    "lab04_kernels",
    "lab05_roofline",
    "lab06_messages",
    "lab07_data_parallel",
    "lab08_communication_bound",
    "lab09_model_parallel",
    "lab10_pipeline",
    "lab11_staleness",
    "lab15_attention",
]
SPECIAL = {"only where it is looked at", "in turn, where nobody looks"}
"""No mistakes: they are right for the visible numbers of ranks alone. Hidden tests are there for these."""
SKIPPED = {"engines", "slow", "real-run"}


@pytest.fixture(scope="module")
def shell():
    from IPython.core.interactiveshell import InteractiveShell

    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


def needed(notebook, exercise):
    """Code cells that the check of an exercise needs, in order; the check is the last."""
    code = [c for c in map(Cell, range(len(notebook.cells)), notebook.cells) if c.is_code]
    check = next(c for c in code if c.grade_id == f"check_{exercise}")
    above = [c for c in code if c.index < check.index and not SKIPPED & set(c.tags)]
    kept = {check.id: check} | {c.id: c for c in above if c.grade_id == exercise} | {code[0].id: code[0]}
    while True:
        used = set().union(*(c.uses for c in kept.values()))
        more = {c.id: c for c in above if c.id not in kept and c.binds & used}
        if not more:
            return sorted(kept.values(), key=lambda c: c.index)
        kept |= more


def fails(shell, notebook, exercise):
    """Whether the visible check of an exercise fails."""
    shell.reset(new_session=True)
    for cell in needed(notebook, exercise):
        with contextlib.redirect_stdout(io.StringIO()):
            done = shell.run_cell(cell.without(BEGIN_HIDDEN, END_HIDDEN))
    return done.error_before_exec is not None or done.error_in_exec is not None


@pytest.mark.parametrize("name", STRICT)
def test_the_visible_checks_catch_every_known_mistake(name, shell, request):
    only_if_thorough(request, name)
    solved = nbformat.read(next((COURSE / "source" / name).glob("*.ipynb")), as_version=4)
    for cell in solved.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = without_markers(cell.source)
    for exercise, answers in mutants(name).items():
        assert not fails(shell, copy.deepcopy(solved), exercise), f"{exercise}: the solution fails"
        passed = [text for text, code, _ in answers if not fails(shell, wrong(solved, exercise, code), exercise)]
        assert set(passed) == SPECIAL & {text for text, _, _ in answers}, exercise
