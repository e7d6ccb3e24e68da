"""A lab of three small exercises in a course of its own, for submissions that are odd rather than wrong."""

from __future__ import annotations

from pathlib import Path

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, writes

from . import grading

LAB = "lab00_small"
SETUP = """import matplotlib.pyplot as plt
import numpy as np
import distlearn as dl
import distcourse
lab = distcourse.Lab("00")"""
CHECK = """with distcourse.Check("{name}") as check:
    check.close("{name}", twice({name}()), {twice})
### BEGIN HIDDEN TESTS
with distcourse.Check("{name}, hidden") as check:
    secret_{name} = list(range(3))
    check.close("hidden", [{name}() for _ in secret_{name}], [{value}] * 3)
    check.close("as an array", {name}(), np.float64({value}))
### END HIDDEN TESTS"""
EXERCISES = {"one": 1, "two": 2, "three": 3}


def told(name, **more):
    """nbgrader's metadata."""
    known = {"schema_version": 3, "grade_id": name, "grade": False, "solution": False, "locked": False, "task": False}
    return {"nbgrader": known | more}


def source():
    """The lab's source."""
    cells = [
        new_markdown_cell("# Lab 00: Small", id="title"),
        new_code_cell(SETUP, id="setup"),
        new_code_cell("def twice(x):\n    return 2 * x\n\nprint(twice(1))", id="helper"),
    ]
    for name, value in EXERCISES.items():
        text = f"def {name}():\n    ### BEGIN SOLUTION\n    return {value}\n    ### END SOLUTION"
        check = CHECK.format(name=name, value=value, twice=2 * value)
        cells.append(new_code_cell(text, id=name, metadata=told(name, solution=True)))
        metadata = told(f"check_{name}", grade=True, locked=True, points=2)
        cells.append(new_code_cell(check, id=f"check-{name}", metadata=metadata))
    cells.append(
        new_markdown_cell("A sample.", id="words", metadata=told("words", grade=True, solution=True, points=1))
    )
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})


def make_course(root: Path, config: Path, more: str = "") -> Path:
    """Make the course directory with the real configuration, and lines that follow it; enter the lab."""
    folder = root / "course" / "source" / LAB
    folder.mkdir(parents=True)
    (folder / "lab00.ipynb").write_text(writes(source()) + "\n", encoding="utf-8")
    grading.copy_config(config, root / "course")
    with (root / "course" / grading.CONFIG).open("a", encoding="utf-8") as file:
        file.write(more)
    return root / "course"
