"""Grades for a learning platform, what students get, and what a class got wrong."""

from __future__ import annotations

import csv
import re
import textwrap
import zipfile
from collections import Counter
from pathlib import Path

import nbformat

from .grade import notes_of, remaining
from .release import files_of, labs_dir, source_notebooks
from .source import BEGIN_HIDDEN, BEGIN_SOLUTION, END_HIDDEN, END_SOLUTION, Source

LATE = "late"  # File of a submission that its platform calls late.


def is_late(submission, folder) -> bool:
    """Return whether a submission of the gradebook, handed in to a folder, came after it was due."""
    return submission.total_seconds_late > 0 or Path(folder, LATE).exists()


def secrets(source: Source) -> set[str]:
    """Return the lines of a lab that students must not get: of solutions, hidden tests and sample answers."""
    found, public = set(), set()
    for cell in source.cells:
        inside = cell.is_answer
        for line in cell.source.splitlines():
            inside = inside or BEGIN_SOLUTION in line or BEGIN_HIDDEN in line
            (found if inside else public).add(line.strip())
            inside = cell.is_answer or (inside and END_SOLUTION not in line and END_HIDDEN not in line)
    return {line for line in found - public if len(line) > 12}


def leaks(source: Source, released: str) -> list[str]:
    """Return the secret lines of a lab that are in a released notebook (its text)."""
    texts = "\n".join(cell.source for cell in nbformat.reads(released, as_version=4).cells)
    lines = {line.strip() for line in texts.splitlines()}
    return sorted(secrets(source) & lines)


def bundle(course, target, names=None, assistants: str = "tutor") -> list[str]:
    """Write a zip of what students get, with the rules for their AI assistants; return the labs in it."""
    folder, files = labs_dir(course), []
    for path in source_notebooks(course, names):
        lab = path.parent.name
        files += [(file, f"{lab}/{name}") for name, file in files_of(folder / lab).items()]
        released = (folder / lab / path.name).read_text(encoding="utf-8")
        found = leaks(Source(path), released)
        if found:
            raise ValueError(f"{lab}: the students' copy holds what it should not: {found[0]!r}")
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, name in files:
            archive.write(file, name)
        rules = Path(course, "staff", f"AGENTS_{assistants}.md")
        for file, name in ((rules, "AGENTS.md"), (folder / "README.md", "README.md")):
            if file.exists():
                archive.write(file, name)
    return sorted({name.partition("/")[0] for _, name in files})


def write_grades(api, lab: str, target, form: str = "csv") -> int:
    """Write the points of one lab; return for how many students."""
    rows, exercises, root = [], {}, Path(api.coursedir.root)
    without = set(remaining(root, lab))
    with api.gradebook as book:
        assignment = book.find_assignment(lab)
        maximum = assignment.max_score
        for submission in sorted(book.assignment_submissions(lab), key=lambda s: s.student.id):
            grades = {g.name: g for notebook in submission.notebooks for g in notebook.grades}
            exercises |= dict.fromkeys(grades)
            waits = [g.name for g in grades.values() if g.needs_manual_grade and g.manual_score is None]
            points = {name: "" if name in waits else f"{grade.score:g}" for name, grade in grades.items()}
            if submission.student.id not in without:
                late = is_late(submission, root / "submitted" / submission.student.id / lab)
                rows.append((submission.student.id, points, f"{submission.score:g}", len(waits), "late" * late))
    rows = sorted([*rows, *((student, {}, "", 0, "") for student in without)])
    so_far = " (so far)" * any(waits for _, _, _, waits, _ in rows)  # Canvas imports no remarks
    columns = {
        "canvas": ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", lab + so_far],
        "moodle": ["Identifier", "Grade", "Maximum Grade", "Feedback comments"],
        "csv": ["student", *exercises, "points", "maximum", "answers to read", "late", "remark"],
    }[form]
    with Path(target).open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(columns)
        if form == "canvas":
            out.writerow(["Points Possible", "", "", "", "", f"{maximum:g}"])
        for student, points, total, waits, late in rows:
            number = re.search(r"-(\d+)$", student)  # what `collect` puts behind a name
            remark = "; ".join(filter(None, [late, f"{waits} written answers are not read yet" * bool(waits)]))
            student = re.sub(r"^(?=[=+@-])", "'", student)  # a spreadsheet would take it for a formula
            out.writerow({
                "canvas": [student, number[1] if number else "", "", "" if number else student, "", total],
                "moodle": [f"Participant {number[1]}" if number else student, total, f"{maximum:g}", remark],
                "csv": [student, *(points.get(name, "") for name in exercises), total, f"{maximum:g}", waits, late,
                        "" if points else "not graded: `distlearn course grade` says why"],
            }[form])  # fmt: skip
    return len(rows)


def mistakes(course, lab: str) -> list[tuple[str, str, int]]:
    """Return (check, what it said, for how many students), the most frequent of each check first."""
    counts: dict[str, Counter] = {}
    for path in _autograded(course, lab):
        for cell in Source(path).cells:
            said = _diagnosis(cell.node.outputs) if cell.is_check else ""
            if said:
                counts.setdefault(cell.grade_id, Counter())[said] += 1
    return [(check, said, n) for check, found in counts.items() for said, n in found.most_common()]


def looks(course, lab: str) -> list[tuple[str, str]]:
    """Return (student, what is worth a look in their graded submission): cells that were stopped, what was put back."""
    return [
        (path.parent.parent.name, line) for path in _autograded(course, lab) for line in notes_of(path).get("looks", ())
    ]


def _autograded(course, lab: str) -> list[Path]:
    return sorted(Path(course, "autograded").glob(f"*/{lab}/*.ipynb"))


def _diagnosis(outputs) -> str:
    """The first mistake that a check names, or its first failed line, which is equal where results are."""
    if any(out.get("ename") == "CellTimeoutError" for out in outputs):
        return "does not end"
    for out in outputs:
        if out.output_type != "error":
            continue
        lines = out.evalue.splitlines()
        named = [line.partition("-> ")[2] for line in lines if line.strip().startswith("-> ")]
        failed = [line.strip()[2:] for line in lines[1:] if line.strip().startswith("✗")]
        failed = [line.removeprefix("stopped").strip() for line in failed]  # the name of the line for an exception
        text = next(iter(named or failed or [out.evalue]), "")
        text = text if named or "not written yet" in text else f"no sentence: {text}"
        text = "".join(ch if ch.isprintable() else " " for ch in text)  # students choose parts of it
        return textwrap.shorten(text, 200, placeholder=" ...")
    return ""
