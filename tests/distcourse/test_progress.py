"""How far a student is, from notebooks as JupyterLab saves them."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner
from distcourse.commands import student
from distcourse.progress import after_save, find_labs, read_all, write_page

LABS = Path(__file__).parents[2] / "labs"


@pytest.fixture
def labs(tmp_path):
    folder = tmp_path / "labs"
    for name in ("lab00_welcome", "lab01_backprop"):
        shutil.copytree(LABS / name, folder / name)
    shutil.copy(LABS / "README.md", folder)
    return folder


def work(path, checks: int, wrong: int, guesses: int):
    """Save a notebook in which so many checks pass, so many fail, and so many guesses are made."""
    book = nbformat.read(path, 4)
    graded = [c for c in book.cells if c.cell_type == "code" and c.metadata.get("nbgrader", {}).get("grade")]
    for cell in graded[: checks + wrong]:
        cell.execution_count = 1
    for cell in graded[checks : checks + wrong]:
        cell.outputs = [nbformat.v4.new_output("error", ename="CheckFailed", evalue="", traceback=[])]
    asked = [c for c in book.cells if "answer=..." in c.source]
    for cell in asked[:guesses]:
        cell.source = cell.source.replace("answer=...", "answer=3")
    nbformat.write(book, path)
    return sum(c.metadata.nbgrader.points for c in graded[:checks])


def test_untouched_labs_are_not_begun(labs):
    for progress in read_all(labs):
        assert (progress.points, progress.guesses, progress.minutes) == (0, 0, 0)
        assert progress.all_points > 0
        assert progress.all_guesses > 0
        assert progress.bar == "□" * 10


def test_what_passed_counts_and_what_failed_does_not(labs):
    points = work(labs / "lab01_backprop" / "lab01.ipynb", checks=3, wrong=1, guesses=2)
    zero, one = read_all(labs)
    assert zero.points == 0
    assert (one.points, one.guesses) == (points, 2)
    assert 0 < one.minutes < one.all_minutes


def test_the_page_follows_what_is_saved(labs):
    page = write_page(labs)
    assert "□" * 10 in page.read_text(encoding="utf-8")
    notebook = labs / "lab00_welcome" / "lab00.ipynb"
    points = work(notebook, checks=2, wrong=0, guesses=1)
    after_save({"type": "notebook"}, str(notebook), None)
    row = next(line for line in page.read_text(encoding="utf-8").splitlines() if "lab00_welcome/" in line)
    assert f"{points:g} of " in row
    assert "1 of " in row
    (labs / "lab01_backprop" / "lab01.ipynb").write_text("{", encoding="utf-8")  # half written
    assert [progress.lab for progress in read_all(labs)] == ["lab00_welcome"]
    write_page(labs)


def test_what_was_renamed_is_named_and_what_was_deleted_still_counts(labs):
    total = read_all(labs)[1].all_points
    path = labs / "lab01_backprop" / "lab01.ipynb"
    book = nbformat.read(path, 4)
    book.cells = [c for c in book.cells if not c.metadata.get("nbgrader", {}).get("grade")]
    nbformat.write(book, path)
    (labs / "lab00_welcome" / "lab00.ipynb").rename(labs / "lab00_welcome" / "lab00 Anna.ipynb")
    zero, one = read_all(labs)
    assert one.all_points == total
    assert zero.bar == "not found: lab00 Anna.ipynb?"
    assert zero.bar in write_page(labs).read_text(encoding="utf-8")


def test_only_labs_are_followed(tmp_path):
    after_save({"type": "notebook"}, str(tmp_path / "mine" / "own.ipynb"), None)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError, match="no labs here"):
        find_labs(tmp_path)


def test_start_opens_the_page(labs, monkeypatch):
    import jupyterlab.labapp

    called = []
    monkeypatch.setattr(jupyterlab.labapp, "main", lambda argv: called.append(argv) or 0)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "mine")
    done = CliRunner().invoke(student.start, ["--labs", str(labs), "--port=9000"])
    assert done.exit_code == 0, done.output
    (argv,) = called
    assert argv[-1] == "--port=9000"
    assert f"--ServerApp.root_dir={labs.parent}" in argv
    assert (labs / "START.md").exists()


def test_progress_is_a_table(labs):
    points = work(labs / "lab00_welcome" / "lab00.ipynb", checks=2, wrong=0, guesses=0)
    done = CliRunner().invoke(student.progress, ["--labs", str(labs)])
    assert done.exit_code == 0, done.output
    assert f"{points:g} of 29 points" in done.output
