"""What a student sees first: the page with the map of the labs, and notebooks whose checks are folded."""

import re

import nbformat
import pytest

from .conftest import COURSE, LABS

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
