"""Submissions that are odd rather than wrong get the points that a patient person would give them."""

import ast
import builtins
import copy
import json
import logging
import time

import psutil
import pytest
from distcourse.author import Source, sandbox, source_notebooks
from distcourse.author.execute import ExecuteAll
from distcourse.author.source import Cell
from distcourse.author.stage import before_check, definitions, skeleton
from nbformat.v4 import new_code_cell, new_notebook

from . import grading, small
from .conftest import COURSE
from .submissions import solved

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(600)]

LIMITS = "\nc.Execute.timeout = c.ExecuteAll.least = 6\nc.ExecuteAll.iopub_timeout = 2\nc.ExecuteAll.most_stretch = 1\n"
FULL = {"check_one": 2, "check_two": 2, "check_three": 2}


@pytest.fixture(scope="module")
def course(tmp_path_factory, jupyter_home):
    return small.make_course(tmp_path_factory.mktemp("small"), COURSE / grading.CONFIG, LIMITS)


@pytest.fixture(scope="module")
def solution(course):
    return solved(grading.generate(course, small.LAB), small.source())


@pytest.fixture
def grade(course, solution, caplog, request):
    """Return a function that hands in what `change` makes of the solution; it returns scores, log and feedback."""

    def run(change, encoding="utf-8"):
        notebook = copy.deepcopy(solution)
        change(notebook, {cell.id: cell for cell in notebook.cells})
        student = request.node.name
        folder = course / "submitted" / student / small.LAB
        folder.mkdir(parents=True)
        (folder / "lab00.ipynb").write_text(json.dumps(notebook), encoding=encoding)
        with caplog.at_level(logging.WARNING):
            scores = grading.autograde(course, small.LAB, student)
        points = {name: score["score"] for name, score in scores.items() if name in FULL}
        return points, caplog.text, grading.feedback(course, small.LAB, student)

    return run


def put(notebook, above, *texts):
    """Put code cells above a cell."""
    place = notebook.cells.index(above)
    notebook.cells[place:place] = [new_code_cell(text) for text in texts]


@pytest.mark.nightly
def test_what_ends_the_kernel_costs_its_own_points_alone(grade):
    start = "import subprocess\nrun = subprocess.Popen(['sleep', '913'], start_new_session=True)"
    stubborn = "while True:\n    try:\n        time.sleep(0.1)\n    except KeyboardInterrupt:\n        pass"

    def change(notebook, cells):
        cells["one"].source += "\n\nimport ctypes, time\nprint(one())\nctypes.string_at(0)"
        cells["two"].source = "import os\ndef two():\n    os._exit(3)"
        put(notebook, cells["one"], start, "print('y' * 5_000_000)")
        put(notebook, cells["two"], stubborn)

    points, log, page = grade(change)
    assert points == FULL | {"check_two": 0}
    assert "the cell 'one' ended the kernel (Segmentation fault" in log
    assert "the cell 'while True:' could not be stopped after 6 s" in log
    assert "the cell 'check_two' ended the kernel (exit status 3)" in log
    assert "From grading" in page
    assert "the cell 'one' ended the kernel" in page.replace("&#39;", "'")
    assert len(page) < 4_000_000
    assert not [p for p in psutil.process_iter(["cmdline"]) if "913" in (p.info["cmdline"] or ())]


@pytest.mark.filterwarnings("ignore:Cell is missing an id:nbformat.warnings.MissingIDFieldWarning")
def test_what_an_exercise_does_not_ask_about_costs_nothing(grade):
    def change(notebook, cells):
        notebook.metadata["kernelspec"] = {"name": "bash", "display_name": "x", "language": "bash"}
        notebook.cells.remove(cells["setup"])
        notebook.cells.remove(cells["helper"])
        put(
            notebook,
            cells["one"],
            "lab = np = None",
            "import time\nwhile True:\n    time.sleep(1)",
            "input()\nexit()",
        )
        cells["check-one"].source = cells["one"].source + "\n\n" + cells["check-one"].source  # merged
        notebook.cells.remove(cells["one"])
        notebook.cells.remove(cells["check-two"])  # moved
        notebook.cells.insert(0, cells["check-two"])
        cells["two"].source = cells["two"].source.replace(
            "return", "import os, sys\n    os.write(2, b'low ')\n    print('debug', file=sys.stderr)\n    return"
        )
        cells["two"].source += "\n\nprint(undefined)"
        for name in ("three", "check-three", "words"):  # another editor
            cells[name].metadata.clear()
        del cells["check-three"]["id"]
        cells["check-three"].source = cells["check-three"].source.replace("\n", "  \n")

    points, log, page = grade(change)
    assert points == FULL
    assert "was stopped after 6 s" in log
    assert "Check 'check_one' was edited: put back below what it was made" in log
    assert "Check 'check_two' is above its answer" in log
    assert "Cell 'words' had lost its metadata and was recognised" in log
    assert "Check 'check_three' was edited" not in log
    assert "A sample." in page


def test_of_copies_of_an_answer_the_one_that_was_checked_counts(grade):
    def change(notebook, cells):
        for name, step in (("one", 2), ("two", 0)):  # an old attempt below its check; one above, and below
            old = copy.deepcopy(cells[name])
            old.source = f"def {name}():\n    return 9"
            notebook.cells.insert(notebook.cells.index(cells[name]) + step, old)
        notebook.cells += [copy.deepcopy(old), copy.deepcopy(cells["check-three"])]

    points, log, _ = grade(change, "utf-8-sig")
    assert points == FULL
    assert "Cell 'two' is there 3 times: the last above its check counts" in log


def test_who_bends_the_checks_scores_nothing(grade):
    def change(notebook, cells):
        for cell in (cells["one"], cells["two"], cells["three"]):
            cell.source = "raise NotImplementedError()"
        notebook.cells.remove(cells["check-two"])
        put(
            notebook,
            cells["one"],
            "class Yes:\n    __hash__ = None\n    def __eq__(self, other):\n        return True\n"
            "one = Yes\ndef two():\n    get_ipython().displayhook(2)\n    print(In[-1])\n    return 7",
            "import ast\nclass NoChecks(ast.NodeTransformer):\n"
            "    def visit_With(self, node):\n        return ast.Pass()\n"
            "get_ipython().ast_transformers.append(NoChecks())",
            "np.allclose = lambda *a, **k: True\ndistcourse.Check.__exit__ = lambda *a: True",
            "def three():\n    import sys\n    return sys._getframe(1).f_globals",
            "import glob\nfor name in {*glob.glob('*.ipynb'), *glob.glob('/opt/submission/*.ipynb')}:\n"
            "    print(open(name, 'rb').read().hex())",
            "import os\nprint(os.getcwd())",
        )

    points, _, page = grade(change)
    assert points == dict.fromkeys(FULL, 0)
    assert "secret_two" not in page, "an answer that prints the hidden tests does not give them away"
    assert "/home/student/work" in page or sandbox.available(), "its kernel runs in the sandbox"
    assert b"_getframe".hex() in page
    assert b"secret_".hex() not in page, "the notebook that it finds is the one that was handed in"


def execute(cells, **limits):
    """Run cells under limits, without a course; return the texts and errors of code cells, and the note on top."""
    resources = {"nbgrader": {"student": "anna", "assignment": "lab00_x", "notebook": "lab00"}, "metadata": {}}
    nb, _ = ExecuteAll(unsafe=bool(sandbox.available()), **limits).preprocess(new_notebook(cells=cells), resources)
    shown = [[out.get("ename", out.get("text")) for out in c.outputs] for c in nb.cells if c.cell_type == "code"]
    return shown, nb.cells[0].source if nb.cells[0].cell_type == "markdown" else ""


def check(text, number):
    return new_code_cell(text, metadata=small.told(f"check_{number}", grade=True, locked=True, points=1))


@pytest.mark.nightly
def test_endless_loops_cost_themselves_alone():
    loop = "def {0}():\n    while True:\n        pass"
    cells = []
    for number, text in enumerate((loop.format("one"), "def two():\n    return 2"), 1):
        answer = new_code_cell(text, metadata=small.told(f"{number}", solution=True))
        cells += [answer, check(("one()", "assert two() == 2")[number - 1], number)]
    cells.insert(2, new_code_cell("while True:\n    pass"))
    shown, note = execute(cells, timeout=3, grace=1, most_stretch=1)
    stopped = ["Stopped", "CellTimeoutError"]  # what the check says, and what nbgrader needs
    assert shown == [[], stopped, ["KeyboardInterrupt", "CellTimeoutError"], [], []]
    assert "'check_1' was stopped after 3 s" in note
    assert "'while True:' was stopped after 3 s" in note


@pytest.mark.nightly
def test_a_submission_that_only_ends_kernels_comes_to_an_end():
    hog = "hog = []\nwhile True:\n    hog.append(np.ones(2_000_000))\n    time.sleep(0.01)"
    cells = [new_code_cell("x = 1\nprint(x)"), new_code_cell("import os\nos._exit(9)"), check("x", 1)]
    cells += [new_code_cell(hog), check("assert x", 2)]
    cells[0].source = "import time\nimport numpy as np\n" + cells[0].source
    shown, note = execute(cells, most_restarts=1, memory=800 * 2**20)
    assert shown == [["1\n"], ["CellLeftOut"], [], ["CellLeftOut"], ["CellLeftOut"]]
    assert note.startswith("**From grading.**")
    assert "'import os' ended the kernel (exit status 9)" in note
    assert "'hog = []' ended the kernel (it took " in note
    assert "0.8 GiB are allowed" in note


BREAKS = {
    "import os\ndef one():\n    for fd in range(3, 64):\n        try:\n            os.write(fd, b'x' * 30)\n"
    "        except OSError:\n            pass\n    return 1": [[], ["CellLeftOut"]],
    "import builtins\ndef one():\n    builtins.max = builtins.isinstance = lambda *a, **k: 0\n    return 1": [
        [],
        ["CellLeftOut"],
    ],
    "import builtins\ndef one():\n    return 1\nbuiltins.abs = builtins.all = builtins.isinstance = one": [
        ["CellLeftOut"],
        [],
    ],
}
"""Answers that leave the kernel unable to go on: what is shown of them, and of their checks."""


@pytest.mark.nightly
@pytest.mark.parametrize("text", BREAKS, ids=("descriptors", "in the check", "in the cell"))
def test_what_breaks_python_costs_itself_alone_and_in_seconds(text):
    cells = [new_code_cell(text, metadata=small.told("1", solution=True)), check("assert one() == 1", 1)]
    cells += [new_code_cell("def two():\n    return 2", metadata=small.told("2", solution=True))]
    cells += [check("assert two() == 2", 2)]
    began = time.monotonic()
    shown, note = execute(cells, timeout=6, grace=1, iopub_timeout=3, most_stretch=1)
    assert time.monotonic() - began < 150
    assert shown == [*BREAKS[text], [], []]
    assert note.count("the cell '") == 1


@pytest.mark.nightly
def test_checks_are_run_when_the_time_is_up():
    cells = [new_code_cell("def f():\n    return 3\nprint(f())"), check("assert f() == 3\nprint('fine')", 1)]
    shown, note = execute(cells, budget=0)
    assert shown == [["CellLeftOut"], ["fine\n"]]
    assert "1 of the cells that earn nothing not run: the 0 s for the submission were used up" in note


def test_definitions_are_what_harms_nobody():
    kept = "@a.b(3)\nclass C:\n    def f(self):\n        return 1\nx, y = 1, [2]"
    found = definitions(f"import os; n = f()\n{kept}\nz = os._exit(x)\nx += 1")
    assert ast.dump(ast.parse(found)) == ast.dump(ast.parse(f"import os\n{kept}"))
    assert definitions("def f(:") == ""
    assert definitions("import numpy as np\nnp.abs = abs\nx[0] = y, a.b = 1, 2") == "import numpy as np"


def test_every_check_gets_the_helpers_that_it_uses():
    for path in source_notebooks(COURSE):
        lab = Source(path)
        mine = set().union(*(c.binds for c in lab.exercises))
        for cell in lab.code:
            if cell.is_check:
                code = before_check(lab, lab.number, cell.grade_id)
                bound = Cell(0, new_code_cell(code)).binds
                needed = cell.uses - cell.binds - mine - {"plt", "np", "dl", "lab", "error"} - set(dir(builtins))
                assert needed <= bound, (str(path), cell.grade_id)


def test_an_answer_that_cannot_be_read_is_replaced_by_the_released_one():
    source = Source(next(path for path in source_notebooks(COURSE) if path.stem == "lab01"))
    released = skeleton(source, "dense_forward")
    assert "raise NotImplementedError()" in released
    assert "### " not in released
    assert "self.b.data" not in released
    assert "def __init__" in released
    assert skeleton(source, "nothing") == ""
