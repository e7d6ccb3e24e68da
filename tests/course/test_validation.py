"""`pytest --nbval-lax course/source` is red where a lab is broken; nbval alone passes four of these faults."""

import shutil
import subprocess
import sys
from xml.etree import ElementTree as ET

import nbformat
import pytest
from click.testing import CliRunner
from distcourse.author import source_notebooks
from distcourse.author.rules import COMPARED
from distcourse.author.source import Source
from nbformat.v4 import new_code_cell, new_notebook, new_output

from distlearn.cli import main

from .conftest import COURSE

AT_LEAST = 5
"""Cells of a lab that are compared."""
GREY = """import matplotlib.pyplot as plt
fig, ax = plt.subplots()
ax.plot([1, 2], "-", color="red", label="a")
ax.plot([1, 2], "-", color="#008a00", label="b")
plt.show()"""


def cell(name, source, text=None):
    """Return a cell; one that is compared with `text` if that is given ("" where the source holds none)."""
    made = new_code_cell(source, id=name, metadata={} if text is None else {"tags": [COMPARED]})
    if text:
        made.outputs, made.execution_count = [new_output("stream", text=text)], 1
    return made


def write(folder, name, cells):
    """Write a notebook into its own folder."""
    path = folder / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


NOTEBOOKS = {
    "cells": [
        cell("right", "print('loss', 0.25); 3", "loss 0.25\n3\n"),
        cell("two-kinds", "from IPython.display import HTML; HTML('<b>3</b>')", "<IPython.core.display.HTML object>\n"),
        cell("changed", "print('loss', 0.26)", "loss 0.25\n"),
        cell("raises", "1 / 0"),
        cell("holds-nothing", "print(1)", ""),
        cell("line-magic", "import sys\nprint('a warning', file=sys.stderr)\n%nosuchmagic"),
        cell("cell-magic", "%%nosuchmagic\n1"),
        cell("grey", GREY),
        cell("not-compared", "print(2)"),
    ],
    "hang": [cell("hangs", "import time\ntime.sleep(60)"), cell("after", "1")],
    "swallow": [cell("swallows", "import time\ntry:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    pass")],
    "die": [cell("dies", "import os\nos._exit(0)")],
    "leave": [
        cell("starts", "import subprocess\np = subprocess.Popen(['sleep', '60'], start_new_session=True)"),
        cell("writes", "open('left.txt', 'w').close()"),
    ],
}
RED = {
    "changed": "'loss 0.25' == 'loss 0.26'",
    "raises": "division by zero",
    "holds-nothing": "holds no output to compare with",
    "line-magic": "`%nosuchmagic` not found",
    "cell-magic": "`%%nosuchmagic` not found",
    "grey": "a (lightness 53) and b (lightness 50) look the same in grey",
    "hangs": "Timeout of 5 seconds",
    "after": "an earlier cell of this notebook timed out",
    "swallows": "ran for more than 5 seconds",
    "dies": "the kernel died",
    "writes": "sleep 60",
}


@pytest.mark.nightly
@pytest.mark.notebook
@pytest.mark.skipif(sys.platform == "win32", reason="starts `sleep`")
def test_a_broken_cell_is_red_and_no_other(tmp_path):
    for name in ("conftest.py", "grey.py"):
        shutil.copy(COURSE / "source" / name, tmp_path)
    for name, cells in NOTEBOOKS.items():
        write(tmp_path, name, cells)
    command = "-m pytest --nbval-lax --nbval-cell-timeout=5 -n 1 --dist=loadgroup --junitxml=out.xml ."
    done = subprocess.run([sys.executable, *command.split()], cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 1, done.stdout + done.stderr
    cases = list(ET.parse(tmp_path / "out.xml").iter("testcase"))
    assert {c.get("name").partition("@")[0] for c in cases} == {c.id for cells in NOTEBOOKS.values() for c in cells}
    said = {c.get("name").partition("@")[0]: "".join(c.itertext()) for c in cases if len(c)}
    assert said.keys() == RED.keys()
    assert {name: text for name, text in RED.items() if text not in said[name]} == {}
    assert "left.txt" in said["writes"]


@pytest.mark.notebook
def test_outputs_are_written_by_one_command(tmp_path):
    shutil.copy(COURSE / "nbgrader_config.py", tmp_path)
    path = write(tmp_path / "source", "lab99", [cell("compared", "print(0.25)\n3", ""), cell("other", "print(1)")])
    for what in ("outputs changed", "the same outputs"):
        result = CliRunner().invoke(main, ["labs", "outputs", "lab99", "--course", str(tmp_path)])
        assert f"lab99.ipynb: {what}" in result.output.replace("\n", "")
    compared, other = Source(path).cells
    assert compared.node.outputs == [new_output("stream", text="0.25\n3\n")]
    assert other.node.outputs == []


def test_every_lab_has_compared_cells():
    compared = {path.name: sum(COMPARED in c.tags for c in Source(path).code) for path in source_notebooks(COURSE)}
    assert {name: n for name, n in compared.items() if n < AT_LEAST} == {}
