"""`distlearn course grade`: one submission costs itself alone, and what was graded is kept."""

import copy
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial

import nbformat
import psutil
import pytest
from distcourse.author import sandbox
from nbformat.v4 import new_code_cell

from . import grading, small
from .conftest import COURSE
from .grading import run
from .submissions import solved

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(300)]
needs_sandbox = pytest.mark.skipif(bool(sandbox.available()), reason=f"no sandbox: {sandbox.available()}")


@pytest.fixture
def course(tmp_path, jupyter_home, monkeypatch):
    """A course, as the working directory."""
    course = small.make_course(tmp_path, COURSE / grading.CONFIG, "\nc.Execute.timeout = 100  # of cells that sleep\n")
    monkeypatch.chdir(course)
    return course


def rows(course):
    """The grades by student."""
    run("grades", small.LAB, course / "grades.csv")
    with (course / "grades.csv").open(encoding="utf-8") as file:
        return {row["student"]: row for row in csv.DictReader(file)}


SYNTAX = {
    "names": {"one": "    from math import *\n    return 1", "two": "    nonlocal x\n    return 2"},
    "global": {"one": "    print(x)\n    global x\n    return 1"},
    "class": {"one": "    return 1\nclass Base:\n    def (self):\n        pass"},
    "text": {"one": "    return 1 if '\ud800' else", "two": f"    return {'(' * 300}2{')' * 300}"},
}
"""By student: exercises whose answer cannot be read."""


@pytest.mark.nightly
@needs_sandbox
def test_what_cannot_be_read_costs_itself_alone_and_is_never_a_zero(course):
    right = solved(grading.generate(course, small.LAB), small.source())
    for name, texts in SYNTAX.items():
        notebook = copy.deepcopy(right)
        for cell in (cell for cell in notebook.cells if cell.id in texts):
            cell.source = f"def {cell.id}():\n{texts[cell.id]}"
        folder = course / "submitted" / name / small.LAB
        folder.mkdir(parents=True)
        (folder / "lab00.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    grading.submit(course, small.LAB, "anna", right)
    for cell in right.cells:
        cell.metadata.clear()
        cell.id = f"other-{cell.id}"
        cell.source = "# of another lab"
    grading.submit(course, small.LAB, "other", right)
    for name, text in {"empty": "", "no-json": "<html>"}.items():
        (course / "submitted" / name / small.LAB).mkdir(parents=True)
        (course / "submitted" / name / small.LAB / "lab00.ipynb").write_text(text, encoding="utf-8")
    status, said = run("grade", small.LAB)
    assert status == 1
    for text in ("other: ValueError: this is no notebook of lab00_small", "not graded: empty:", "not graded: no-json:"):
        assert text in said, said
    table = rows(course)
    for name, texts in SYNTAX.items():
        expected = {f"check_{cell}": "0" if cell in texts else "2" for cell in small.EXERCISES}
        assert {check: table[name][check] for check in expected} == expected, said
    assert table["anna"]["points"] == "6"
    for name in ("other", "empty", "no-json"):
        assert table[name]["points"] == ""
        assert table[name]["remark"].startswith("not graded")
    source = course / "source" / small.LAB / "lab00.ipynb"
    text = source.read_text(encoding="utf-8")
    source.write_text(text.replace("as an array", "as an array, new"), encoding="utf-8")
    status, said = run("grade", small.LAB, "--student", "anna")
    assert "The gradebook does not have the tests of lab00_small" in said
    assert f"run `distlearn course grade {small.LAB}`" in said, "both halves of the message"
    grading.generate(course, small.LAB)
    run("grade", small.LAB, "--student", "anna")
    table = rows(course)
    assert table["anna"]["points"] == "6"
    assert {table[name]["points"] for name in SYNTAX} == {""}, "points by other tests are not given silently"


@needs_sandbox
@pytest.mark.nightly  # it waits for the limit, of half a minute
def test_a_submission_that_holds_its_worker_is_ended(course):
    with (course / grading.CONFIG).open("a", encoding="utf-8") as file:
        file.write("\nc.ExecuteAll.budget = 25\n")
    right = solved(grading.generate(course, small.LAB), small.source())
    grading.submit(course, small.LAB, "anna", right)
    right.cells.insert(0, new_code_cell("get_ipython().kernel.do_execute = None"))
    grading.submit(course, small.LAB, "aholds", right)
    status, said = run("grade", small.LAB, "--jobs", 1)
    table = rows(course)
    assert table["anna"]["points"] == "6"
    # the watchdog ends the worker; on a slow machine the cells' own limits can be first
    assert table["aholds"]["points"] == ("" if "not graded: aholds: stopped after " in said else "0")
    assert status == (table["aholds"]["points"] == "")


PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


@pytest.fixture
def ours(tmp_path, monkeypatch):
    """Return a function that finds the processes of this test's grading, whose files lie in a folder `tmp`."""
    with tempfile.TemporaryDirectory(prefix="ours-", dir="/tmp") as short:  # paths of sockets end at 107 bytes
        (tmp_path / "tmp").symlink_to(short)
        monkeypatch.setenv("TMPDIR", short)

        def find():
            found = psutil.process_iter(["cmdline"])
            return [p for p in found if any(str(tmp_path) in w or short in w for w in p.info["cmdline"] or ())]

        yield find


@needs_sandbox
def test_a_folder_that_is_too_long_for_sockets_is_named(course, tmp_path, monkeypatch):
    """The judge and the student's kernel waited two minutes for each other's socket."""
    (long := tmp_path / ("a" * 80)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    grading.submit(course, small.LAB, "anna", solved(grading.generate(course, small.LAB), small.source()))
    status, said = run("grade", small.LAB)
    assert status == 1
    assert "set TMPDIR to a shorter one" in said


def test_a_notebook_under_another_name_is_named(course):
    grading.submit(course, small.LAB, "anna", solved(grading.generate(course, small.LAB), small.source()))
    (path,) = (course / "submitted" / "anna").glob("*/*.ipynb")
    path.rename(path.with_name("lab00 (1).ipynb"))
    status, said = run("grade", small.LAB)
    assert status == 1
    assert "found 'lab00 (1).ipynb', expected lab00.ipynb: rename it" in said
    assert "Traceback" not in said


@needs_sandbox
@pytest.mark.nightly
def test_when_grading_is_killed_all_ends_with_it(course, ours):
    right = solved(grading.generate(course, small.LAB), small.source())
    right.cells.insert(0, new_code_cell("import time\ntime.sleep(60)"))
    grading.submit(course, small.LAB, "anna", right)
    words = [sys.executable, "-m", "distlearn", "course", "grade", small.LAB]
    with subprocess.Popen(words, start_new_session=True, **PIPES) as process:
        wait(lambda: sum("bwrap" in p.info["cmdline"][0] for p in ours()) >= 2)
        status, said = run("grade", small.LAB)
        assert status == 1
        assert "is being graded by another process" in said
        process.kill()
        process.wait(20)
    wait(lambda: not ours(), 30)


def wait(done, seconds=100):
    until = time.monotonic() + seconds
    while not done():
        alive = psutil.process_iter(["pid", "ppid", "status", "cmdline"])
        assert time.monotonic() < until, [(*p.info.values(),) for p in alive if p.info["cmdline"]][-9:]
        time.sleep(0.2)


@needs_sandbox
@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_stops_grading_leaves_nothing_and_the_next_run_goes_on(course, ours, tmp_path, number):
    right = solved(grading.generate(course, small.LAB), small.source())
    grading.submit(course, small.LAB, "anna", right)
    right.cells.insert(0, new_code_cell("import time\ntime.sleep(60)"))
    grading.submit(course, small.LAB, "bert", right)
    words = [sys.executable, "-m", "distlearn", "course", "grade", small.LAB, "--jobs", "2"]
    heard = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores, here as well
    done = course / "autograded" / "anna" / small.LAB / "lab00.ipynb"
    with subprocess.Popen(words, start_new_session=True, preexec_fn=heard, **PIPES) as process:
        wait(lambda: done.exists() and '"tests"' in done.read_text(encoding="utf-8"))
        time.sleep(2)
        os.killpg(process.pid, number)
        began = time.monotonic()
        said = process.communicate(timeout=60)[0]
        assert time.monotonic() - began < 5, said
    assert process.returncode == 130, said
    assert "the same command goes on with the others" in said
    assert "graded 1 of 2 submissions" in said
    wait(lambda: not ours(), 30)
    assert not list((tmp_path / "tmp").iterdir())
    right.cells.pop(0)  # it need not sleep again
    nbformat.write(right, course / "submitted" / "bert" / small.LAB / "lab00.ipynb")
    status, said = run("grade", small.LAB)
    assert status == 0, said
    assert {row["points"] for row in rows(course).values()} == {"6"}
