"""How `pytest --nbval-lax course/source` runs the solved labs: every cell is a test, named after the cell's id.

nbval 0.11 passes a cell that swallows the interrupt of its timeout, a tagged cell without a stored output, an unknown
magic, and a process that outlives the notebook. All four fail here, as does a file that a lab leaves in its folder.
"""

import contextlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from queue import Empty

import psutil
import pytest
from distcourse.author.rules import SECONDS_PER_CELL, printed
from nbval.kernel import RunningKernel
from nbval.plugin import IPyNbCell, IPyNbFile

SECONDS_OF_SILENCE = 30  # of a cell that has ended or was interrupted; nbval's are 5, too few on a busy machine
SECONDS_TO_END = 10  # for processes, once the kernel is gone

LOOK = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
from matplotlib.backend_bases import FigureCanvasBase
from grey import same_in_grey

def print_figure(canvas, *args, print_figure=FigureCanvasBase.print_figure, **kwargs):
    same = same_in_grey(canvas.figure)
    assert not same, "\\n".join(same)
    return print_figure(canvas, *args, **kwargs)

FigureCanvasBase.print_figure = print_figure
"""
"""Runs in every kernel as it starts: a figure whose series look the same in grey fails the cell that shows it."""


def pytest_configure(config):
    config.option.nbval_current_env = True  # this Python, whatever kernel is installed as "python3"
    config.option.nbval_cell_timeout = min(config.option.nbval_cell_timeout, SECONDS_PER_CELL)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path, parent):
    found = yield
    return [Lab.from_parent(parent, path=file_path) if isinstance(one, IPyNbFile) else one for one in found]


class Lab(IPyNbFile):
    """A notebook, run in a kernel with its own IPython directory, by which its processes are found."""

    def collect(self):
        for cell in super().collect():
            test = Cell.from_parent(
                self, name=cell.cell.id, cell_num=cell.cell_num, cell=cell.cell, options=cell.options
            )
            test.add_marker(pytest.mark.xdist_group(self.path.stem))  # in order, in one kernel
            yield test

    def setup(self):
        self.home = tempfile.mkdtemp(prefix="ipython-")
        self.files = set(self.path.parent.rglob("*"))
        startup = Path(self.home, "profile_default", "startup")
        startup.mkdir(parents=True)
        (startup / "look.py").write_text(LOOK, encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("IPYTHONDIR", self.home)
            patch.setenv("OPENBLAS_NUM_THREADS", "1")  # arrays are small; engines share out the cores by themselves
            patch.setenv("PATH", os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])
            patch.delenv("MPLBACKEND", raising=False)  # figures are shown as in a browser
            patch.setattr("nbval.plugin.RunningKernel", Kernel)
            super().setup()

    def teardown(self):
        super().teardown()
        _, left = psutil.wait_procs(self.processes(), timeout=SECONDS_TO_END)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(self.home, ignore_errors=True)
        left = [f"process {process.pid} (killed): {' '.join(process.info['cmdline'] or ())[:200]}" for process in left]
        left += map(str, sorted(set(self.path.parent.rglob("*")) - self.files))
        if left:
            pytest.fail("the notebook leaves behind:\n" + "\n".join(left), pytrace=False)

    def processes(self):
        """Processes that inherited the IPython directory, from the kernel or from each other."""
        found = psutil.process_iter(["environ", "cmdline"])
        return [p for p in found if (p.info["environ"] or {}).get("IPYTHONDIR") == self.home]


class Kernel(RunningKernel):
    """A kernel whose death ends the wait for its messages."""

    def get_message(self, stream, timeout=None):
        deadline = time.monotonic() + timeout
        while True:
            try:
                return super().get_message(stream, min(1, timeout))
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("the kernel died") from None
                if time.monotonic() > deadline:
                    raise


class Cell(IPyNbCell):
    """A cell: it ends in time, raises nothing, and prints what its source holds if it is tagged for comparison."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.output_timeout = SECONDS_OF_SILENCE

    def reportinfo(self):
        return self.path, 0, f"{self.path.stem}: {self.name}"

    def repr_failure(self, excinfo):
        """Begin with what happened: the summary of a run shows one line."""
        return f"{excinfo.value}\n{super().repr_failure(excinfo)}"

    def setup(self):
        """Replace nbval's, which expects cells to fail after one that timed out: they count as failed here."""

    def runtest(self):
        if self.parent.timed_out:
            self.raise_cell_error("not run: an earlier cell of this notebook timed out")
        super().runtest()
        if self.parent.timed_out:
            self.raise_cell_error(f"ran for more than {self.config.option.nbval_cell_timeout:g} seconds")
        for out in self.test_outputs:
            if out.output_type == "stream" and out.name == "stderr" and "UsageError: " in out.text:
                self.raise_cell_error(out.text)
        if self.options["check"] and not self.cell.outputs:
            self.raise_cell_error("its source holds no output to compare with: distlearn labs outputs writes it")

    def compare_outputs(self, test, ref, skip_compare=None):
        """Compare the text as a whole: nbval compares kind by kind, and a table has text and HTML."""
        self.comparison_traceback = ["If the new text is right: distlearn labs outputs " + self.path.parent.name]
        if printed(test) == printed(ref):
            return True
        self.format_output_compare("text", printed(ref), printed(test))
        return False
