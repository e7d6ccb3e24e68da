"""Progress, output and stalls of ranks as a user sees them, and their errors afterwards."""

from __future__ import annotations

import functools
import sys
import time
from types import TracebackType
from typing import Any

from ..comm.recorder import TO_RETURN
from .outcome import Outcome, frames_of_stack

# -- tracebacks --------------------------------------------------------------------------------------------------------
# Errors of a run as a notebook shows them: the user's lines and the message, without the frames of this package.


def shorten_traceback(error: BaseException) -> BaseException:
    """Let a notebook show the traceback of `error` down to the call of this package only; return `error`."""
    error._render_traceback_ = functools.partial(_users_lines, error)  # IPython looks for a method of this name
    return error


def _users_lines(error) -> list[str]:
    frames, entry = [], error.__traceback__
    while entry is not None and not entry.tb_frame.f_globals.get("__name__", "").startswith("distlearn.world"):
        frames.append(entry)
        entry = entry.tb_next
    shown = None
    for entry in reversed(frames):
        shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    shell = sys.modules["IPython"].get_ipython()
    return shell.InteractiveTB.structured_traceback(type(error), error, shown, tb_offset=1)


# -- progress ----------------------------------------------------------------------------------------------------------
# While ranks work a user sees a progress bar, their output, and which ranks stall in which call.

REPORT_SECONDS = 0.1  # Shortest time between two reports that an engine sends [s]; the last one is always sent.


class Reporter:
    """The engine's side of `comm.report`: passes on at most ten reports a second, and keeps the last one."""

    def __init__(self, publish):
        self._publish, self._next = publish, 0.0
        self.last: tuple | None = None

    def __call__(self, step, total, **values) -> None:
        self.last = (int(step), int(total), {name: _plain(v) for name, v in values.items()})
        now = time.perf_counter()
        if now >= self._next or step >= total:
            self._next = now + REPORT_SECONDS
            self._publish(self.last)


def _plain(value):
    """Turn an array of one element into a number."""
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value


class Texts:
    """Formats the values of reports."""

    # A value called `samples` counts from the start; it is shown as samples/s since the first report.

    def __init__(self):
        self._first = None  # time and samples of the first report, so that start-up does not count

    def __call__(self, values: dict[str, Any]) -> dict[str, str]:
        texts = {}
        for name, value in values.items():
            if name == "samples":
                now = time.perf_counter()
                began, before = self._first = self._first or (now, value)
                if value > before:
                    texts["samples/s"] = f"{(value - before) / (now - began):,.0f}"
            else:
                texts[name] = f"{value:.4g}" if isinstance(value, float) else str(value)
        return texts


class Bar:
    """The client's side: a tqdm bar (a widget in a notebook, text in a terminal), made at the first report."""

    def __init__(self, description: str = "", unit: str = "step"):
        self._bar, self._description, self._unit = None, description, unit
        self._seen, self._texts = None, Texts()

    def __call__(self, step, total, **values) -> None:
        if (step, total, values) == self._seen:
            return
        self._seen = (step, total, values)
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc=self._description, unit=self._unit, dynamic_ncols=True, disable=None)
        self._bar.total = total
        self._bar.set_postfix(self._texts(values), refresh=False)
        self._bar.update(step - self._bar.n)
        self._bar.refresh()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Output:
    """Prints the ranks' output, each line prefixed with its rank."""

    # The output is ordered by rank, so that it is the same in every run. The first rank that has not ended is shown
    # line by line while it runs, later ranks afterwards.

    def __init__(self, size: int):
        self._shown = {(rank, name): 0 for rank in range(size) for name in ("stdout", "stderr")}
        self._turn = 0

    def show(self, streams, ended) -> None:
        while self._turn < len(streams):
            over = self._turn in ended
            for name in ("stdout", "stderr"):
                self._print(name, streams[self._turn][name] or "", over)
            if not over:
                return
            self._turn += 1

    def _print(self, name: str, text: str, over: bool) -> None:
        """Print one rank's new lines; an incomplete line only when the output is complete."""
        start = min(self._shown[self._turn, name], len(text))
        end = len(text) if over else text.rfind("\n") + 1
        if end <= start:
            return
        self._shown[self._turn, name] = end
        lines = text[start:end].removesuffix("\n").split("\n")
        stream = getattr(sys, name)
        stream.write("".join(f"[rank {self._turn}] {line}\n" for line in lines))
        stream.flush()


# -- stalls ------------------------------------------------------------------------------------------------------------
# While a rank computes for a minute, the others may wait for a minute: that is shown, but is not an error. If all ranks
# wait, each in one call, none is left to send what they wait for: a deadlock, which is an error.

PATIENCE_SECONDS = 10.0
SLOWEST_BYTES_PER_SECOND = 1e6  # Slower than any network: a call is allowed the time that its bytes may take.
GRACE_SECONDS = 0.5  # Ranks that wait for each other report it at slightly different times.


class StallReporter:
    """Reports that one rank stalls, and that it continues: `Activity.on_stall`."""

    def __init__(self, comm, seconds: float, report):
        self._comm, self._seconds, self._report, self._reported = comm, seconds, report, False

    def __call__(self, what, nbytes: int, seconds: float) -> None:
        """Called while the rank waits for `what`, after `seconds`; None: the wait is over."""
        if what is None:
            if self._reported:
                self._reported = False
                self._report(None)
        elif not self._reported and seconds > self._seconds + nbytes / SLOWEST_BYTES_PER_SECOND:
            self._reported = True
            frames, records = frames_of_stack(sys._getframe(1)), self._comm.recorder.records(str(what) != TO_RETURN)
            self._report(Outcome(self._comm.rank, "waiting", frames=frames, waits_for=str(what), records=records))


def stop_button() -> str:
    """Say how the user ends a run."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is not None:
        return "The stop button of the notebook (Interrupt Kernel) ends the run"
    return "Ctrl-C ends the run"
