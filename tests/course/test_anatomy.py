"""Every lab is built as AUTHORING.md says, and each rule reports what it is there for."""

import copy
import shutil

import nbformat
import pytest
from distcourse.author import check_lab, tidy
from distcourse.author.source import Cell

from .conftest import COURSE

WELCOME = COURSE / "source" / "lab00_welcome" / "lab00.ipynb"


def test_a_lab_keeps_every_rule(lab):
    (path,) = (COURSE / "source" / lab).glob("*.ipynb")
    assert check_lab(path) == []


@pytest.fixture(scope="module")
def spoil(tmp_path_factory):
    """Return a function that changes lab 00's notebook and returns the problems that are new."""
    path = shutil.copytree(WELCOME.parent, tmp_path_factory.mktemp("spoilt") / "lab00_welcome") / WELCOME.name
    good = nbformat.read(path, as_version=4)
    known = {p.text for p in check_lab(path)}  # links to labs that lie elsewhere

    def change(how):
        book = copy.deepcopy(good)
        how(book)
        path.write_text(nbformat.v4.writes(book) + "\n", encoding="utf-8")
        return [str(p) for p in check_lab(path) if p.text not in known]

    return change


def cell(book, name):
    """The cell with this id."""
    return next(c for c in book.cells if c.id == name)


def text(name, old, new):
    """Return a change: replace text in a cell."""

    def how(book):
        found = cell(book, name)
        assert old in found.source, f"{old!r} is no longer in {name}"
        found.source = found.source.replace(old, new)

    return how


def tag(name, *tags):
    """Return a change: set a cell's tags."""
    return lambda book: cell(book, name).metadata.update(tags=list(tags))


def grader(name, **values):
    """Return a change: set values in a cell's nbgrader metadata."""
    return lambda book: cell(book, name).metadata["nbgrader"].update(values)


def drop(name):
    """Return a change: remove a cell."""
    return lambda book: book.cells.remove(cell(book, name))


def both(*changes):
    """Return several changes as one."""
    return lambda book: [change(book) for change in changes]


def outputs(book):
    cell(book, "who").execution_count = 3


def metadata(book):
    cell(book, "who").metadata["editable"] = True


def kernel(book):
    book.metadata["kernelspec"]["name"] = "my-venv"


def many_cells(book):
    for i in range(30):
        book.cells.insert(3, nbformat.v4.new_markdown_cell("text", id=f"more-{i}"))


SOLVE, CHECK, HINTS = "solution-share", "check-share", "hints-share"

BROKEN = {
    "title": (text("title", "# Lab 00: ", "# Welcome "), "the title must read '# Lab 00: ...'"),
    "question": (text("title", "**Question.**", "Question"), "**Question.** is missing"),
    "goals": (text("title", "- write a first exchange", "- a\n- b"), "6 goals, expected 3 to 5"),
    "setup": (text("setup", "import numpy as np\n", ""), "the second cell must be the setup"),
    "setup of another lab": (text("setup", '"00"', '"07"'), "the second cell must be the setup"),
    "section number": (text("s3", "## 3.", "## 4."), "section number 4, expected 3"),
    "too few sections": (
        both(*(text(s, "## ", "") for s in ("s3", "exchange", "engines"))),
        "2 numbered sections, expected 3",
    ),
    "section without minutes": (text("s3", " (22 min)", ""), "has no '(N min)'"),
    "minutes": (text("s3", "(22 min)", "(23 min)"), "the sections take 61 minutes, the title says 60"),
    "no time": (text("title", "60 minutes", "an hour"), "**Time.** must read"),
    "a guess of the time": (text("s3", "(22 min)", "(6 min)"), "44 minutes are stated, the rule of AUTHORING.md gives"),
    "more to read": (text("s2", "Everything in", 3000 * "word " + "Everything in"), "60 minutes are stated, the rule"),
    "no break": (text("s3", "(22 min)", "(122 min)"), "160 minutes, and **Time.** names no section after which"),
    "strange section": (text("same", "`engines", "## Extra (1 min)\n\n`engines"), "unnumbered sections are"),
    "too short": (lambda book: book.update(cells=book.cells[:20]), "20 cells, expected 30 to 70"),
    "too long": (many_cells, "82 cells, expected 30 to 70"),
    "long cell": (lambda b: cell(b, "who").update(source=21 * "x = 1\n"), "21 lines of code: the limit is 20"),
    "wide cell": (text("who", "# the results", "# the results" + 100 * "!"), "characters: the limit is 100"),
    "wide drawing": (text("s2", "Everything in", f"```\n{'─' * 81}\n```\nEverything in"), "a drawing 81 characters"),
    "unseen table": (text("who", "dl.SimWorld", "dl.viz.table([])\ndl.SimWorld"), "makes a table that is not shown"),
    "no Python": (text("who", "def who", "df who"), "is not valid Python: line 1, invalid syntax"),
    "no tag": (tag("predict-sum"), "tagged `predict`, or do neither"),
    "no guess": (text("predict-sum", "answer=6", "answer=..."), "prediction 'sum' has no sample answer="),
    "hidden guess": (text("predict-sum", ",\n            answer=6", ", answer=6"), "must begin a line"),
    "asked twice": (text("predict-arrived", '"arrived"', '"sum"'), "prediction 'sum' is asked for twice"),
    "never revealed": (text("reveal-sum", "lab.reveal", "print"), "'sum' needs lab.require and lab.reveal"),
    "not required": (text("reveal-sum", 'lab.require("sum")', ""), "'sum' needs lab.require and lab.reveal"),
    "never predicted": (drop("predict-sum"), "'sum' is revealed or required, but never predicted"),
    "no failure": (both(tag("wrong-on-purpose"), tag("reveal-arrived")), "no deliberate failure"),
    "failure unexplained": (drop("wrong-means"), None),
    "no engines tag": (tag("start"), "is not tagged `engines`"),
    "px without tag": (tag("px-pid"), "is not tagged `engines`"),
    "graded engines": (tag(CHECK, "engines"), "which grading skips"),
    "needs what is skipped": (
        both(tag("who", "slow"), text(SOLVE, "return n", "who_am_i; return n")),
        "uses who_am_i of",
    ),
    "draws without alt": (text("timeline-sim", "lab.show(ax, alt=", "print(ax, dict(a="), "does not end with lab.show"),
    "poor alt": (text("figure-share", 'alt="Shares of 8, 10 and 11 samples: ', 'alt="'), None),
    "short alt": (
        text("figure-share", "Shares of 8, 10 and 11 samples: equal, or one more on the first", "The"),
        "one sentence",
    ),
    "plt.show": (text("figure-sum", "lab.show", "plt.show(); lab.show"), "plt.show has no alternative text"),
    "one question": (both(drop("question-2"), drop("answer-2")), "1 questions in the reflection, expected 2 to 4"),
    "question's points": (grader("answer-1", points=3), "the question says 1 points, the metadata 3"),
    "answer's id": (grader("answer-1", grade_id="why"), "grade id is 'why', expected 'reflect_1'"),
    "no sample answer": (text("answer-1", "I had", ""), None),
    "empty answer": (lambda book: cell(book, "answer-1").update(source="Because."), "is not a sample answer"),
    "no next lab": (text("summary", "**Next lab.**", "Next lab"), "**Next lab.** is missing"),
    "no references": (text("summary", "**References.**", "See"), "**References.** is missing"),
    "grade id twice": (grader(SOLVE, grade_id="mean_over_ranks"), "is used 2 times"),
    "no points": (grader(CHECK, points=0), "is graded, but has no points"),
    "schema": (grader(CHECK, schema_version=2), "schema_version is 2, expected 3"),
    "half metadata": (lambda b: cell(b, CHECK).metadata["nbgrader"].pop("task"), "nbgrader metadata lacks task"),
    "no lead-in": (text("exercise-2", "### Exercise 2", "### Task 2"), "no '### Exercise 2 (★, N points): ...'"),
    "lead-in's number": (text("exercise-2", "Exercise 2", "Exercise 3"), "says exercise 3, expected 2"),
    "lead-in's points": (text("exercise-2", "2 points", "3 points"), "2 points in the metadata, 3 in the lead-in"),
    "no check": (drop(CHECK), "must be its check, with grade id 'check_share'"),
    "check's id": (grader(CHECK, grade_id="test_share"), "checks no exercise"),
    "no hints": (drop(HINTS), "must stand right below its check"),
    "two hints": (text(HINTS, "Hint 3", "Hint 4"), "expected three folded hints"),
    "no solution": (text(SOLVE, "### BEGIN", "# BEGIN"), "no solution between"),
    "library solution": (text(SOLVE, "return n", "dl.comm.shares; return n"), "the solution calls the library"),
    "no docstring": (lambda b: cell(b, SOLVE).update(source=undocumented(cell(b, SOLVE).source)), "has no docstring"),
    "a question that is computed": (
        text("predict-sum", '"Each of four', 'f"{1}Each of four'),
        "the question of prediction 'sum' is no plain text",
    ),
    "no hidden tests": (text(CHECK, "HIDDEN TESTS", "MORE"), "no hidden tests between"),
    "no visible check": (text(CHECK, 'lab.check("share", share)\n', "share\n"), "among the visible checks"),
    "partial credit": (text(CHECK, "### BEGIN", "0.5\n### BEGIN"), "which nbgrader reads as partial credit"),
    "solution in prose, with other spaces": (
        text("exercise-2", "### Exercise 2", "`return n//size + (1 if rank<n%size else 0)`\n\n### Exercise 2"),
        "gives away a line of the solution of share",
    ),
    "unlocked check": (grader(CHECK, locked=False), "a check must be locked"),
    "same id": (lambda book: cell(book, "who").update(id="doctor"), "id 'doctor' is used 2 times"),
    "another count": (outputs, "or outputs that are not compared"),
    "outputs of an untagged cell": (tag("who"), "or outputs that are not compared"),
    "no outputs to compare with": (
        lambda book: cell(book, "who").update(outputs=[], execution_count=None),
        "is tagged nbval-check-output and holds no printed output",
    ),
    "strange tag": (tag("who", "nbval-chek-output"), "unknown tag 'nbval-chek-output'"),
    "kernel": (kernel, "its kernel or its format is not"),
    "absolute path": (text("who", "# the results", "# /home/anna/x"), "absolute path: '/home/anna/x"),
    "Windows path": (text("who", "# the results", "# C:\\Users"), "absolute path"),
    "NBVAL comment": (text("who", "# the results", "# NBVAL_SKIP"), "use the tag nbval-check-output"),
    "encoding": (text("who", "# the results", "; open('x', 'w')"), 'without encoding="utf-8"'),
    "dead link": (
        text("summary", "the other for speed", "[see](../lab98/lab98.ipynb)"),
        "link to ../lab98/lab98.ipynb",
    ),
}


def undocumented(source):
    """Remove the docstring."""
    return source[: source.index('    """')] + source[source.index('    """\n    ###') + 8 :]


@pytest.mark.nightly(but_every=3)
@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_reports(spoil, name):
    how, words = BROKEN[name]
    problems = spoil(how)
    if words is None:  # still fine: the rule is not stricter than it says
        assert problems == []
    else:
        assert any(words in p for p in problems), problems


def test_a_file_beside_the_notebook_may_not_shadow_a_module(tmp_path):
    shutil.copytree(WELCOME.parent, tmp_path / "lab00_welcome")
    for name in ("queue.py", "comm.py", "helper.py"):
        (tmp_path / "lab00_welcome" / name).write_text("", encoding="utf-8")
    found = [str(p) for p in check_lab(tmp_path / "lab00_welcome" / "lab00.ipynb") if "shadows" in str(p)]
    assert found == [
        "comm.py beside the notebook shadows the module comm",
        "queue.py beside the notebook shadows the module queue",
    ]


def test_problems_name_the_cell(spoil):
    (problem,) = spoil(text("who", "# the results", "# NBVAL_SKIP"))
    assert problem.startswith("cell 7 (who): ")


def test_tidy_undoes_what_a_save_adds(tmp_path):
    path = tmp_path / "lab00.ipynb"
    shutil.copy(WELCOME, path)
    assert not tidy(path)
    book = nbformat.read(path, as_version=4)
    for change in (outputs, metadata, kernel):
        change(book)
    cell(book, "doctor").outputs = [nbformat.v4.new_output("stream", text="x")]
    book.metadata["language_info"]["version"] = "3.13.0"
    path.write_text(nbformat.writes(book, indent=4), encoding="utf-8")
    assert tidy(path)
    assert path.read_bytes() == WELCOME.read_bytes()


def test_what_a_cell_uses_and_binds():
    source = "def f(model, x=k):\n    y = model + z\n    return [w for w in y]\nq = g(lambda a: a + b)\n%time\n"
    source += "import os.path as osp, sys\nwith opened(n) as h: pass"
    ours = Cell(0, nbformat.v4.new_code_cell(source))
    assert ours.uses == {"b", "g", "k", "n", "opened", "z"}
    assert ours.binds == {"f", "h", "osp", "q", "sys"}


def test_the_names_of_a_comprehension_are_its_own_in_every_python():
    source = "a = [[q for q in step] for step in b]\nc = {step: {v for v in d} for step in e}\nf = [x for x in g]"
    ours = Cell(0, nbformat.v4.new_code_cell(source))
    assert ours.uses == {"b", "d", "e", "g"}  # Python 3.12 keeps step, v and x in the table of the module
    assert ours.binds == {"a", "c", "f"}
