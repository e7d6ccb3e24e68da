"""`distlearn course` as an instructor types it, from the students' copies to the grades."""

import csv
import io
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from distcourse.author import generate, sandbox, source_notebooks
from distcourse.author.export import bundle, leaks, mistakes, secrets
from distcourse.author.grade import open_api
from distcourse.author.source import Source
from distcourse.commands import course as commands

from . import grading, small
from .conftest import COURSE, LABS
from .grading import run
from .submissions import solved

pytestmark = pytest.mark.notebook
FIRST_EVENING = Path(__file__).parents[1] / "first_evening.sh"

ENDS = "return 4\nimport os\nos._exit(3)"
LOOK = "the cell 'one' ended the kernel (exit status 3)"


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_course_from_the_copies_to_the_grades(tmp_path, jupyter_home, monkeypatch):
    course = small.make_course(tmp_path, COURSE / grading.CONFIG)
    monkeypatch.chdir(course)
    status, said = run("release", small.LAB)
    assert status == 0
    assert said.startswith(f"making the students' copy of {small.LAB}")
    assert "\nwrote " in said
    assert len(said.splitlines()) == 2, "nbgrader tells warnings alone"
    released = nbformat.read(tmp_path / "labs" / small.LAB / "lab00.ipynb", as_version=4)
    right = solved(released, small.source())
    blackboard = "Lab 00_cem13_attempt_2027-01-15-23-59-00_lab00.ipynb"
    moodle = "Ben Two_12_assignsubmission_file/lab00.ipynb"
    for name, text in (("anna_LATE_11_1_lab00.ipynb", None), (moodle, "return 4"), (blackboard, ENDS)):
        book = nbformat.from_dict(right)
        for cell in book.cells:
            if cell.id == "one" and text:
                cell.source = f"def one():\n    {text}"
        with zipfile.ZipFile(tmp_path / "all.zip", "a") as file:
            file.writestr(name, nbformat.writes(book))
    with zipfile.ZipFile(tmp_path / "all.zip", "a") as file:
        file.writestr("readme.ipynb", "{}")
    status, said = run("collect", "lab00", tmp_path / "all.zip")
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
    assert [r["remark"] for r in rows] == [""] * 3, "what was seen is for the instructor alone"
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
    with open_api(course).gradebook as book:
        book.update_or_create_assignment(small.LAB, duedate="2027-01-14 08:00")
    (course / "submitted/ben-two-12" / small.LAB / "timestamp.txt").write_text("16.01.2027 8 Uhr")
    status, said = run("grade", small.LAB, "--student", "ben-two-12", "--force", *unsafe)
    assert status == 1
    assert "timestamp.txt: '16.01.2027 8 Uhr', expected a time such as 2027-01-16 08:00 UTC" in said
    assert run("grades", small.LAB, tmp_path / "all.csv")[0] == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text(encoding="utf-8"))))
    assert [(r["points"], r["late"]) for r in rows] == [("6", "late"), ("4", ""), ("4", "late")], "the grade is kept"
    assert "wrote 3 pages" in run("feedback", small.LAB)[1]
    pages = list((course / "feedback").glob("*/*/lab00.html"))
    texts = {page.parts[-3]: page.read_text(encoding="utf-8") for page in pages}
    assert len(texts) == 3
    assert {name for name, text in texts.items() if "Handed in late." in text} == {"anna-11", "cem13"}


def test_a_private_copy_holds_all_of_the_course_but_its_package():
    repository = {"distcourse", "book", "__pycache__"}  # what is installed, and what `make book` runs there
    running = {"submitted", "autograded", "feedback", "gradebook.db", "downloaded", ".grading.lock", ".pytest_cache"}
    assert {path.name for path in COURSE.iterdir()} - repository - running == set(commands.COPIED)


def test_the_first_evening_types_every_command_of_the_page():
    script, page = FIRST_EVENING.read_text(encoding="utf-8"), (COURSE / "README.md").read_text(encoding="utf-8")
    typed = set(re.findall(r"\b(?:course|labs) (?!lab)[a-z]+\b", script))
    asked = set(re.findall(r"^distlearn ((?:course|labs) [a-z]+)", page, re.MULTILINE))
    assert len(asked) > 12
    assert asked <= typed


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(sandbox.available()), reason="no sandbox")
def test_the_first_evening_comes_to_its_end(tmp_path):
    done = subprocess.run(["sh", FIRST_EVENING, COURSE, tmp_path / "evening", LABS[0]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_a_lab_that_is_not_there_is_not_bundled(tmp_path, monkeypatch):
    monkeypatch.chdir(small.make_course(tmp_path, COURSE / grading.CONFIG))
    (tmp_path / "labs.zip").write_text("the class's")
    for words, said in (("lab99", "no lab 'lab99'"), ("lab00_smal1", "did you mean lab00_small?")):
        status, text = run("bundle", tmp_path / "labs.zip", words)
        assert (status, said in text) == (1, True), text
    assert (tmp_path / "labs.zip").read_text() == "the class's"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("CheckFailed", "one\n✗ sum\n  -> it is the mean", "it is the mean"),
        ("CheckFailed", "one\n✗ sum  expected 1", "no sentence: sum expected 1"),
        ("CheckFailed", "one\n✗ stopped  KeyError: 3", "no sentence: KeyError: 3"),
        ("CheckFailed", "one\n✗ \x1b[2Jsum", "no sentence: [2Jsum"),
        ("CheckFailed", "one\n✗ sum  not written yet: it raises", "sum not written yet: it raises"),
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


def test_where_nobody_may_make_namespaces_grading_is_refused(tmp_path, jupyter_home):
    course = small.make_course(tmp_path, COURSE / grading.CONFIG)
    book = small.source()
    grading.submit(course, small.LAB, "anna", book)
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap (bubblewrap) is not installed")
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec "
    if subprocess.run(["unshare", "-Ur", "sh", "-c", forbid + "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace in which namespaces could be forbidden: users may not make any here")
    grade = [sys.executable, "-m", "distlearn", "course", "grade", small.LAB]
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
    status, said = run("new", tmp_path / "mine")
    assert status == 1
    assert "is not empty" in said
