"""What a user sees while ranks work: a progress bar, what the ranks print, and who has waited for long for what."""

from __future__ import annotations

import sys
import time

from .outcome import Outcome, frames_of_stack

REPORT_SECONDS = 0.1
"""At most ten reports a second leave an engine; the last one always does."""


class Reporter:
    """The engine's side of `comm.report`: passes some reports on, and keeps the last one.

    Parameters
    ----------
    publish : callable
        `publish((step, total, values))`; cheap, but not free.
    """

    def __init__(self, publish):
        self._publish, self._next = publish, 0.0
        self.last: tuple | None = None

    def __call__(self, step, total, **values) -> None:
        """Take note of a report."""
        self.last = (int(step), int(total), {name: _plain(v) for name, v in values.items()})
        now = time.perf_counter()
        if now >= self._next or step >= total:
            self._next = now + REPORT_SECONDS
            self._publish(self.last)


def _plain(value):
    """Turn an array's scalar into a number."""
    return value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value


class Texts:
    """The values of reports, as texts.

    A value called `samples` is a count since the start; it is shown as samples/s since the first report.
    """

    def __init__(self):
        self._first = None  # time and samples of the first report: starting ranks is not training

    def __call__(self, values: dict) -> dict[str, str]:
        """Return the texts of a report's values by name."""
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
    """The client's side: one tqdm bar (a widget in a notebook, text in a terminal), made at the first report."""

    def __init__(self, description: str = "", unit: str = "step"):
        self._bar, self._description, self._unit = None, description, unit
        self._seen, self._texts = None, Texts()

    def __call__(self, step, total, **values) -> None:
        """Show a report."""
        if (step, total, values) == self._seen:
            return
        self._seen = (step, total, values)
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, desc=self._description, unit=self._unit, dynamic_ncols=True)
        self._bar.total = total
        self._bar.set_postfix(self._texts(values), refresh=False)
        self._bar.update(step - self._bar.n)
        self._bar.refresh()

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class Output:
    """Prints what ranks print, each line headed by its rank.

    The order is that of ranks, so it is the same in every run; yet it is live: the first rank that has not ended yet is
    shown line by line, the others when their turn comes.
    """

    def __init__(self, size: int):
        self._shown = {(rank, name): 0 for rank in range(size) for name in ("stdout", "stderr")}
        self._turn = 0

    def show(self, streams, ended) -> None:
        """Print what is new.

        Parameters
        ----------
        streams : list of dict
            By rank: all of "stdout" and "stderr" so far.
        ended : collection of int
            Ranks from which nothing more will come.
        """
        while self._turn < len(streams):
            over = self._turn in ended
            for name in ("stdout", "stderr"):
                self._print(name, streams[self._turn][name] or "", over)
            if not over:
                return
            self._turn += 1

    def _print(self, name: str, text: str, over: bool) -> None:
        """Print one rank's new lines: whole ones only, while more may come."""
        start = min(self._shown[self._turn, name], len(text))
        end = len(text) if over else text.rfind("\n") + 1
        if end <= start:
            return
        self._shown[self._turn, name] = end
        lines = text[start:end].removesuffix("\n").split("\n")
        stream = getattr(sys, name)
        stream.write("".join(f"[rank {self._turn}] {line}\n" for line in lines))
        stream.flush()


# -- ranks that wait for long -----------------------------------------------------------------------------------------
# A rank that computes for a minute lets the others wait for a minute; that is no mistake, and they are only shown. But
# when all ranks have waited for so long, each in one call, nobody is left who could send what they wait for: that is a
# deadlock, and an error.

PATIENCE_SECONDS = 10.0
SLOWEST_BYTES_PER_SECOND = 1e6
"""Networks are faster than this: a call that moves many bytes is given the time that they may need."""
GRACE_SECONDS = 0.5
"""Ranks that wait for each other do not run out of patience at the very same moment."""


class Patience:
    """Watches one rank's waits: `Activity.on_wait`.

    Parameters
    ----------
    rank : int
    seconds : float
        So long may a call wait before anybody is told.
    tell : callable
        Gets an `Outcome` of status "waiting" when a wait has become long, and None when it is over.
    """

    def __init__(self, rank: int, seconds: float, tell):
        self._rank, self._seconds, self._tell, self._told = rank, seconds, tell, False

    def __call__(self, what, nbytes: int, seconds: float) -> None:
        """Take note that the rank has waited for `what` for so many seconds; None says that it goes on."""
        if what is None:
            if self._told:
                self._told = False
                self._tell(None)
        elif not self._told and seconds > self._seconds + nbytes / SLOWEST_BYTES_PER_SECOND:
            self._told = True
            self._tell(Outcome(self._rank, "waiting", frames=frames_of_stack(sys._getframe(1)), waits_for=str(what)))


def stop_button() -> str:
    """Say how the user ends a run."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is not None:
        return "The stop button of the notebook (Interrupt Kernel) ends the run"
    return "Ctrl-C ends the run"
