"""The students' copies are what the sources give, and nothing that belongs to the instructor is in them."""

import re
import shutil

import nbformat
import pytest
from distcourse.author import changed_by_hand, compare_release, generate
from distcourse.author.release import find_course
from distcourse.author.source import BEGIN_HIDDEN, BEGIN_SOLUTION, END_HIDDEN, END_SOLUTION, Source
from distcourse.author.steps import without_answers
from nbgrader.converters.base import NbGraderException

from .conftest import COURSE, LABS

RELEASED = COURSE.parent / "labs"


def both(lab):
    """The source, and the student's copy."""
    (path,) = (COURSE / "source" / lab).glob("*.ipynb")
    return Source(path), nbformat.read(RELEASED / lab / path.name, as_version=4)


def test_every_folder_of_the_students_has_a_source():
    assert {p.name for p in RELEASED.iterdir() if p.is_dir()} == set(LABS)


def test_the_students_copy_is_what_the_source_generates(lab):
    assert compare_release(COURSE, [lab]) == []


def test_no_solution_hidden_test_prediction_or_output_leaks(lab):
    source, released = both(lab)
    text = nbformat.writes(released)
    for marker in ("BEGIN SOLUTION", "END SOLUTION", "BEGIN HIDDEN", "END HIDDEN"):
        assert marker not in text
    copies = {c.id: c for c in released.cells}
    for cell in source.cells:
        copy = copies[cell.id]
        for begin, end in ((BEGIN_SOLUTION, END_SOLUTION), (BEGIN_HIDDEN, END_HIDDEN)):
            secret = [line.strip() for line in cell.region(begin, end).splitlines()]
            public = {line.strip() for line in cell.without(begin, end).splitlines()}
            leaked = [line for line in secret if len(line) > 3 and line not in public and line in copy.source]
            assert not leaked, (str(cell), leaked)
        if cell.is_answer:
            assert copy.source == "YOUR ANSWER HERE"
        if cell.is_solution:
            assert "raise NotImplementedError()" in copy.source
        if "predict" in cell.tags:
            assert "answer=..." in copy.source
            assert not re.search(r"answer=(?!\.\.\.)", copy.source)
        if cell.is_code:
            assert copy.outputs == []
            assert copy.execution_count is None


def test_every_cell_reaches_the_student_and_nothing_else_changes(lab):
    source, released = both(lab)
    assert [c.id for c in source.cells] == [c.id for c in released.cells]
    for cell, copy in zip(source.cells, released.cells, strict=True):
        if not cell.grader and "predict" not in cell.tags:
            assert copy.source == cell.source


@pytest.fixture
def sandbox(tmp_path):
    """A copy of the course with its first lab, and room for the students' copies."""
    (tmp_path / "course" / "source").mkdir(parents=True)
    shutil.copy(COURSE / "nbgrader_config.py", tmp_path / "course")
    shutil.copytree(COURSE / "source" / LABS[0], tmp_path / "course" / "source" / LABS[0])
    return tmp_path / "course"


def test_generate_writes_reports_and_refuses(sandbox):
    name = LABS[0]
    assert compare_release(sandbox) == [f"{name}: has not been generated"]
    (folder,) = generate(sandbox)
    assert folder == sandbox.parent / "labs" / name
    assert compare_release(sandbox) == []
    assert changed_by_hand(folder) == ""
    assert find_course(sandbox.parent) == find_course(sandbox / "source") == sandbox

    (path,) = folder.glob("*.ipynb")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("answer=...", "answer=7", 1), encoding="utf-8")
    assert compare_release(sandbox) == [f"{name}/{path.name}: differs from what the source generates"]
    with pytest.raises(FileExistsError, match="has a prediction"):
        generate(sandbox)
    path.write_text(text.replace("    raise NotImplementedError()", "    return 1", 1), encoding="utf-8")
    with pytest.raises(FileExistsError, match="has an answer in"):
        generate(sandbox)
    path.write_text(text.replace('"execution_count": null', '"execution_count": 1', 1), encoding="utf-8")
    with pytest.raises(FileExistsError, match="has been run"):
        generate(sandbox)
    generate(sandbox, [name], force=True)
    assert path.read_text(encoding="utf-8") == text

    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    (sandbox.parent / "labs" / "lab99_gone").mkdir()
    assert compare_release(sandbox) == [
        f"{name}/notes.txt: is not generated from the source",
        f"lab99_gone: has no source; remove {sandbox.parent / 'labs' / 'lab99_gone'}",
    ]
    generate(sandbox)
    assert not (folder / "notes.txt").exists()
    (sandbox.parent / "labs" / "lab99_gone").rmdir()
    assert compare_release(sandbox) == []


def test_a_source_that_nbgrader_rejects_leaves_the_copy_in_place(sandbox):
    (folder,) = generate(sandbox)
    (copy,) = folder.glob("*.ipynb")
    before = copy.read_bytes()
    (source,) = (sandbox / "source" / LABS[0]).glob("*.ipynb")
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("### END SOLUTION", "", 1), encoding="utf-8")
    with pytest.raises(NbGraderException):
        generate(sandbox)
    assert copy.read_bytes() == before


def test_answers_are_found_wherever_they_stand():
    text = 'x = 1\nlab.predict("größe", "é?",\n    answer={}, unit="µs")\nlab.predict("b", "?", answer={})\n'
    assert without_answers(text.format("[1,\n      2]", '"answer=3"')) == text.format("...", "...")
    assert without_answers("f(answer=3)") == "f(answer=3)"
