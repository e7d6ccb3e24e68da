"""Tables of results that read well in a notebook and in a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Number

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text


class _Table(Table):
    """A rich table that `print` can show, too."""

    def __str__(self) -> str:
        console = Console(color_system=None, width=10_000)  # as wide as it needs: cut-off numbers mislead
        with console.capture() as captured:
            console.print(self)
        return captured.get()


def table(rows: Iterable[Mapping[str, object]], *, title: str | None = None) -> Table:
    """Make a table of rows; a notebook shows it as HTML, `print` and rich as text.

    Parameters
    ----------
    rows : list of dict
        A column for every key, in the order in which keys first appear. Numbers stand to the right, with four digits;
        what is missing, None or NaN is a dash.
    title : str, optional

    Returns
    -------
    table : rich.table.Table

    Raises
    ------
    ValueError
        If there are no rows.

    Examples
    --------
    >>> print(table([{"ranks": 1, "time [s]": 2.0}, {"ranks": 2, "time [s]": 1.23456}]))
     ranks   time [s]
    ──────────────────
         1          2
         2      1.235
    """
    rows = [dict(row) for row in rows]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if not columns:
        raise ValueError("table: no rows, or only empty ones")
    made = _Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False)
    for key in columns:
        numeric = all(_is_number(row.get(key)) or row.get(key) is None for row in rows)
        made.add_column(_text(key), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_text(row.get(key)) for key in columns))
    return made


def _is_number(value) -> bool:
    return isinstance(value, Number) and not isinstance(value, (bool, np.bool_))


def _text(value):
    """One cell, as text that rich does not take for markup."""
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return Text("–")
    if isinstance(value, (bool, np.bool_)):
        return Text("✓ yes" if value else "✗ no")
    if isinstance(value, (float, np.floating)):
        return Text(_four_digits(float(value)))
    if isinstance(value, (int, np.integer)):
        return Text(f"{value:,}")
    return Text(str(value))


def _four_digits(value: float) -> str:
    """A number to four digits, without an exponent where it is of a common size."""
    if value == 0 or 1e-4 <= abs(value) < 1e4:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.3e}"
