"""What a user sees while ranks work: one progress bar, and what the ranks print, in the order of ranks."""

from __future__ import annotations

import sys
import time

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
