"""Output of the commands: tables, messages, errors, progress. The only module that uses rich."""

from __future__ import annotations

import sys
from contextlib import contextmanager

import click

LINES = 10  # Lines of progress, at most, where there is no bar.


def console(err: bool = False):
    """Make a console on standard output or error; wide enough for a table when that is not a terminal."""
    from rich.console import Console

    file = sys.stderr if err else sys.stdout
    width = None if getattr(file, "isatty", bool)() else 120
    return Console(file=file, width=width, highlight=False, emoji=False)


def speaks_unicode() -> bool:
    """Say whether standard output can show more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "").startswith("utf")


def print_table(title: str, columns, rows, *, caption: str = "", styles=None) -> None:
    """Print a table of strings; a column whose name ends with ">" is right-aligned."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, caption=caption or None, box=box.SIMPLE_HEAD if speaks_unicode() else box.ASCII)
    table.title_justify = table.caption_justify = "left"
    for name in columns:
        table.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left", overflow="fold")
    for i, row in enumerate(rows):
        table.add_row(*(Text("-" if v is None else str(v)) for v in row), style=styles[i] if styles else None)
    console().print(table)


def say(text: str, *, style: str = "", err: bool = False) -> None:
    """Print one line without wrapping it, so that it can be copied."""
    console(err).print(text, style=style, markup=False, soft_wrap=True)


@contextmanager
def plain_errors(*kinds: type[Exception]):
    """Turn errors that the user can fix into one line and exit status 1."""
    # The library's messages name the value, what was expected and where, so the line is enough; `DISTLEARN_DEBUG=1`
    # shows the traceback.
    import os

    try:
        yield
    except kinds as error:
        if os.environ.get("DISTLEARN_DEBUG"):
            raise
        raise click.ClickException(str(error) or type(error).__name__) from error


@contextmanager
def status(text: str, *, shown: bool = True):
    """Show a status line, on a terminal only; yields the function that updates it."""
    out = console(err=True)
    if not shown or not out.is_terminal:
        yield lambda text: None
        return
    with out.status(text) as line:
        yield line.update


def make_progress(label: str, unit: str = "step"):
    """Return the progress of one run: call it with `(step, total, **values)`, and `close()` it."""
    if sys.stderr.isatty():
        from ..world.progress import Bar

        return Bar(label, unit)
    return Lines(label, unit)


class Lines:
    """Progress for a file or a pipe: a few lines in total."""

    def __init__(self, label: str, unit: str = "step"):
        from ..world.progress import Texts

        self._label, self._unit, self._shown, self._texts = label, unit, -1, Texts()

    def __call__(self, step, total, **values) -> None:
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
