"""Submissions that are odd rather than wrong get the points that a patient person would give them."""

import copy
import json
import logging

import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from distlearn.lab.author.execute import ExecuteAll

from . import grading, small
from .conftest import COURSE
from .submissions import solved

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(600)]

LIMITS = "\nc.Execute.timeout = c.ExecuteAll.least = 6\nc.ExecuteAll.iopub_timeout = 2\n"
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

    def run(change):
        notebook = copy.deepcopy(solution)
        change(notebook, {cell.id: cell for cell in notebook.cells})
        student = request.node.name
        folder = course / "submitted" / student / small.LAB
        folder.mkdir(parents=True)
        (folder / "lab00.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
        with caplog.at_level(logging.WARNING):
            scores = grading.autograde(course, small.LAB, student)
        points = {name: score["score"] for name, score in scores.items() if name in FULL}
        return points, caplog.text, grading.feedback(course, small.LAB, student)

    return run


def put(notebook, above, *texts):
    """Put code cells above a cell."""
    place = notebook.cells.index(above)
    notebook.cells[place:place] = [new_code_cell(text) for text in texts]


def test_what_ends_the_kernel_costs_its_own_points_alone(grade, tmp_path):
    left = tmp_path / "pid"
    start = (
        f"import subprocess\nrun = subprocess.Popen(['sleep', '900'], start_new_session=True)\nopen({str(left)!r}, 'w')"
    )
    stubborn = "while True:\n    try:\n        time.sleep(0.1)\n    except KeyboardInterrupt:\n        pass"

    def change(notebook, cells):
        cells["one"].source += "\n\nimport ctypes, time\nprint(one())\nctypes.string_at(0)"
        cells["two"].source = "import os\ndef two():\n    os._exit(3)"
        put(notebook, cells["one"], f"{start}.write(str(run.pid))", "print('y' * 5_000_000)")
        put(notebook, cells["two"], stubborn)

    points, log, page = grade(change)
    assert points == FULL | {"check_two": 0}
    assert "the cell 'one' ended the kernel (Segmentation fault)" in log
    assert "the cell 'while True:' could not be stopped after 6 s" in log
    assert "the cell 'check_two' ended the kernel (exit status 3)" in log
    assert "From grading" in page
    assert "the cell 'one' ended the kernel" in page.replace("&#39;", "'")
    assert len(page) < 4_000_000
    assert not psutil.pid_exists(int(left.read_text(encoding="utf-8")))


def test_what_an_exercise_does_not_ask_about_costs_nothing(grade):
    def change(notebook, cells):
        notebook.cells.remove(cells["setup"])
        notebook.cells.remove(cells["helper"])
        put(notebook, cells["one"], "list, range = [1], 3\nlab = np = None", "while True:\n    pass", "input()\nexit()")
        cells["check-one"].source = cells["one"].source + "\n\n" + cells["check-one"].source  # merged
        notebook.cells.remove(cells["one"])
        notebook.cells.remove(cells["check-two"])  # moved
        notebook.cells.insert(0, cells["check-two"])
        cells["two"].source = cells["two"].source.replace(
            "return", "import os, sys\n    os.write(2, b'low ')\n    print('debug', file=sys.stderr)\n    return"
        )
        for name in ("three", "check-three", "words"):  # another editor
            cells[name].metadata.clear()
        del cells["check-three"]["id"]
        cells["check-three"].source = cells["check-three"].source.replace("\n", "  \n")

    points, log, page = grade(change)
    assert points == FULL
    assert "list, range had been changed" in log
    assert "was stopped after 6 s" in log
    assert "Check 'check_one' holds code of the student" in log
    assert "Check 'check_two' stands above its answer" in log
    assert "Cell 'words' has lost its metadata" in log
    assert "Check 'check_three' was edited" not in log
    assert "A sample." in page


def test_who_bends_the_checks_scores_nothing_and_is_named(grade):
    def change(notebook, cells):
        for cell in (cells["one"], cells["two"], cells["three"]):
            cell.source = "raise NotImplementedError()"
        put(
            notebook,
            cells["one"],
            "class Yes:\n    __hash__ = None\n    def __eq__(self, other):\n        return True\n"
            "one = Yes\ndef two():\n    get_ipython().displayhook(2)\n    print(In[-1])\n    return 7",
            "import ast\nclass NoChecks(ast.NodeTransformer):\n"
            "    def visit_With(self, node):\n        return ast.Pass()\n"
            "get_ipython().ast_transformers.append(NoChecks())",
            "np.allclose = lambda *a, **k: True\nlab.check.__globals__['Check'].__exit__ = lambda *a: True",
            "def three():\n    import sys\n    return sys._getframe(1).f_globals",
        )

    points, log, page = grade(change)
    assert points == dict.fromkeys(FULL, 0)
    assert "numpy.allclose" in log
    assert "Check.__exit__" in log
    assert "NoChecks" in log
    assert "_getframe" in log
    assert "secret_two" not in page, "an answer that prints the hidden tests does not give them away"


def test_a_submission_that_only_ends_kernels_comes_to_an_end(caplog):
    checks = [new_code_cell("1", metadata=small.told(f"check_{i}", grade=True, locked=True, points=1)) for i in (1, 2)]
    cells = [new_code_cell("x = 1\nprint(x)"), new_code_cell("import os\nos._exit(9)"), checks[0]]
    cells += [new_code_cell("os.abort()"), checks[1], new_markdown_cell("end")]
    nb = new_notebook(cells=cells)
    resources = {"nbgrader": {"student": "anna", "assignment": "lab00_x", "notebook": "lab00"}, "metadata": {}}
    with caplog.at_level(logging.WARNING):
        nb, _ = ExecuteAll(most_restarts=1).preprocess(nb, resources)
    assert nb.cells[0].source.startswith("**From grading.**")
    names = [[out.get("ename", out.get("text")) for out in c.outputs] for c in nb.cells if c.cell_type == "code"]
    assert names == [["1\n"], ["CellLeftOut"], [None], ["CellLeftOut"], ["CellLeftOut"]]
    assert "ended 2 kernels" in nb.cells[5].outputs[0].evalue
