"""Run a submission to its end, whatever its cells do; course/nbgrader_config.py names this step.

nbgrader's own step gives up on a whole notebook where one cell ends the kernel, swallows the interrupt after its time
is up, or prints faster than can be read: 0 points for everything. Here such a cell loses only its own points: the
notebook is run again in a new kernel, with only the functions, classes and imports of that cell. The kernel, in a
sandbox, runs answers and given cells; checks run in another process, which calls its functions (`distcourse.judge`).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import textwrap
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import zmq
from jupyter_core.utils import run_sync
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import from_dict
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import Execute
from traitlets import Bool, Integer

from distlearn.world import reaper

from .sandbox import JudgeLost, MemoryWatch, Room, SandboxedKernel, processes, stretch
from .source import CASES, Cell, course_of, grade_id_of, is_check, name_of, source_of
from .stage import before_check, definitions, names_of_answers, skeleton

# Environment variable of all processes of a submission, by which they are found after its kernel has died.
MARK = "DISTLEARN_GRADING"
# Placeholder for our own code, which may take longer than a cell because it loads the library.
_OURS, _SETTING_UP = new_markdown_cell(), 25
WHOLE, PARTS, NOTHING = range(3)  # How much of a cell is run.
_SERVE = "__import__('distcourse.judge.student', fromlist=['serve']).serve({path!r}, get_ipython().user_ns)"
# What nbclient raises for a message that no kernel would send: a submission can write to its kernel's sockets.
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, zmq.ZMQError)
_SENT = 10_000  # Milliseconds within which a kernel must take a message: one that has lost its sockets never does.
_PARTS_KEPT = "its functions, classes and imports were kept"


class ExecuteAll(Execute):
    """nbgrader's `Execute`, except that it continues when a cell kills the kernel."""

    iopub_timeout = Integer(15, help="Seconds to wait for the output of a cell that has ended.").tag(config=True)
    budget = Integer(1200, help="Seconds for a submission; then only checks are run, with `least` each.").tag(
        config=True
    )
    least = Integer(5, help="Seconds that every check gets, however little is left.").tag(config=True)
    most_stretch = Integer(4, help="Cells get up to this many times as long on a busy machine.").tag(config=True)
    restarts = Integer(3, help="After this many dead kernels, cells that earn nothing run only their definitions.").tag(
        config=True
    )
    most_restarts = Integer(12, help="After this many dead kernels, nothing more is run.").tag(config=True)
    memory = Integer(4 * 2**30, help="Bytes that the kernel and what it starts may hold.").tag(config=True)
    max_output = Integer(2_000_000, help="Characters of output that are kept per cell.").tag(config=True)
    grace = Integer(10, help="Seconds that an answer has to end after an interrupt.").tag(config=True)
    unsafe = Bool(False, help="Run submissions without a sandbox, with your own rights.").tag(config=True)

    def __init__(self, *args, **kwargs):
        kwargs.setdefault("kernel_manager_class", SandboxedKernel)
        super().__init__(*args, **kwargs)

    def preprocess(self, nb, resources, km=None):
        told = resources["nbgrader"]
        self._lab_source = source_of(self.config, told["assignment"], told["notebook"])
        self._number = "".join(re.findall(r"\d\d", told["notebook"])[:1]) or "00"
        self._began, self._deaths, self._parts, self._why = time.monotonic(), 0, {}, {}
        self._unrun, self._judged = set(), set()
        self.timeout_func = self._seconds_for
        self.kernel_name = "python3"  # whatever the submission names
        place, course = resources["metadata"].get("path"), course_of(self.config)
        with ExitStack() as stack:
            work = place and stack.enter_context(self._handed_in(place, told))
            resources["metadata"]["path"] = work
            two = processes(work, [course] if course else [], unsafe=self.unsafe, memory=self.memory)
            self._sandbox, self._sockets, self._judge = stack.enter_context(two)
            nb = self._run_to_the_end(nb, resources, km)
        resources["metadata"]["path"] = place
        for cell in nb.cells:  # a check without outputs would earn all points
            if is_check(cell) and grade_id_of(cell) not in self._judged and not cell.outputs:
                cell.outputs = _left_out("was not run")
        self._report(nb, told)
        return nb, resources

    @contextmanager
    def _handed_in(self, place, told):
        """Copy the folder of a submission, its notebooks as they came: nbgrader's have the hidden tests."""
        here = CourseDirectory(config=self.config)
        came = Path(here.format_path(here.submitted_directory, told["student"], told["assignment"]))
        with tempfile.TemporaryDirectory(prefix="dl-", ignore_cleanup_errors=True) as folder:
            shutil.copytree(place, folder, ignore=shutil.ignore_patterns("*.ipynb", CASES), dirs_exist_ok=True)
            for path in filter(Path.is_file, came.rglob("*.ipynb")):
                target = Path(folder, path.relative_to(came))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
            yield folder

    def _run_to_the_end(self, nb, resources, km):
        failed = 0
        while True:
            self._at = None
            try:
                return super().preprocess(nb, resources, km)[0]
            except (RuntimeError, CellTimeoutError, *_UNREADABLE) as error:  # a DeadKernelError is a RuntimeError
                if self._at is None and failed < 2:  # it did not start: another process may have taken its ports
                    failed += 1
                    continue
                if self._at is None or not isinstance(error, (DeadKernelError, CellTimeoutError, *_UNREADABLE)):
                    raise
                self._blame(error)
                if self._deaths > self.most_restarts:
                    self._give_up(nb)
                    return nb

    def preprocess_cell(self, cell, resources, index):
        """Execute one cell, or as much of it as does not end the kernel."""
        self._at = index
        if self._fresh:
            self._fresh = False
            self._silently("get_ipython().ask_exit = lambda: None")  # or `exit()` would end the kernel in a later cell
        if cell.cell_type != "code" or self.skip_cells_with_tag in cell.metadata.get("tags", []):
            return super().preprocess_cell(cell, resources, index)
        self._room = Room(self.max_output)
        parts, why = self._how_much(cell, index)
        if parts == WHOLE:
            if is_check(cell):
                helpers = before_check(self._lab_source, self._number, grade_id_of(cell))
                self._silently(helpers)
                self._judge_cell(cell, helpers)
            else:
                super().preprocess_cell(cell, resources, index)
                self._fill_in(cell)
            if any(out.get("ename") == "CellTimeoutError" for out in cell.outputs):
                self._parts[index], self._why[index] = PARTS, f"was stopped after {self._given} s"
            # now, while it is known whose answer it was: what it did to Python may keep the kernel from doing anything
            if is_check(cell) and self._silently("pass", sane="1 + 1").get("sane") != "2":
                raise ValueError("no answer to 1 + 1")
            return cell, resources
        if parts == PARTS:
            self._silently(definitions(cell.source))
        cell.outputs, cell.execution_count = _left_out(why), None
        return cell, resources

    def _how_much(self, cell, index) -> tuple[int, str]:
        """Return how much of a cell is run, and why it is not all."""
        if index in self._parts:
            return self._parts[index], self._why[index]
        if "nbgrader" in cell.metadata:  # it earns points
            return WHOLE, ""
        if self._deaths >= self.restarts or self._left() <= 0:
            self._unrun.add(index)
            return PARTS, f"earns nothing and was not run: {self._shortage()}; {_PARTS_KEPT}"
        return WHOLE, ""

    # -- kernels and what belongs to them -----------------------------------------------------------------------------

    @contextmanager
    def setup_kernel(self, **kwargs):
        """Start a kernel; in the end terminate all processes that it has started."""
        mark = uuid4().hex
        self._fresh, self._status = True, None
        if self.km is None:
            self.create_kernel_manager().confine(self._sandbox, self._sockets)
        try:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            with super().setup_kernel(env={**os.environ, MARK: mark}, **quiet, **kwargs):
                asks = (self.kc.shell_channel.socket, self.kc.control_channel.socket, self.km._control_socket)
                for socket in asks:  # the manager's own is the one that is asked to shut down
                    socket.sndtimeo = _SENT
                self._watch = MemoryWatch(self.km.provisioner.pid, self.memory, self._sockets.parent)
                try:
                    yield
                except DeadKernelError:
                    self._status = getattr(self.km.provisioner.process, "returncode", None)
                    raise
                finally:
                    self._watch.stop()
        finally:
            reaper.kill_marked(mark, variable=MARK)
            reaper.end_ownerless()

    def _silently(self, code: str, **expressions) -> dict:
        """Run code that leaves no trace in the notebook; return the values of expressions, as text."""
        asked = self.kc.execute(code, silent=True, store_history=False, user_expressions=expressions)
        reply = self.wait_for_reply(asked, _OURS) or {"content": {}}
        values = reply["content"].get("user_expressions", {})
        return {name: value.get("data", {}).get("text/plain", "") for name, value in values.items()}

    def _fill_in(self, answer) -> None:
        """Where an answer ended with an error, define what it leaves undefined as it was released."""
        # Other exercises build on it: a class that the next one extends, in which one method is not written.
        released = skeleton(self._lab_source, grade_id_of(answer))
        if not released or not any(out.output_type == "error" for out in answer.outputs):
            return
        names = sorted(Cell(0, answer).binds or Cell(0, new_code_cell(released)).binds)
        missing = f"[name for name in {names} if name not in get_ipython().user_ns]"
        unread = any(out.get("ename") in ("SyntaxError", "IndentationError", "TabError") for out in answer.outputs)
        if unread or self._silently("pass", missing=missing)["missing"] != "[]":
            self._silently(released)

    def _judge_cell(self, check, helpers: str) -> None:
        names = names_of_answers(self._lab_source, check, helpers)
        seconds, asked, self._interrupted = self._seconds_for(check), None, False
        try:
            path = self._judge.begin(check.source, helpers, names, self._lab_source and self._lab_source.path.parent)
            asked = self.kc.execute(_SERVE.format(path=path), silent=True, store_history=False)
            answer = self._answer(seconds)
        except JudgeLost as error:
            self._judge.stop()
            if asked is not None and not run_sync(self.km.is_alive)():
                raise DeadKernelError("Kernel died") from error
            if asked is not None:
                raise CellTimeoutError(str(error)) from error
            answer = {"outputs": [], "broken": str(error)}
        if answer.get("lost"):
            self._raise_if_dead()
        if "broken" in answer:
            self.log.error("The check %s could not be run: %s", name_of(check), answer["broken"])
            answer["outputs"] = _left_out("could not be run; this is not your mistake")
        if self._interrupted:
            answer["outputs"].append(new_output("error", **self.error_on_timeout))
        elif answer.get("lost"):
            answer["outputs"] += _left_out(f"could not be judged: {answer['lost']}")
        elif asked is not None:
            self.wait_for_reply(asked, _OURS)
        check.outputs = [from_dict(out) for out in answer["outputs"] if self._room.admit(out)]
        self._judged.add(grade_id_of(check))

    def _answer(self, seconds: float) -> dict:
        try:
            return self._judge.answer(seconds)
        except JudgeLost:
            self._interrupted = True
            run_sync(self.km.interrupt_kernel)()
            return self._judge.answer(self.grace)

    def _raise_if_dead(self) -> None:
        for _ in range(20):
            if not run_sync(self.km.is_alive)():
                raise DeadKernelError("Kernel died")
            time.sleep(0.1)

    # -- limits -------------------------------------------------------------------------------------------------------

    def _left(self) -> float:
        return self.budget - (time.monotonic() - self._began)

    def _shortage(self) -> str:
        kernels = f"{self._deaths} kernels had been ended"
        return kernels if self._deaths >= self.restarts else f"the {self.budget} s for the submission were used up"

    def _seconds_for(self, cell) -> int:
        if cell is _OURS:
            return round(_SETTING_UP * stretch(self.most_stretch))
        seconds = self.least if self._left() <= 0 else self.timeout or self.budget
        self._given = round(seconds * stretch(self.most_stretch))
        self.error_on_timeout = _error("CellTimeoutError", f"stopped after {self._given} s: does this cell end?")
        return self._given

    def output(self, outs, msg, display_id, cell_index):
        """Keep output up to the limit."""
        return super().output(outs, msg, display_id, cell_index) if self._room.admit(msg["content"]) else None

    # -- when a kernel has died ---------------------------------------------------------------------------------------

    def _blame(self, error) -> None:
        if isinstance(error, CellTimeoutError):
            how = f"could not be stopped after {self._given} s, or printed more than could be read"
        elif isinstance(error, _UNREADABLE):
            how = f"made the kernel send what cannot be read ({type(error).__name__}: {str(error)[:80]})"
        else:
            how = "ended the kernel" + (self._watch.told or _how_it_ended(self._status))
        self._deaths += 1
        cell = self.nb.cells[self._at]
        parts = self._parts[self._at] = min(self._parts.get(self._at, WHOLE) + 1, NOTHING)
        kept = _PARTS_KEPT if parts == PARTS else "nothing from it was kept"
        kept = "it counts as failed" if is_check(cell) else f"it was left out, {kept}"
        self._why[self._at] = f"{how}; {kept}"
        self.log.warning("%s %s; running the notebook again", name_of(cell), self._why[self._at])

    def _give_up(self, nb) -> None:
        for index, cell in enumerate(nb.cells[self._at :], self._at):
            if cell.cell_type == "code":
                why = self._why.get(index, f"was not run: cells above ended {self._deaths} kernels")
                cell.outputs = _left_out(why)

    def _report(self, nb, told) -> None:
        lines = [f"the cell {name_of(nb.cells[i])} {why}" for i, why in sorted(self._why.items())]
        if self._unrun:
            lines.append(f"{len(self._unrun)} of the cells that earn nothing not run: {self._shortage()}")
        told["looks"] = lines
        for line in lines:
            self.log.warning("%s, %s: %s", told["student"], told["assignment"], line)
        if lines:
            text = "\n".join(f"- {line}" for line in lines)
            nb.cells.insert(0, new_markdown_cell(f"**From grading.** Not everything here ran to its end:\n\n{text}\n\n"
                            "All other cells were run and graded as always."))  # fmt: skip


def _how_it_ended(status) -> str:
    if status is None:
        return ""
    if status == -9:
        return " (killed from outside: was the machine out of memory?)"
    if status > 128:  # a shell's or a sandbox's way to tell
        status = 128 - status
    if status < 0:
        return f" ({signal.strsignal(-status) or f'signal {-status}'})"
    return f" (exit status {status})"


def _left_out(why: str) -> list:
    """What is shown of a cell that is not run; nbgrader takes it for an error."""
    return [new_output("error", **_error("CellLeftOut", f"This cell {why}."))]


def _error(name: str, text: str) -> dict:
    return {"ename": name, "evalue": text, "traceback": [f"\x1b[0;31m{name}\x1b[0m: " + textwrap.fill(text, 90)]}
