"""Warnings for the instructor: logged at once, and again at the end of `nbgrader autograde`."""

from __future__ import annotations

import atexit

TOLD: list[str] = []


def tell(log, told, text: str) -> None:
    """Warn about a submission.

    Parameters
    ----------
    told : dict
        nbgrader's resources: the student and the lab.
    text : str
        What happened.
    """
    line = f"{told['student']}, {told['assignment']}: {text}"
    log.warning(line)
    if not TOLD and _is_command():
        atexit.register(_print, log)
    TOLD.append(line)


def _is_command() -> bool:
    """Whether `nbgrader autograde` runs, and not Formgrader's server, which does not end."""
    from nbgrader.apps import AutogradeApp
    from traitlets.config import Application

    return Application.initialized() and isinstance(Application.instance(), AutogradeApp)


def _print(log) -> None:
    log.warning("Graded, but worth a look:")
    for line in TOLD:
        log.warning("  %s", line)
