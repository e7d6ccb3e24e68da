"""Every lab runs: solved, by nbval; untouched, as a student opens it; and nothing stays behind."""

import os
import subprocess
import sys
import time

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from distlearn.lab.author.nbgrader_steps import DEMONSTRATIONS
from distlearn.lab.author.source import Source

from .conftest import COURSE

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(900)]

SECONDS_PER_CELL = 240
KIND = {"PredictionMissing", "CheckFailed", "NotImplementedError"}
"""How an untouched notebook may stop a student."""


def notebook_path(lab):
    """The lab's source."""
    (path,) = (COURSE / "source" / lab).glob("*.ipynb")
    return path


def processes_of(home):
    """Processes that were started with this Jupyter home: kernels, engines, controllers."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("IPYTHONDIR") == str(home):
                found.append(process)
        except psutil.Error:
            continue  # gone meanwhile, or somebody else's
    return found


@pytest.mark.engines
def test_the_solved_lab_runs_and_leaves_nothing_behind(lab, tmp_path, monkeypatch):
    home = tmp_path / "ipython"
    monkeypatch.setenv("IPYTHONDIR", str(home))
    before = sorted(p.name for p in notebook_path(lab).parent.iterdir())
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-q", "--tb=short"]
    command += [f"--nbval-cell-timeout={SECONDS_PER_CELL}", "-o", "xfail_strict=true", "-o", "addopts="]
    command += ["-p", "no:cacheprovider", "-p", "no:randomly", str(notebook_path(lab))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=COURSE.parent, timeout=800)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert f"{len(Source(notebook_path(lab)).code)} passed" in done.stdout
    assert sorted(p.name for p in notebook_path(lab).parent.iterdir()) == before, "a lab writes no files"
    give_up = time.monotonic() + 20
    while (left := processes_of(home)) and time.monotonic() < give_up:
        time.sleep(0.5)
    assert not left, [p.cmdline() for p in left]


def test_an_untouched_lab_stops_kindly(lab, monkeypatch):
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    released = nbformat.read(COURSE.parent / "labs" / lab / notebook_path(lab).name, as_version=4)
    released.cells = [c for c in released.cells if not DEMONSTRATIONS & set(c.metadata.get("tags", []))]
    client = NotebookClient(
        released, timeout=SECONDS_PER_CELL, allow_errors=True, resources={"metadata": {"path": str(COURSE.parent)}}
    )
    client.execute()
    stopped = {"CheckFailed": 0, "PredictionMissing": 0}
    for cell in released.cells:
        for output in cell.get("outputs", []):
            if output.output_type != "error":
                continue
            graded = cell.metadata.get("nbgrader", {}).get("grade")
            if graded:
                assert output.ename == "CheckFailed", (cell.id, output.evalue)
                assert "not written yet" in output.evalue, (cell.id, output.evalue)
            if "lab.require(" in cell.source:
                assert output.ename in KIND, (cell.id, output.evalue)
            if output.ename in stopped:
                stopped[output.ename] += 1
                assert len(output.traceback) <= 2, "one line says it: no traceback"
    lab_source = Source(notebook_path(lab))
    assert stopped["CheckFailed"] == len(lab_source.exercises)
    assert stopped["PredictionMissing"] > 0
