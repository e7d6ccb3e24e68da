"""What a student sees first: the page with the map of the labs, and notebooks whose checks are folded."""

import os
import re
import subprocess

import nbformat
import pytest

from .conftest import COURSE, LABS
from .submissions import solved

HERE = COURSE.parent / "labs"
PAGE = (HERE / "README.md").read_text(encoding="utf-8")


def released(lab):
    return nbformat.read(next((HERE / lab).glob("*.ipynb")), as_version=4)


@pytest.mark.parametrize("name", LABS)
def test_the_page_has_every_lab_with_its_question_and_minutes(name):
    title = released(name).cells[0].source
    (row,) = [line for line in PAGE.splitlines() if f"({name}/{name.partition('_')[0]}.ipynb)" in line]
    minutes = re.search(r"\*\*Time\.\*\* (\d+) minutes", title)[1]
    assert f"| {minutes} |" in row
    assert re.search(r"\*\*Question\.\*\* (.+)", title)[1] in row


@pytest.mark.parametrize("name", LABS)
def test_the_syllabus_has_its_hours_in_halves(name):
    minutes = int(re.search(r"\*\*Time\.\*\* (\d+) minutes", released(name).cells[0].source)[1])
    syllabus = (COURSE / "syllabus.md").read_text(encoding="utf-8")
    hours = re.search(rf"^\| {name[3:5]} [^|]*\|[^|]*\| ([\d.]+) \|", syllabus, re.MULTILINE)[1]
    assert abs(60 * float(hours) - minutes) <= 15


def test_its_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert links
    for link in links:
        assert (HERE / link).is_file(), f"{link}: JupyterLab opens files, not folders"


@pytest.mark.parametrize("name", LABS)
def test_checks_are_folded_and_answers_are_not(name):
    for cell in [c for c in released(name).cells if c.cell_type == "code"]:
        told, hidden = cell.metadata.get("nbgrader", {}), cell.metadata.get("jupyter", {}).get("source_hidden", False)
        is_check = bool(told.get("grade")) and not told.get("solution")
        assert hidden == (is_check or "folded" in cell.metadata.get("tags", [])), cell.id


def test_a_newer_version_keeps_what_a_student_wrote(tmp_path):
    """By the commands of the page; the cells that both changed are those of the student."""
    course, mine = tmp_path / "course", tmp_path / "mine"
    me = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a"}

    def shell(command, cwd):
        subprocess.run(command, shell=True, cwd=cwd, check=True, capture_output=True, env=os.environ | me)

    course.mkdir()
    lab = LABS[1]
    nbformat.write(released(lab), course / "lab.ipynb")
    shell("git init -q -b main && git add . && git commit -qm one && git clone -q . ../mine", course)
    work = solved(released(lab), nbformat.read(next((COURSE / "source" / lab).glob("*.ipynb")), as_version=4))
    code = [cell for cell in work.cells if cell.cell_type == "code"]
    for count, cell in enumerate(code, 1):
        cell.execution_count, cell.outputs = count, [nbformat.v4.new_output("stream", text="loss\n" * (count % 5 + 1))]
    nbformat.write(work, mine / "lab.ipynb")
    newer, answered = released(lab), {cell.id: cell.source for cell in code if "raise Not" not in cell.source}
    exercise = next(i for i, cell in enumerate(newer.cells) if "raise NotImplementedError" in cell.source)
    newer.cells[0].source += "\nAn erratum."
    newer.cells[exercise].source = newer.cells[exercise].source.replace("raise Not", "# two\n        raise Not")
    newer.cells[-1].source = "Another end."
    nbformat.write(newer, course / "lab.ipynb")
    shell("git commit -qam two", course)
    shell(re.search(r"`(git commit [^`]+)`", PAGE)[1], mine)
    merged = nbformat.read(mine / "lab.ipynb", as_version=4)
    nbformat.validate(merged)
    assert merged.cells[0].source.endswith("An erratum.")
    assert merged.cells[-1].source == "Another end."
    assert answered == {cell.id: cell.source for cell in merged.cells if cell.id in answered}
