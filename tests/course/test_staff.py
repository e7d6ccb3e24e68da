"""The bank of exam questions gives what it states, and papers, staff pages and JPlag's folders are made from it."""

import re
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import distcourse
import pytest
from distcourse.author import Source, source_notebooks
from distcourse.author.staff import KINDS, draw, questions

from . import grading, small
from .conftest import COURSE, LABS
from .submissions import mutants

BANK = questions(COURSE)


def variants(question):
    """The question with each of its values in turn: `draw` with a generator that does not draw."""
    n = max((len(values) for values in question.get("draw", {}).values()), default=1)
    return [draw(question, SimpleNamespace(integers=lambda m, k=k: k % m, permutation=range)) for k in range(n)]


def run(*words):
    status, said = grading.run(*words)
    assert status == 0, said
    return said


def test_there_are_five_for_each_lab_and_each_says_what_an_examiner_needs():
    assert Counter(q["lab"] for q in BANK) == {name[3:5]: 5 for name in LABS}
    sections = {lab.number: [s.number for s in lab.sections] for lab in map(Source, source_notebooks(COURSE))}
    for q in BANK:
        assert q["kind"] in KINDS, q["id"]
        assert q["section"] in sections[q["lab"]], q["id"]
        assert q["difficulty"] in (1, 2, 3), q["id"]
        assert q["points"] <= q["minutes"] <= 10, q["id"]
        assert len(q["solution"].split()) > 4, q["id"]
        if q["kind"] in ("explain", "bug", "derive"):
            assert sum(points for points, _ in q["scheme"]) == q["points"], q["id"]
    assert min(Counter(q["kind"] for q in BANK).values()) >= 5


@pytest.mark.parametrize("question", BANK, ids=lambda q: q["id"])
def test_an_answer_is_what_the_library_computes(question):
    found = variants(question)  # what is computed beside an open question asserts for itself
    if question["kind"] == "number":
        stated, told = question["answer"], found[0]["answer"]
        assert abs(told - stated) <= question["tolerance"] * abs(stated) + 1e-9, f"computed {told}, stated {stated}"
        assert len({q["answer"] for q in found}) > 1, "two groups get the same number"
    for one in found if question["kind"] == "choice" else ():
        assert len({choice["text"] for choice in one["choices"]}) == 4, one["choices"]
        assert all(wrong["why"] for wrong in one["wrong"])


def test_wrong_choices_are_mistakes_that_the_checks_know():
    named = 0
    for path in source_notebooks(COURSE):
        lab = Source(path)
        known = {answer[0] for answers in mutants(path.stem).values() for answer in answers}
        module = Path(distcourse.__file__).with_name(f"{path.stem}.py")
        text = "\n".join([*(c.source for c in lab.code), module.read_text() if module.exists() else ""])
        for q in (q for q in BANK if q["lab"] == lab.number and q["kind"] == "choice"):
            faults = [wrong["fault"] for wrong in q["wrong"] if "fault" in wrong]
            assert faults, q["id"]
            assert [f for f in faults if f not in known and f not in text] == [], q["id"]
            named += len(faults)
    assert named >= 35


def test_a_paper_and_its_key(tmp_path):
    paper, key = tmp_path / "exam.md", tmp_path / "exam_key.md"
    said = run("exam", paper, "--labs", "01,07", "--minutes", 40, "--seed", 3, "--course", COURSE)
    assert "and its key: 40 minutes" in said or "39 minutes" in said or "38 minutes" in said
    first, solved = paper.read_text(), key.read_text()
    assert first.count("## Question") == solved.count("## Question") >= 7
    for q in BANK:
        for line in [line for line in q["solution"].splitlines() if len(line) > 12]:
            assert line not in first, "a paper holds no solution"
    assert "**Wrong:**" in solved
    assert "**Wrong:**" not in first
    run("exam", paper, "--labs", "01,07", "--minutes", 40, "--seed", 4, "--course", COURSE)
    assert paper.read_text() != first
    assert grading.run("exam", paper, "--labs", "77", "--course", COURSE)[0] == 1
    said = run("exam", paper, "--labs", "12,lab13", "--minutes", 600, "--course", COURSE)
    assert "all questions on these labs are in it" in said
    assert not re.search(r"\b[1-9]\d{4,}\b", re.sub(r"```.*?```", "", paper.read_text(), flags=re.S)), "as in 16,384"


def test_a_page_for_each_lab(tmp_path):
    home = tmp_path / "course"
    shutil.copytree(COURSE / "staff", home / "staff")
    shutil.copy(COURSE / "nbgrader_config.py", home)
    for name in (LABS[0], LABS[9]):
        shutil.copytree(COURSE / "source" / name, home / "source" / name)
    assert "wrote 2 pages" in run("staff", tmp_path / "out", "--course", home)
    for path in source_notebooks(home):
        text = (tmp_path / "out" / f"{path.stem}.md").read_text()
        assert text.count("\n**Exercise") == len(Source(path).exercises)
        assert "(its check names no mistake by a sentence)" not in text
        assert "## What students believe" in text
        assert re.search(r"^\|.*\| [\d.]+ (s|%|times|ms|[a-zA-Z].*) \|$", text, re.M), "a guess with its unit"
    for name in LABS:
        text = (COURSE / "staff" / f"{name[:5]}.md").read_text()
        assert [part in text for part in ("## In the room", "## Discussion", "## Rubric")] == [True] * 3, name


def test_answers_for_jplag(tmp_path):
    home = small.make_course(tmp_path, COURSE / "nbgrader_config.py")
    released = tmp_path / "labs" / small.LAB
    for target in (released, *(home / "submitted" / name / small.LAB for name in ("anna", "ben"))):
        target.mkdir(parents=True)
        shutil.copy(home / "source" / small.LAB / "lab00.ipynb", target)
    (home / "submitted/cyd" / small.LAB).mkdir(parents=True)
    (home / "submitted/cyd" / small.LAB / "lab00.ipynb").write_text("<html>")
    said = run("jplag", small.LAB, tmp_path / "out", "--course", home)
    assert "2 students" in said
    assert f"not read: {home / 'submitted/cyd' / small.LAB / 'lab00.ipynb'}" in said
    assert {p.name for p in (tmp_path / "out" / "submissions").iterdir()} == {"anna", "ben", "cyd"}
    for folder in ("base", "submissions/anna"):
        assert {p.name for p in (tmp_path / "out" / folder).iterdir()} == {"one.py", "two.py", "three.py"}
    assert "return 2" in (tmp_path / "out/submissions/ben/two.py").read_text()
