"""A class of invented students: how long does grading take, and is every score what it should be?

    python -m tests.course.many [--students 40] [--jobs 2] [lab00_welcome lab01_backprop lab04_kernels]

Most have some exercises wrong; of twenty, one has an untouched lab, one a solved one, one an answer that does not end,
one a cell that ends the kernel, and one a cell that does not end. Prints the seconds a submission took, and every score
that is not the expected one; exits with 1 if there is any.
"""

from __future__ import annotations

import argparse
import ast
import copy
import random
import tempfile
import time
from pathlib import Path

import nbformat
from distcourse.author.grade import grade
from nbformat.v4 import new_code_cell

from . import grading
from .conftest import COURSE
from .submissions import graded_id, mutants, solved, wrong

LABS = ["lab00_welcome", "lab01_backprop", "lab04_kernels"]


def invented(lab: str, released, source, count: int):
    """Yield (student, what they did, notebook, grade ids of the checks that must fail)."""
    solution, known, rng = solved(released, source), mutants(lab), random.Random(lab)
    checks = {graded_id(c) for c in solution.cells if graded_id(c).startswith("check_")}
    for i in range(count):
        book, loses, did, kind = copy.deepcopy(solution), set(), "solved", i % 20
        if kind == 0:
            book, loses, did = copy.deepcopy(released), checks, "untouched"
        elif kind == 2:
            name = sorted(known)[i // 20 % len(known)]
            cell = next(c for c in book.cells if graded_id(c) == name)
            names = [node.name for node in ast.parse(cell.source).body if hasattr(node, "name")]
            cell.source += "".join(f"\n\ndef {n}(*args, **kwargs):\n    while True:\n        pass" for n in names)
            loses, did = {f"check_{name}"}, f"{name} does not end"
        elif kind in (3, 4):
            text = "import os\nos._exit(3)" if kind == 3 else "while True:\n    pass"
            book.cells.insert(3, new_code_cell(text))
            did = f"a cell of their own: {text!r}"
        elif kind > 4:
            told = []
            for name in rng.sample(sorted(known), rng.randint(1, max(1, len(known) // 2))):
                text, code = rng.choice(known[name])
                book, loses = wrong(book, name, code), loses | {f"check_{name}"}
                told.append(f"{name}: {text}")
            did = "; ".join(told)
        yield f"s{i:03}", did, book, loses


def one_lab(lab: str, count: int, jobs: int | None) -> int:
    """Grade one lab's students; return how many got another score than expected."""
    with tempfile.TemporaryDirectory() as root:
        course = grading.make_course(Path(root), COURSE, lab)
        released = grading.generate(course, lab)
        (path,) = (course / "source" / lab).glob("*.ipynb")
        source, expected, deeds = nbformat.read(path, as_version=4), {}, {}
        points = {graded_id(c): c.metadata.nbgrader.get("points") for c in source.cells if graded_id(c)}
        for student, did, book, loses in invented(lab, released, source, count):
            grading.submit(course, lab, student, book)
            expected[student] = {n: 0 if n in loses else p for n, p in points.items() if n.startswith("check_")}
            deeds[student] = did
        began, differ = time.monotonic(), 0
        for done in grade(course, lab, list(expected), at_once=jobs):
            got = {name: score for name, score in done.points.items() if name.startswith("check_")}
            if done.error or got != expected[done.student]:
                differ += 1
                print(f"  {done.student} ({deeds[done.student]}): {done.error or got}, not {expected[done.student]}")
        took = time.monotonic() - began
    print(f"{lab}: {count} submissions in {took:.0f} s, {took / count:.1f} s each; {differ} scores differ", flush=True)
    return differ


def main() -> None:
    """Grade all labs that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("labs", nargs="*", default=LABS)
    parser.add_argument("--students", type=int, default=40)
    parser.add_argument("--jobs", type=int)
    told = parser.parse_args()
    raise SystemExit(1 if sum([one_lab(lab, told.students, told.jobs) for lab in told.labs]) else 0)


if __name__ == "__main__":
    main()
