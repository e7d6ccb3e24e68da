"""The labs as a reader sees them: solved notebooks run from top to bottom in JupyterLab. `make ui` runs this.

Pictures of every screen are left in `runs/ui/`.
"""

import shutil
from pathlib import Path

import psutil
import pytest

from . import browser

ROOT = Path(__file__).parents[2]
LABS = sorted((ROOT / "course" / "source").glob("lab*/lab*.ipynb"))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    pytest.importorskip("playwright", reason="needs the extra 'ui': pip install -e '.[ui]'")
    if browser.chromium() is None:
        pytest.skip("needs an installed Chromium or Chrome")
    root = tmp_path_factory.mktemp("course")
    for lab in LABS:
        shutil.copytree(lab.parent, root / lab.parent.name)
    with browser.jupyterlab(root) as url:
        yield url


@pytest.mark.timeout(400)
@pytest.mark.parametrize("lab", LABS, ids=lambda path: path.stem)
def test_a_solved_lab_runs_and_looks_right(served, lab):
    before = {p.pid for p in psutil.process_iter()}
    seen = browser.run_notebook(served, f"{lab.parent.name}/{lab.name}", ROOT / "runs" / "ui")
    assert seen["errors"] == []
    assert seen["missing"] == []
    assert seen["cells"] == seen["executed"] > 10
    assert seen["figures"], "a lab without a single figure"
    for figure in seen["figures"]:
        assert figure["alt"], "a figure without alternative text"
        assert figure["width"] > 200
        assert figure["shown"] > 150
    assert all(bar == "100%" for bar in seen["bars"]), seen["bars"]
    engines = [p for p in psutil.process_iter() if p.pid not in before and "ipyparallel" in _command(p)]
    assert engines == [], "a lab leaves its engines behind"


def _command(process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
