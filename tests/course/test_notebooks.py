"""Every lab runs: solved, printing what it did before; untouched, as a student opens it; and nothing stays behind."""

import json
import os
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from distlearn.lab.author.nbgrader_steps import DEMONSTRATIONS
from distlearn.lab.author.source import Source

from .conftest import COURSE

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(900)]

SECONDS_PER_CELL = 240
REFERENCES = Path(__file__).with_name("references")
"""What cells tagged `nbval-check-output` print, by cell id; sources hold no outputs."""
LOOK = """
from matplotlib.backend_bases import FigureCanvasBase as canvas_class
from distlearn.viz import same_in_grey

def look_and_print(canvas, *args, print_figure=canvas_class.print_figure, **kwargs):
    same_in_grey_found.extend(same_in_grey(canvas.figure))
    return print_figure(canvas, *args, **kwargs)

same_in_grey_found, canvas_class.print_figure = [], look_and_print
"""
"""With --thorough it runs before a lab, and looks at every figure that the lab shows."""
LOOKED = """
import matplotlib.pyplot
for number in matplotlib.pyplot.get_fignums():  # without a notebook's backend figures that no cell passes on stay open
    same_in_grey_found += same_in_grey(matplotlib.pyplot.figure(number))
assert not same_in_grey_found, "\\n".join(same_in_grey_found)
"""
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


def printed(cell) -> str:
    """What a cell prints and returns, as text; no figures, no warnings."""
    found = []
    for out in cell.outputs:
        if out.output_type == "stream" and out.name == "stdout":
            found.append(out.text)
        elif out.output_type in ("execute_result", "display_data") and not any("image/" in kind for kind in out.data):
            found.append(out.data.get("text/plain", "") + "\n")
    return "\n".join(line.rstrip() for line in "".join(found).strip().splitlines())


def compare_with_references(lab, cells, update):
    """Compare what tagged cells print with tests/course/references/labNN.json, or write it."""
    path = REFERENCES / f"{lab.partition('_')[0]}.json"
    got = {cell.id: printed(cell) for cell in cells if "nbval-check-output" in cell.metadata.get("tags", [])}
    if update and got:
        path.write_text(json.dumps(got, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    elif update:
        path.unlink(missing_ok=True)
    want = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    again = f"if that is right: pytest tests/course/test_notebooks.py -k {lab.partition('_')[0]} --update-references"
    assert got == want, f"{lab}: cells print something else than {path.name} says; {again}"


@pytest.mark.engines
def test_the_solved_lab_runs_prints_what_it_did_and_leaves_nothing_behind(lab, tmp_path, monkeypatch, request):
    home, path = tmp_path / "ipython", notebook_path(lab)
    monkeypatch.setenv("IPYTHONDIR", str(home))
    before = sorted(p.name for p in path.parent.iterdir())
    book = nbformat.read(path, as_version=4)
    if request.config.getoption("--thorough", default=False):
        book.cells = [nbformat.v4.new_code_cell(LOOK), *book.cells, nbformat.v4.new_code_cell(LOOKED)]
    NotebookClient(book, timeout=SECONDS_PER_CELL, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert sorted(p.name for p in path.parent.iterdir()) == before, "a lab writes no files"
    give_up = time.monotonic() + 20
    while (left := processes_of(home)) and time.monotonic() < give_up:
        time.sleep(0.5)
    assert not left, [p.cmdline() for p in left]
    compare_with_references(lab, book.cells, request.config.getoption("--update-references", default=False))


def test_a_changed_printout_is_noticed(monkeypatch, tmp_path):
    monkeypatch.setattr(f"{__name__}.REFERENCES", tmp_path)
    cell = nbformat.v4.new_code_cell("f()", id="a", metadata={"tags": ["nbval-check-output"]})
    cell.outputs = [
        nbformat.v4.new_output("stream", name="stdout", text="loss 0.25  \n"),
        nbformat.v4.new_output("stream", name="stderr", text="a warning"),
        nbformat.v4.new_output("display_data", data={"image/png": "", "text/plain": "<Figure size 640x480>"}),
        nbformat.v4.new_output("execute_result", data={"text/plain": "3", "text/html": "<b>3</b>"}),
    ]
    with pytest.raises(AssertionError, match="lab99 --update-references"):
        compare_with_references("lab99_x", [cell], update=False)
    compare_with_references("lab99_x", [cell], update=True)
    assert json.loads((tmp_path / "lab99.json").read_text(encoding="utf-8")) == {"a": "loss 0.25\n3"}
    compare_with_references("lab99_x", [cell, nbformat.v4.new_code_cell("other")], update=False)
    cell.outputs[0].text = "loss 0.26\n"
    with pytest.raises(AssertionError, match=r"lab99\.json"):
        compare_with_references("lab99_x", [cell], update=False)
    compare_with_references("lab99_x", [], update=True)
    assert not (tmp_path / "lab99.json").exists()


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


def test_two_series_of_one_grey_are_noticed(tmp_path):
    def drawing(*pairs):
        lines = [f"ax.plot([1, 2], '-', color={color!r}, label={name!r})" for name, color in pairs]
        return "\n".join(["fig, ax = plt.subplots()", *lines])

    show = "lab.show(fig, alt='Two lines.')"
    sources = ["import matplotlib.pyplot as plt, distlearn as dl\nlab = dl.Lab('00')", LOOK]
    sources += [drawing(("a", "red"), ("b", "#008a00")), show, drawing(("a", "red"), ("c", "black")), show]
    sources += [drawing(("d", "red"), ("e", "#008a00")), LOOKED]
    book = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
    NotebookClient(book, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}).execute()
    errors = [out.evalue for cell in book.cells for out in cell.outputs if out.output_type == "error"]
    found = [f"axes 1: {a} (lightness 53) and {b} (lightness 50) look the same in grey" for a, b in ("ab", "de")]
    assert errors == ["\n".join(found)]
