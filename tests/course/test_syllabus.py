"""Every plan of the syllabus keeps to the order that the labs need, and to their minutes."""

import re

import pytest
from distcourse.author import Source, source_notebooks

from .conftest import COURSE, LABS

SYLLABUS = (COURSE / "syllabus.md").read_text(encoding="utf-8")
PLANS = {
    part.partition("\n")[0]: part for part in SYLLABUS.split("\n## ") if part.startswith(("A term", "10", "6", "A day"))
}


def needed() -> dict[str, set[str]]:
    """By lab, those that it builds on: the students' table ("lab 04 helps" is no condition)."""
    table = (COURSE.parent / "labs" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\d\d) [^|]*\|[^|]*\|[^|]*\|([^|]*)\|", table, re.MULTILINE)
    assert len(rows) == len(LABS)
    return {lab: set(re.findall(r"\d\d", told.partition(";")[0])) for lab, told in rows}


def rows(plan) -> list[dict[str, str]]:
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in plan.splitlines()
        if line.startswith("|")
    ]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_every_lab_comes_after_those_that_it_needs(plan):
    seen = []
    for row in rows(plan):
        labs = re.findall(r"\d\d", row["lab"]) if "lab" in row else re.findall(r"Lab (\d\d)", row["what"])
        for lab in labs:
            assert needed()[lab] <= set(seen), f"lab {lab} needs {needed()[lab]}, and {seen} were taught"
            seen.append(lab)
    assert len(seen) == len(set(seen)) >= 3


def test_four_plans_are_checked_and_their_minutes_are_the_labs():
    assert len(PLANS) == 4
    labs = {lab.number: lab for lab in map(Source, source_notebooks(COURSE))}
    timed = [row for plan in PLANS.values() for row in rows(plan) if "minutes" in row]
    assert len(timed) == 18
    for row in timed:
        lab = labs[row["lab"]]
        assert int(row["minutes"]) == lab.minutes, row
        sections = {int(n) for n in re.findall(r"\b\d\b", re.sub(r"exercise \d", "", row["in the room"]))}
        assert sections <= {s.number for s in lab.sections}, row
        assert sum(s.minutes for s in lab.sections if s.number in sections) <= 110, row
