"""A course of our own in a temporary folder, graded by nbgrader as an instructor would."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
from click.testing import CliRunner
from distcourse.author import sandbox
from distcourse.author.grade import grade, open_api
from distcourse.commands.course import course as command

CONFIG = "nbgrader_config.py"


def run(*words) -> tuple[int, str]:
    """Run `distlearn course`; return exit status and everything it printed."""
    result = CliRunner().invoke(command, [*map(str, words)], catch_exceptions=False)
    return result.exit_code, result.output


def make_course(root: Path, course: Path, lab: str) -> Path:
    """Copy the course's configuration and one lab's source to `root`."""
    shutil.copytree(course / "source" / lab, root / "course" / "source" / lab)
    copy_config(course / CONFIG, root / "course")
    return root / "course"


def copy_config(config: Path, course: Path) -> None:
    """Copy the course's configuration; where there is no sandbox, submissions of our own are graded without one."""
    shutil.copy(config, course / CONFIG)
    if sandbox.available():  # it says why there is none
        with (course / CONFIG).open("a", encoding="utf-8") as file:
            file.write("\nc.ExecuteAll.unsafe = True\n")


def nbgrader(course: Path):
    """nbgrader's API for a course directory."""
    return open_api(course)


def generate(course: Path, lab: str) -> nbformat.NotebookNode:
    """Make the student's copy, and the lab's entry in the gradebook; return the copy."""
    done = nbgrader(course).generate_assignment(lab, force=True, create=True)
    assert done["success"], done.get("log") or done.get("error")
    (path,) = (course.parent / "labs" / lab).glob("*.ipynb")
    return nbformat.read(path, as_version=4)


def submit(course: Path, lab: str, student: str, notebook) -> None:
    """Hand in a notebook."""
    folder = course / "submitted" / student / lab
    folder.mkdir(parents=True)
    (source,) = (course / "source" / lab).glob("*.ipynb")
    nbformat.write(notebook, folder / source.name)


def scores_of(api, lab: str, student: str) -> dict[str, dict]:
    """Return {grade id: {"score", "max", "manual"}} of a graded student."""
    with api.gradebook as book:
        return {
            g.name: {"score": g.auto_score, "max": g.max_score, "manual": bool(g.needs_manual_grade)}
            for g in book.find_submission(lab, student).notebooks[0].grades
        }


def autograde(course: Path, lab: str, student: str) -> dict[str, dict]:
    """Grade one student in this process; return the scores."""
    api = nbgrader(course)
    done = api.autograde(lab, student, force=True, create=True)
    assert done["success"], done.get("log") or done.get("error")
    return scores_of(api, lab, student)


def grade_all(course: Path, lab: str, students) -> dict[str, dict[str, dict]]:
    """Grade students, two at once; return their scores by name."""
    for done in grade(course, lab, students, at_once=2):
        assert not done.error, (done.student, done.error)
    api = nbgrader(course)
    return {student: scores_of(api, lab, student) for student in students}


def feedback(course: Path, lab: str, student: str) -> str:
    """Write the feedback for one student; return the page."""
    done = nbgrader(course).generate_feedback(lab, student, force=True)
    assert done["success"], done.get("log") or done.get("error")
    (page,) = (course / "feedback" / student / lab).glob("*.html")
    return page.read_text(encoding="utf-8")
