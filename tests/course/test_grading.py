"""The instructor's way, end to end: generate, hand in, autograde; scores are 0, full, or less exactly where wrong."""

import copy
import html
import re
from collections import Counter
from typing import NamedTuple

import nbformat
import pytest
from distcourse.author.source import BEGIN_HIDDEN, END_HIDDEN, Source
from distcourse.author.steps import DEMONSTRATIONS
from nbclient import NotebookClient

from . import grading
from .conftest import COURSE, LABS
from .submissions import Student, checks, graded_id, sliced, students

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(1500)]
PER_COMMIT = LABS[:1]

WRONG = 1
"""So many notebooks with wrong answers are graded; all of them with `--thorough`, a minute or two a lab."""
AGAIN = ("untouched", "solved", "solved-sliced")
"""Graded with `--thorough`; the second always. nbval runs solutions, right answers among
wrong ones count, test_visible.py says what each check finds where nothing is written, and what is sliced and right gets
full marks among hostile submissions (test_hostile.py).
"""
CHEATS = [
    lambda book, cell: cell.metadata.update(tags=["skip-execution"]),
    lambda book, cell: cell.metadata.update(tags=["engines"]),
    lambda book, cell: cell.update(source="pass"),
    lambda book, cell: cell.metadata["nbgrader"].update(points=0),
    lambda book, cell: book.cells.remove(cell),
]
"""What students do to a check who would rather not be graded."""


def cheats(released):
    """Students with an untouched lab whose checks are skipped, emptied, repriced or deleted, each in its own way."""
    found, ways = [], iter(CHEATS)
    while len(ways_left := list(ways)):
        book, ways = copy.deepcopy(released), iter(ways_left)
        for cell in [c for c in book.cells if graded_id(c) in checks(released)]:
            next(ways, CHEATS[0])(book, cell)
        found.append(Student(f"cheats-{len(found)}", lambda book=book: book, checks(released)))
    return found


class Graded(NamedTuple):
    """A lab's course directory; who could hand in; who did, with their scores by name and grade id."""

    course: object
    lab: str
    known: list
    students: list
    scores: dict


@pytest.fixture(scope="module")
def graded(lab, tmp_path_factory, jupyter_home, request):
    """Grade some or all students of a lab, once for all tests."""
    course = grading.make_course(tmp_path_factory.mktemp(lab), COURSE, lab)
    released = grading.generate(course, lab)
    source = nbformat.read(next((course / "source" / lab).glob("*.ipynb")), as_version=4)
    known = students(lab, released, source)
    chosen, thorough = known, request.config.getoption("--thorough", default=False)
    if not thorough:
        left_out = [s.name for s in known if s.name.startswith("wrong-")][WRONG:]
        left_out += ("untouched", *AGAIN[2:])
        chosen = [s for s in known if s.name not in left_out]
    if lab == LABS[0]:
        some = cheats(sliced(released))[: None if thorough else 1]
        chosen = [*chosen, *some]
    for student in chosen:
        grading.submit(course, lab, student.name, student.make())
    names = [student.name for student in chosen]
    if len(names) > 2:
        return Graded(course, lab, known, chosen, grading.grade_all(course, lab, names))
    # in this process: a worker takes longer to load nbgrader than a student to grade
    return Graded(course, lab, known, chosen, {name: grading.autograde(course, lab, name) for name in names})


def automatic(scores):
    """Grade ids that are graded by running them."""
    return {name for name in scores if name.startswith("check_")}


@pytest.mark.nightly
def test_an_untouched_notebook_stops_at_predictions(lab, monkeypatch):
    """Grading goes on after a missing prediction, so this runs as a student does."""
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    (path,) = (COURSE.parent / "labs" / lab).glob("*.ipynb")
    book = nbformat.read(path, as_version=4)
    book.cells = [c for c in book.cells if not DEMONSTRATIONS & set(c.metadata.get("tags", []))]
    NotebookClient(book, timeout=240, allow_errors=True, resources={"metadata": {"path": str(path.parent)}}).execute()
    found = Counter()
    for cell in book.cells:
        for output in (out for out in cell.get("outputs", []) if out.output_type == "error"):
            found[output.ename] += 1
            if graded_id(cell) in checks(book):
                assert output.evalue.count("not written yet") == 1, (cell.id, output.evalue)
            if output.ename in ("CheckFailed", "PredictionMissing"):
                assert len(output.traceback) <= 2, "one line says it: no traceback"
            elif "lab.require(" in cell.source:
                assert output.ename == "NotImplementedError", cell.id
    assert found["CheckFailed"] == len(checks(book))
    assert found["PredictionMissing"] > 0


def test_a_solved_notebook_gets_full_marks(graded):
    scores = graded.scores["solved"]
    for name in automatic(scores):
        assert scores[name]["score"] == scores[name]["max"] > 0, name
    written = scores.keys() - automatic(scores)
    assert written
    assert all(scores[name]["manual"] for name in written), "sample answers wait for the instructor"


def test_wrong_answers_lose_points_exactly_where_they_are_wrong(graded):
    found = {}
    for student in graded.students:
        scores = graded.scores[student.name]
        lost = {n for n in automatic(scores) if scores[n]["score"] < scores[n]["max"]}
        if lost != student.loses:
            found[student.name] = f"lost {sorted(lost)}, expected {sorted(student.loses)}"
        if student.name.startswith(("cheats", "untouched")):
            assert all(scores[n]["score"] == 0 < scores[n]["max"] for n in automatic(scores)), student.name
            assert not any(s["manual"] for s in scores.values()), "an empty answer needs nobody to read it"
    assert not found


def test_every_exercise_has_wrong_answers(graded):
    every = automatic(graded.scores[graded.students[0].name])
    wrong = [student.loses for student in graded.known if student.name.startswith("wrong-")]
    assert set().union(*wrong) == every
    never = [(a, b) for a in every for b in every - {a} if not any(a in lost and b not in lost for lost in wrong)]
    assert not never, "the first is never wrong while the second is right"


def test_feedback_says_what_the_hidden_tests_found_but_not_what_they_are(graded):
    name = graded.students[0].name
    page = grading.feedback(graded.course, graded.lab, name)
    assert name != "untouched" or "not written yet" in page
    assert "HIDDEN TESTS" not in page
    (source,) = (graded.course / "source" / graded.lab).glob("*.ipynb")
    for cell in Source(source).code:
        for line in cell.region(BEGIN_HIDDEN, END_HIDDEN).splitlines():
            title = re.search(r'lab\.check\("([^"]+)"\)', line)
            assert title is None or line.strip() not in html.unescape(re.sub(r"<[^>]+>", "", page))
