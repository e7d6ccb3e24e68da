"""Grading refuses where there is no sandbox, and where the gradebook has other tests than the source."""

import json
import logging
import shutil

import pytest
from distcourse.author import sandbox
from distcourse.author import source as sources

from . import grading, small
from .conftest import COURSE
from .submissions import solved

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def course(tmp_path_factory, jupyter_home):
    """A course with one submission, which is right."""
    course = small.make_course(tmp_path_factory.mktemp("ready"), COURSE / grading.CONFIG)
    grading.submit(course, small.LAB, "anna", solved(grading.generate(course, small.LAB), small.source()))
    return course


def refusal(course, caplog):
    """Grade; return what nbgrader logs when it refuses."""
    with caplog.at_level(logging.ERROR):
        done = grading.nbgrader(course).autograde(small.LAB, "anna", force=True, create=True)
    assert not done["success"]
    return str(done.get("log")) + str(done.get("error"))


@pytest.mark.nightly
def test_without_a_sandbox_nothing_is_run_unless_one_says_so(course, caplog, monkeypatch):
    monkeypatch.setattr(sandbox, "available", lambda: "bwrap is not installed")
    shutil.copy(COURSE / grading.CONFIG, course)  # as it is, also where there is no sandbox
    text = refusal(course, caplog)
    assert "sudo apt install bubblewrap" in text
    assert "--ExecuteAll.unsafe=True" in text
    assert not (course / "autograded" / "anna" / small.LAB).exists()
    with (course / grading.CONFIG).open("a", encoding="utf-8") as file:
        file.write("\nc.ExecuteAll.unsafe = True\n")
    scores = grading.autograde(course, small.LAB, "anna")
    assert {scores[f"check_{name}"]["score"] for name in small.EXERCISES} == {2}


def test_a_gradebook_with_other_tests_is_refused(course, caplog):
    grading.copy_config(COURSE / grading.CONFIG, course)
    path = course / "source" / small.LAB / "lab00.ipynb"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('check.close(\\"hidden\\"', 'check.close(\\"hidden, new\\"', 1), encoding="utf-8")
    said = refusal(course, caplog)
    assert "check_one" in said
    assert "check_two" not in said
    assert f"nbgrader generate_assignment {small.LAB} --force" in said
    book = json.loads(text)
    next(c for c in book["cells"] if c["id"] == "check-two")["metadata"]["nbgrader"]["points"] = 3
    path.write_text(json.dumps(book), encoding="utf-8")
    assert "check_two" in refusal(course, caplog)


def test_other_cases_and_another_solution_are_other_tests(tmp_path):
    (source,) = shutil.copytree(COURSE / "source" / "lab14_scale", tmp_path / "lab14_scale").glob("*.ipynb")
    seen = [sources.tests_of(sources.Source(source))]
    for path, old, new in (
        (source.with_name("exercises.py"), "EXERCISES = {}", "EXERCISES = dict()"),
        (source, "### BEGIN SOLUTION", '### BEGIN SOLUTION\\n",\n    "    # another'),
    ):
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        seen.append(sources.tests_of(sources.Source(source)))
    assert len(set(seen)) == 3
