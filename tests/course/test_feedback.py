"""The page that a student gets back: exercises by name, unread answers marked, nothing loaded, formulas shown."""

import re

import nbformat
import pytest
from distcourse.author import source_notebooks
from distcourse.author.pages import Paths, markdown, mathml, titles
from distcourse.author.source import Source
from nbformat.v4 import new_markdown_cell, writes

from . import grading, small
from .conftest import COURSE
from .submissions import solved

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(300)]
pytest.importorskip("latex2mathml")

TYPED = re.compile(r"<pre>\$\$|<code>\$[^<]*\$</code>")


def named():
    """The small lab, with what a real one has around an exercise."""
    book = small.source()
    cells = {cell.id: cell for cell in book.cells}
    hints = "<details><summary>Hint 1</summary>\n\nThink of $\\frac{1}{2}$.\n\n</details>"
    for before, text in (
        ("one", "### Exercise 1 (★, 2 points): the *first* of `all` & <more>\n\nReturn 1."),
        ("words", "### Question 1 (1 point)\n\nWhy?"),
        ("two", hints),
    ):
        book.cells.insert(book.cells.index(cells[before]), new_markdown_cell(text, id=f"above-{before}"))
    return book


@pytest.fixture(scope="module")
def course(tmp_path_factory, jupyter_home):
    """A course in which anna has an exercise right, two wrong, and an answer that waits."""
    course = small.make_course(tmp_path_factory.mktemp("named"), COURSE / grading.CONFIG)
    (course / "source" / small.LAB / "lab00.ipynb").write_text(writes(named()) + "\n", encoding="utf-8")
    book = solved(grading.generate(course, small.LAB), named())
    for cell in book.cells:
        if cell.id in ("two", "three"):
            cell.source = f"def {cell.id}():\n    return __file__"
    book.cells.append(nbformat.v4.new_code_cell("import os\nprint(np.__file__)\nprint(os.environ)"))
    grading.submit(course, small.LAB, "anna", book)
    grading.autograde(course, small.LAB, "anna")
    return course


def text_of(page):
    """The text of a page, white space made one."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("<body>")[2]))


@pytest.mark.nightly
def test_exercises_have_names_and_an_unread_answer_is_not_zero(course):
    page = grading.feedback(course, small.LAB, "anna")
    said = text_of(page)
    assert "Feedback on Lab 00: Small" in said
    assert "Exercise 1: the *first* of all &amp; &lt;more&gt; 2 of 2" in said
    assert "check_two 0 of 2" in said, "it has no lead-in: its name in the gradebook"
    assert "Question 1 not graded yet, of 1" in said
    assert "so far 2 of 6" in said
    assert "Answers for 1 points wait" in said

    api = grading.nbgrader(course)
    with api.gradebook as book:
        grade = book.find_grade("words", "lab00", small.LAB, "anna")
        grade.manual_score, grade.needs_manual_grade = 0.5, False
        book.db.commit()
    said = text_of(grading.feedback(course, small.LAB, "anna"))
    assert "Question 1 0.5 of 1" in said
    assert "in all 2.5 of 7" in said
    assert "not graded yet" not in said


def test_a_page_loads_nothing_and_has_no_path_of_this_machine(course):
    page = grading.feedback(course, small.LAB, "anna")
    assert not re.findall(r"<script|<link|@import|url\(|src=\"(?!data:)", page)
    assert "packages/numpy/__init__.py" in page
    for place in (course, COURSE.parent, grading.__file__):
        assert str(place) not in page


def test_paths_are_shortened_at_whole_names(monkeypatch):
    monkeypatch.setenv("HOME", "/home/stu")
    assert Paths("/c")("/home/stu/a, /home/student/work, /home/stu") == "~/a, /home/student/work, ~"


def test_hints_fold_and_formulas_are_shown_by_the_browser_itself(course):
    page = grading.feedback(course, small.LAB, "anna")
    hint = re.search(r"<details>\s*<summary>Hint 1</summary>.*?</details>", page, re.DOTALL)
    assert "<mfrac>" in hint[0]
    assert "<details><summary>the check</summary>" in page


def test_every_formula_of_the_labs_is_shown():
    seen = 0
    for path in source_notebooks(COURSE):
        for cell in Source(path).cells:
            if not cell.is_code:
                page = markdown(cell.source)
                seen += page.count("<math")
                assert not TYPED.findall(page), (path.name, cell.id)
                assert not re.findall(r"<m[a-z]+>(\\[A-Za-z]+|&amp;)", page), (path.name, cell.id)
    assert seen > 100


@pytest.mark.parametrize(
    "tex", [r"\frac{", r"\href{javascript:f()}{x}", "x" * 3000, r"\style{color:red;background:url(x)}{x}", "{" * 2000]
)
def test_what_cannot_be_shown_is_shown_as_it_was_typed(tex):
    assert mathml(tex, "inline") == ""
    assert TYPED.search(markdown(f"${tex}$"))


def test_a_wide_formula_scrolls_in_a_box_of_its_own(course):
    assert '<div class="formula"><math' in markdown("$$a = b$$")
    assert re.search(r"\.formula {[^}]*overflow-x: auto", grading.feedback(course, small.LAB, "anna"))


def test_a_formula_runs_nothing():
    made = markdown(r"$a < b \text{<script>f()</script>}$ and $x<img src=x onerror=f()>$")
    assert "<script" not in made
    assert "<img" not in made


def test_every_exercise_and_question_has_a_name(lab):
    source = Source(next((COURSE / "source" / lab).glob("*.ipynb")))
    found = titles(source)
    assert {cell.grade_id for cell in source.cells if cell.grader} == set(found)
    assert all(re.match(r"Exercise \d: \S|Question \d", name) for name in found.values())
