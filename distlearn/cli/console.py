"""What commands have in common: numbers that are given, tables, messages, errors, progress."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from contextlib import contextmanager
from itertools import zip_longest

import click

LINES = 10  # Lines of progress, at most, where there is no bar.
WIDTH, NARROW = 120, 8  # Columns of a table where there is no terminal, and of a column that must be folded, at least.


def parse_numbers(ctx, param, value):
    """Parse "256,128": positive whole numbers; an empty text is an empty tuple."""
    try:
        numbers = tuple(int(word) for word in value.split(",")) if value else ()
    except ValueError:
        numbers = (0,)
    if any(n < 1 for n in numbers):
        raise click.BadParameter(f"{value!r}, expected positive whole numbers, such as 256,128", ctx, param)
    return numbers


say = click.secho  # a line as it is; styles are click's: fg="red", bold=True


def print_table(title: str, columns, rows, *, styles=None) -> None:
    """Print a table of strings, no wider than the terminal; a column whose name ends with ">" is right-aligned."""
    from ..tables import Table
    from ..tables import columns as columns_of

    heads, right = [name.rstrip(">") for name in columns], [name.endswith(">") for name in columns]
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(columns_of, column)) for column in zip(heads, *cells, strict=True)]
    room = (shutil.get_terminal_size((WIDTH, 0)).columns if sys.stdout.isatty() else WIDTH) - 2 * len(heads)
    while sum(widths) > room and max(widths) > NARROW:
        widths[widths.index(max(widths))] -= 1

    def fold(cell, width):
        return [cell] if columns_of(cell) <= width and "\n" not in cell else textwrap.wrap(cell, width)

    folded = [list(zip_longest(*map(fold, row, widths), fillvalue="")) for row in cells]
    lines = str(Table(heads, [line for row in folded for line in row], right=right)).split("\n")
    say(title, bold=True)
    look = [style for row, style in zip(folded, styles or [{}] * len(rows), strict=True) for _ in row]
    for line, style in zip(lines, [{}, {}, *look], strict=True):
        say(line, **style)


@contextmanager
def plain_errors(*kinds: type[Exception], text=str):
    """Turn errors that the user can fix into one line, `text(error)`, and exit status 1."""
    # The library's messages name the value, what was expected and where, so the line is enough; `DISTLEARN_DEBUG=1`
    # shows the traceback.
    try:
        yield
    except kinds as error:
        if os.environ.get("DISTLEARN_DEBUG"):
            raise
        raise click.ClickException(text(error) or type(error).__name__) from error


@contextmanager
def status(text: str):
    """Show a status line, on a terminal only; yields the function that updates it."""

    def update(text):
        if sys.stderr.isatty():
            most = shutil.get_terminal_size((WIDTH, 0)).columns - 1  # a line that wraps would stay
            click.echo(f"\r{text[:most]}\x1b[K", err=True, nl=False)

    update(text)
    try:
        yield update
    finally:
        update("")


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
        say(f"{self._label}: {self._unit} {step:,} of {total:,}{others}{rate}", err=True)

    def close(self) -> None:
        """Do nothing."""
