"""`distlearn course` as an instructor types it, from the students' copies to the grades."""

import csv
import io
import shutil
import subprocess
import sys
import zipfile

import nbformat
import pytest
from distcourse.author import generate, sandbox, source_notebooks
from distcourse.author.export import bundle, leaks, mistakes, secrets
from distcourse.author.source import Source

from . import grading, small
from .conftest import COURSE, LABS
from .grading import run
from .submissions import solved

pytestmark = pytest.mark.notebook

CHEATS = "import sys\n    return sys._getframe(1)"
LOOK = "possible cheating: the cell 'one' says _getframe"


@pytest.mark.timeout(300)
def test_a_course_from_the_copies_to_the_grades(tmp_path, jupyter_home, monkeypatch):
    course = small.make_course(tmp_path, COURSE / grading.CONFIG)
    monkeypatch.chdir(course)
    status, said = run("release", small.LAB)
    assert status == 0
    assert said.startswith(f"making the students' copy of {small.LAB}")
    assert "\nwrote " in said
    assert len(said.splitlines()) == 2, "nbgrader's own messages are kept back"
    released = nbformat.read(tmp_path / "labs" / small.LAB / "lab00.ipynb", as_version=4)
    right = solved(released, small.source())
    blackboard = "Lab 00_cem13_attempt_2027-01-15-23-59-00_lab00.ipynb"
    moodle = "Ben Two_12_assignsubmission_file/lab00.ipynb"
    for name, text in (("anna_LATE_11_1_lab00.ipynb", None), (moodle, "return 4"), (blackboard, CHEATS)):
        book = nbformat.from_dict(right)
        for cell in book.cells:
            if cell.id == "one" and text:
                cell.source = f"def one():\n    {text}"
        with zipfile.ZipFile(tmp_path / "all.zip", "a") as file:
            file.writestr(name, nbformat.writes(book))
    with zipfile.ZipFile(tmp_path / "all.zip", "a") as file:
        file.writestr("readme.ipynb", "{}")
    status, said = run("collect", small.LAB, tmp_path / "all.zip")
    assert status == 0
    assert "3 students have handed in lab00_small: anna-11, ben-two-12, cem13" in said
    assert "Skipped, because its name gives neither student nor lab" in said
    handed_in = (course / "submitted" / "cem13" / small.LAB / "timestamp.txt").read_text(encoding="utf-8")
    assert "2027-01-15 23:59" in handed_in

    unsafe = ["--unsafe"] if sandbox.available() else []
    status, said = run("grade", small.LAB, "--jobs", 2, "--student", "cem13", *unsafe)
    assert status == 0, said
    assert "graded 1 of 3 submissions\n" in said, "it does not say that the others have been graded"
    assert f"cem13: {LOOK}" in said
    status, said = run("grade", small.LAB, *unsafe)
    assert LOOK not in said, "it was graded before"
    assert "graded 2 of 3 submissions, 1 were graded before" in said
    assert run("collect", small.LAB, tmp_path / "all.zip")[0] == 0
    assert "graded 0 of 3" in run("grade", small.LAB, *unsafe)[1]
    status, said = run("grade", small.LAB, "--student", "dora", *unsafe)
    assert status == 1
    assert "no submission of lab00_small by dora" in said

    assert run("grades", small.LAB, tmp_path / "all.csv")[0] == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text(encoding="utf-8"))))
    assert [(r["student"], r["check_one"], r["points"], r["words"], r["late"]) for r in rows] == [
        ("anna-11", "2", "6", "", "late"),
        ("ben-two-12", "0", "4", "", ""),
        ("cem13", "0", "4", "", ""),
    ]
    assert [r["worth a look"] for r in rows] == ["", "", f"{LOOK}: `return sys._getframe(1)`"]
    assert run("grades", small.LAB, tmp_path / "moodle.csv", "--for", "moodle")[0] == 0
    text = (tmp_path / "moodle.csv").read_text(encoding="utf-8")
    assert "Participant 11,6,7,late; 1 written answers are not read yet" in text
    assert "Participant 12,4,7,1 written answers are not read yet" in text
    assert run("grades", small.LAB, tmp_path / "canvas.csv", "--for", "canvas")[0] == 0
    text = (tmp_path / "canvas.csv").read_text(encoding="utf-8")
    assert "Points Possible,,,,,7" in text
    assert "anna-11,11,,,,6" in text
    assert "lab00_small (so far)" in text.partition("\n")[0], "written answers wait"
    status, said = run("mistakes", small.LAB)
    assert "check_one" in said
    assert "worth a look" in said
    assert "cem13" in said
    assert "wrote 3 pages" in run("feedback", small.LAB)[1]
    pages = list((course / "feedback").glob("*/*/lab00.html"))
    texts = {page.parts[-3]: page.read_text(encoding="utf-8") for page in pages}
    assert len(texts) == 3
    assert not [text for text in texts.values() if "cheating" in text], "students do not read it"
    assert [name for name, text in texts.items() if "Handed in late." in text] == ["anna-11"]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("CheckFailed", "one\n✗ sum\n  -> it is the mean", "it is the mean"),
        ("CheckFailed", "one\n✗ sum  expected 1", "sum expected 1"),
        ("CheckFailed", "one\n✗ stopped  KeyError: 3", "KeyError: 3"),
        ("CheckFailed", "one\n✗ \x1b[2Jsum", "[2Jsum"),
        ("CellTimeoutError", "stopped after 31 s: does this cell end?", "does not end"),
    ],
)
def test_what_a_class_got_wrong(tmp_path, name, text, said):
    folder = tmp_path / "autograded" / "anna" / small.LAB
    folder.mkdir(parents=True)
    out = nbformat.v4.new_output("error", ename=name, evalue=text)
    check = nbformat.v4.new_code_cell("", metadata=small.told("check_one", grade=True), outputs=[out])
    nbformat.write(nbformat.v4.new_notebook(cells=[check]), folder / "lab00.ipynb")
    assert mistakes(tmp_path, small.LAB) == [("check_one", said, 1)]


def test_grading_without_a_sandbox_is_refused(tmp_path, jupyter_home, monkeypatch):
    monkeypatch.chdir(small.make_course(tmp_path, COURSE / grading.CONFIG))
    monkeypatch.setattr(sandbox, "available", lambda: "bwrap is not installed")
    status, said = run("grade", small.LAB)
    assert status == 1
    assert "sudo apt install bubblewrap" in said


def test_where_nobody_may_make_namespaces_grading_is_refused(tmp_path, jupyter_home):
    course = small.make_course(tmp_path, COURSE / grading.CONFIG)
    book = small.source()
    grading.submit(course, small.LAB, "anna", book)
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec "
    if subprocess.run(["unshare", "-Ur", "sh", "-c", forbid + "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace in which namespaces could be forbidden: users may not make any here")
    grade = [sys.executable, "-m", "distlearn.cli", "course", "grade", small.LAB]
    command = ["unshare", "-Ur", "sh", "-c", forbid + '"$@"', "sh", *grade]
    done = subprocess.run(command, capture_output=True, text=True, cwd=course, timeout=120, check=False)
    assert done.returncode == 1
    for said in ("sudo apt install bubblewrap", "bwrap says", "GRADING.md", "--unsafe"):
        assert said in done.stderr
    assert not (course / "autograded").exists()


def test_a_bundle_holds_no_solution(tmp_path):
    labs = bundle(COURSE, tmp_path / "all.zip")
    assert labs == LABS
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        for path in source_notebooks(COURSE):
            source = Source(path)
            text = archive.read(f"{path.parent.name}/{path.name}").decode("utf-8")
            assert len(secrets(source)) > 15, path.name
            assert leaks(source, text) == []
            assert set(leaks(source, source.text)) == secrets(source), "it finds every one of them"


def test_a_bundle_with_a_solution_is_refused(tmp_path, monkeypatch):
    shutil.copytree(COURSE / "source" / LABS[0], tmp_path / "course" / "source" / LABS[0])
    shutil.copy(COURSE / grading.CONFIG, tmp_path / "course")
    (folder,) = generate(tmp_path / "course")
    shutil.copy(tmp_path / "course" / "source" / LABS[0] / "lab00.ipynb", folder)
    monkeypatch.chdir(tmp_path)
    status, said = run("bundle", tmp_path / "x.zip")
    assert status == 1
    assert "the students' copy holds what it should not" in said
    assert not (tmp_path / "x.zip").exists()


def test_a_course_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(COURSE)
    status, said = run("new", tmp_path / "mine")
    assert status == 0
    assert f"next: cd {tmp_path / 'mine' / 'course'}" in said
    assert {p.name for p in (tmp_path / "mine" / "labs").iterdir()} == {*LABS, "README.md", "AGENTS.md"}
    assert (tmp_path / "mine" / "course" / grading.CONFIG).is_file()
    theirs, mine = (
        {str(p.relative_to(c)) for p in (c / "distcourse").rglob("*") if "__pycache__" not in p.parts}
        for c in (COURSE, tmp_path / "mine" / "course")
    )
    assert mine == theirs, "also templates/feedback, named as a folder of results"
    status, said = run("collect", LABS[0], tmp_path, "--course", tmp_path / "mine" / "course")
    assert status == 1
    assert "is a folder, expected files" in said
    status, said = run("new", tmp_path / "mine")
    assert status == 1
    assert "is not empty" in said
