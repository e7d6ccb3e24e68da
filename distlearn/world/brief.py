"""Errors of a run as a notebook shows them: the user's lines and the message, without the frames of this package."""

from __future__ import annotations

import functools
import sys
from types import TracebackType


def brief(error: BaseException) -> BaseException:
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
