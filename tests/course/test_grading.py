"""The instructor's way, end to end: generate, hand in, autograde; scores are 0, full, or less exactly where wrong."""

import copy
import html
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import nbformat
import pytest
from distcourse.author.source import BEGIN_HIDDEN, END_HIDDEN, Source
from distcourse.author.steps import DEMONSTRATIONS
from nbclient import NotebookClient

from . import grading
from .conftest import COURSE, LABS, only_if_thorough
from .submissions import Student, checks, graded_id, sliced, solved, stops, students

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(1500)]

WRONG = 1
"""So many notebooks with wrong answers are graded of each lab; all of them with `--thorough`, a minute or two a lab."""
AGAIN = ("solved", "solved-sliced")
"""Graded for the first lab, or with `--thorough`: nbval runs the solution, and right answers among wrong ones count."""
AT_ONCE = 2
"""Students graded at the same time with `--thorough`, each half of them in a process and a course of its own."""


def cheats(released):
    """Students who would rather not be graded: they skip, empty, reprice or delete the checks of an untouched lab."""
    names = (
        "skips-the-checks",
        "calls-them-engines",
        "empties-the-checks",
        "deletes-the-checks",
        "reprices-the-checks",
    )
    books = {name: copy.deepcopy(released) for name in names}
    for name, book in books.items():
        for cell in [c for c in book.cells if graded_id(c) in checks(released)]:
            if name == "skips-the-checks":
                cell.metadata["tags"] = ["skip-execution"]
            elif name == "calls-them-engines":
                cell.metadata["tags"] = ["engines"]
            elif name == "empties-the-checks":
                cell.source = "pass"
            elif name == "reprices-the-checks":
                cell.metadata["nbgrader"]["points"] = 0
            else:
                book.cells.remove(cell)
    return [Student(name, book, checks(released)) for name, book in books.items()]


def untidy(solution):
    """Students whose notebooks have lost or gained cells, and what each loses by it."""
    solving, checking = "mean_over_ranks", "check_mean_over_ranks"
    books = {name: copy.deepcopy(solution) for name in ("deletes-an-exercise", "answers-elsewhere", "copies-a-check")}
    cells = {name: {graded_id(c): c for c in book.cells} for name, book in books.items()}
    for name in (solving, checking):
        books["deletes-an-exercise"].cells.remove(cells["deletes-an-exercise"][name])
    answer = cells["answers-elsewhere"][solving]
    del answer.metadata["nbgrader"]
    copied = copy.deepcopy(cells["copies-a-check"][checking])
    copied.id = "copied"
    books["copies-a-check"].cells.append(copied)
    return [
        Student(name, sliced(book), {checking} if name == "deletes-an-exercise" else set())
        for name, book in books.items()
    ]


class Graded(dict):
    """Student and scores by name; the course directory where "untouched" was graded; all that could be handed in."""

    def of(self, course, lab, known):
        self.course, self.lab, self.known = course, lab, known
        return self


@pytest.fixture(scope="module")
def graded(lab, tmp_path_factory, jupyter_home, request):
    """Grade some or all; return the students and their scores by grade id."""
    root = tmp_path_factory.mktemp(lab)
    course = grading.make_course(root / "0", COURSE, lab)
    released = grading.generate(course, lab)
    (source,) = (course / "source" / lab).glob("*.ipynb")
    known = students(lab, released, nbformat.read(source, as_version=4))
    thorough, all_of_them = request.config.getoption("--thorough", default=False), list(known)
    if not thorough:
        left_out = [s for s in known if s.name.startswith("wrong-")][WRONG:]
        all_of_them = [s for s in known if s not in left_out and (s.name not in AGAIN or lab == LABS[0])]
    if lab == LABS[0]:
        source_book = nbformat.read(source, as_version=4)
        all_of_them += cheats(released) + untidy(solved(released, source_book))
    if not thorough:
        for student in all_of_them:
            grading.submit(course, lab, student.name, student.notebook)
        scores = grading.grade_all(course, lab, [s.name for s in all_of_them])
        return Graded((s.name, (s, scores[s.name])) for s in all_of_them).of(course, lab, known)
    for i in range(1, AT_ONCE):
        shutil.copytree(root / "0", root / str(i))
    shares = [[s for k, s in enumerate(all_of_them) if k % AT_ONCE == i] for i in range(AT_ONCE)]

    def grade(i):
        here = root / str(i) / "course"
        for student in shares[i]:
            grading.submit(here, lab, student.name, student.notebook)
        command = [sys.executable, "-W", "ignore", "-m", "tests.course.grading", str(here), lab]
        command += [s.name for s in shares[i]]
        done = subprocess.run(command, capture_output=True, text=True, cwd=COURSE.parent, timeout=1200)
        assert done.returncode == 0, done.stderr[-3000:]
        (line,) = (text for text in done.stdout.splitlines() if text.startswith("SCORES "))
        return json.loads(line.removeprefix("SCORES "))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        scores = {name: score for part in pool.map(grade, range(AT_ONCE)) for name, score in part.items()}
    return Graded((s.name, (s, scores[s.name])) for s in all_of_them).of(root / "0" / "course", lab, known)


def automatic(scores):
    """Grade ids that are graded by running them."""
    return {name for name in scores if name.startswith("check_")}


def test_an_untouched_notebook_scores_nothing(graded):
    _, scores = graded["untouched"]
    assert automatic(scores)
    assert {s["score"] for s in scores.values()} == {0.0}
    assert not any(s["manual"] for s in scores.values()), "an empty answer needs nobody to read it"


def test_an_untouched_notebook_stops_kindly(graded):
    (path,) = (graded.course / "autograded" / "untouched" / graded.lab).glob("*.ipynb")
    _, scores = graded["untouched"]
    assert stops(nbformat.read(path, as_version=4)) == {"CheckFailed": len(automatic(scores))}


def test_an_untouched_notebook_stops_at_predictions(lab, request, monkeypatch):
    """Grading goes on after a missing prediction, so this runs as a student does."""
    only_if_thorough(request, lab)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    (path,) = (COURSE.parent / "labs" / lab).glob("*.ipynb")
    book = nbformat.read(path, as_version=4)
    book.cells = [c for c in book.cells if not DEMONSTRATIONS & set(c.metadata.get("tags", []))]
    NotebookClient(book, timeout=240, allow_errors=True, resources={"metadata": {"path": str(COURSE.parent)}}).execute()
    found = stops(book)
    assert found["CheckFailed"] == len(checks(book))
    assert found["PredictionMissing"] > 0
    for cell in book.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error" and "lab.require(" in cell.source:
                assert output.ename in ("PredictionMissing", "CheckFailed", "NotImplementedError"), cell.id


def test_a_solved_notebook_gets_full_marks(graded, lab, request):
    only_if_thorough(request, lab)
    _, scores = graded["solved"]
    for name in automatic(scores):
        assert scores[name]["score"] == scores[name]["max"] > 0, name
    written = scores.keys() - automatic(scores)
    assert written
    assert all(scores[name]["manual"] for name in written), "sample answers wait for the instructor"


def test_wrong_answers_lose_points_exactly_where_they_are_wrong(graded):
    wrong = {n: v for n, v in graded.items() if n not in ("untouched", "solved")}  # "solved-sliced" must lose nothing
    found = {}
    for name, (student, scores) in wrong.items():
        lost = {n for n in automatic(scores) if scores[n]["score"] < scores[n]["max"]}
        if lost != student.loses:
            found[name] = f"lost {sorted(lost)}, expected {sorted(student.loses)}"
    assert not found


def test_every_exercise_has_wrong_answers(graded):
    _, scores = graded["untouched"]
    wrong = [student.loses for student in graded.known if student.name.startswith("wrong-")]
    assert set().union(*wrong) == automatic(scores)
    for one in automatic(scores):
        for other in automatic(scores) - {one}:
            assert any(one in lost and other not in lost for lost in wrong), (
                f"{one} is never wrong while {other} is right"
            )


def test_nobody_scores_by_taking_the_checks_away(graded):
    cheating = {n: v for n, v in graded.items() if n.endswith("-the-checks") or n == "calls-them-engines"}
    for name, (_, scores) in cheating.items():
        assert all(scores[n]["score"] == 0 for n in automatic(scores)), name
        assert all(scores[n]["max"] > 0 for n in automatic(scores)), name


def test_feedback_says_what_the_hidden_tests_found_but_not_what_they_are(graded):
    page = grading.feedback(graded.course, graded.lab, "untouched")
    assert "not written yet" in page
    assert "HIDDEN TESTS" not in page
    (source,) = (graded.course / "source" / graded.lab).glob("*.ipynb")
    for cell in Source(source).code:
        for line in cell.region(BEGIN_HIDDEN, END_HIDDEN).splitlines():
            title = re.search(r'lab\.check\("([^"]+)"\)', line)
            assert title is None or line.strip() not in html.unescape(re.sub(r"<[^>]+>", "", page))
