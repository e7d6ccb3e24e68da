"""The students' copies are what the sources give, and nothing that belongs to the instructor is in them."""

import re
import shutil

import nbformat
import pytest
from distcourse.author import changed_by_hand, compare_release, generate
from distcourse.author.release import find_course
from distcourse.author.source import Source
from distcourse.author.steps import without_answers
from nbgrader.converters.base import NbGraderException

from .conftest import COURSE, LABS

RELEASED = COURSE.parent / "labs"


def test_every_folder_of_the_students_has_a_source():
    assert {p.name for p in RELEASED.iterdir() if p.is_dir()} == set(LABS)


def test_the_students_copy_is_what_the_source_generates(lab):
    assert compare_release(COURSE, [lab]) == []


def test_every_cell_reaches_the_student_without_answers_and_outputs(lab):
    """Lines of solutions and hidden tests: test_course.py looks for them in the zip of what students get."""
    (path,) = (COURSE / "source" / lab).glob("*.ipynb")
    for cell, copy in zip(Source(path).cells, nbformat.read(RELEASED / lab / path.name, 4).cells, strict=True):
        assert copy.id == cell.id
        assert not re.search(r"(BEGIN|END) (SOLUTION|HIDDEN)", copy.source)
        assert not cell.is_answer or copy.source == "YOUR ANSWER HERE"
        assert not cell.is_solution or "raise NotImplementedError()" in copy.source
        if "predict" in cell.tags:
            assert set(re.findall(r"answer=(\S{3})", copy.source)) == {"..."}
        elif not cell.grader:
            assert copy.source == cell.source
        assert not cell.is_code or (copy.outputs, copy.execution_count) == ([], None)


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
