"""Where in the user's code a call was made: for errors that name the line rather than ours."""

from __future__ import annotations

import sys
from typing import NamedTuple

OWN = ("distlearn.comm", "distlearn.sim")


class CallSite(NamedTuple):
    """File, line and function of a call."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        folder, _, name = self.file.replace("\\", "/").rpartition("/")
        in_cell = "ipykernel_" in folder or name.startswith("<ipython-input")  # of a notebook: such names say nothing
        where = "" if in_cell else f"{name}, "
        return f"{where}line {self.line}, in {self.function}"


def call_site(frame=None) -> CallSite | None:
    """Return the innermost frame that is not this package's communication code, or None if there is none.

    Parameters
    ----------
    frame : frame, optional
        Where to begin to look; by default the caller's.
    """
    frame = sys._getframe(1) if frame is None else frame
    while frame is not None and frame.f_globals.get("__name__", "").startswith(OWN):
        frame = frame.f_back
    return None if frame is None else CallSite(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
