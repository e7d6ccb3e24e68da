"""Progress of a run in a terminal: a bar, or a line now and then where there is no terminal to draw on."""

from __future__ import annotations

import sys

from .console import say

LINES = 10
"""At most so many lines where there is no bar."""


def make_progress(label: str, unit: str = "step"):
    """Return the progress of one run: call it with `(step, total, **values)`, and `close()` it.

    Parameters
    ----------
    label : str
        Stands in front: "4 ranks".
    unit : str
        What is counted; "%" if the total is 100 of it.
    """
    if sys.stderr.isatty():
        from ..world.progress import Bar

        return Bar(label, unit)
    return Lines(label, unit)


class Lines:
    """Progress for a file or a pipe: some lines in all."""

    def __init__(self, label: str, unit: str = "step"):
        from ..world.progress import Texts

        self._label, self._unit, self._shown, self._texts = label, unit, -1, Texts()

    def __call__(self, step, total, **values) -> None:
        """Print a line if another tenth of the work is done."""
        part = step * LINES // total
        if part == self._shown:
            return
        self._shown = part
        texts = self._texts(values)
        rate = f", {texts.pop('samples/s')} samples/s" if "samples/s" in texts else ""
        others = "".join(f", {name} {text}" for name, text in texts.items())
        done = f"{step} %" if self._unit == "%" else f"{self._unit} {step:,} of {total:,}"
        say(f"{self._label}: {done}{others}{rate}", err=True)

    def close(self) -> None:
        """Do nothing."""
