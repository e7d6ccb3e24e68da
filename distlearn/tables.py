"""Results as text: numbers with their units, and tables that read well in a terminal and in a notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping
from numbers import Number
from unicodedata import combining, east_asian_width

import numpy as np


def quantity(value: float, unit: str = "", base: int = 1000) -> str:
    """Return a number to three digits with a prefix: 61000000 as "61 M", with base 1024 as "58.1 Mi"."""
    prefixes = ["", "k", "M", "G", "T", "P"]
    step, size = 0, float(value)
    while abs(size) >= 999.5 and step < len(prefixes) - 1:
        size, step = size / base, step + 1
    prefix = prefixes[step].upper() + "i" if base == 1024 and step else prefixes[step]
    return f"{size:.3g} {prefix}{unit}".rstrip()


_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit in which a time is written, as (seconds in it, name)."""
    return next(((unit, name) for unit, name in _TIMES if abs(seconds) >= unit), _TIMES[0 if seconds == 0 else -1])


def format_time(seconds: float) -> str:
    """Return a time to three digits in s, ms, µs or ns."""
    unit, name = time_unit(seconds)
    return f"{seconds / unit:.3g} {name}"


def format_number(value: float) -> str:
    """Return a number to four digits, without an exponent where it is of a common size."""
    if value == 0 or 1e-4 <= abs(value) < 1e4:
        return f"{value:.4g}"
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.3e}"


# Colours of HTML text: each mixed with the page's own text colour, so that it reads on light and on dark pages.
CSS_GREEN, CSS_RED, CSS_AMBER, CSS_PURPLE, CSS_GREY = (
    f"color-mix(in srgb, {colour} 65%, currentcolor)"
    for colour in ("#1a7f37", "#cf222e", "#9a6700", "#8250df", "#57606a")
)


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: East Asian letters two, combining marks none."""
    return sum(0 if combining(c) else 1 + (east_asian_width(c) in "WF") for c in text)


LONG = 15  # A notebook folds tables of more rows: half a screen.


class Table:
    """Rows of text below a header; a notebook folds a long one."""

    def __init__(self, header, rows, title: str = "", right=None):
        self.header, self.rows, self.title = list(header), [list(row) for row in rows], title
        self.right = [i > 0 for i in range(len(self.header))] if right is None else list(right)

    def __str__(self):
        lines = [self.header, *self.rows]
        widths = [max(columns(line[i]) for line in lines) for i in range(len(self.header))]

        def padded(cell, width, right):
            room = " " * (width - columns(cell))
            return room + cell if right else cell + room

        head, *body = ("  ".join(map(padded, line, widths, self.right)).rstrip() for line in lines)
        rule = "─" * (sum(widths) + 2 * len(widths) - 2)
        return "\n".join([*([self.title] if self.title else []), head, rule, *body])

    __repr__ = __str__

    def _repr_html_(self):
        sides = ["right" if r else "left" for r in self.right]

        def row(cells, tag):
            made = (
                f'<{tag} style="text-align:{side}">{html.escape(cell)}</{tag}>'
                for cell, side in zip(cells, sides, strict=True)
            )
            return f"<tr>{''.join(made)}</tr>"

        long, title = len(self.rows) > LONG, html.escape(self.title)
        caption = f"<caption>{title}</caption>" if title and not long else ""
        body = "".join(row(cells, "td") for cells in self.rows)
        made = f"<table>{caption}<thead>{row(self.header, 'th')}</thead><tbody>{body}</tbody></table>"
        summary = f"{title or 'Table'} ({len(self.rows)} rows)"
        return f"<details><summary>{summary}</summary>{made}</details>" if long else made


class Tabular:
    """Base of results that `print` and a notebook show as their `table()`."""

    def __repr__(self):
        return str(self.table())

    def _repr_html_(self):
        return self.table()._repr_html_()


def table(rows: Iterable[Mapping[str, object]], *, title: str = "") -> Table:
    """Make a table of records; a notebook shows it as HTML, `print` as text.

    Parameters
    ----------
    rows : list of dict
        A column for every key, in the order in which keys first appear. Numbers are aligned to the right, with four
        digits; missing values, None and NaN are dashes.

    Raises
    ------
    ValueError
        If there are no rows.

    Examples
    --------
    >>> print(table([{"ranks": 1, "time [s]": 2.0}, {"ranks": 2, "time [s]": 1.23456}]))
    ranks  time [s]
    ───────────────
        1         2
        2     1.235
    """
    rows = [dict(row) for row in rows]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if not columns:
        raise ValueError("table: there are no rows, or only empty ones")
    right = [all(row.get(key) is None or _is_number(row[key]) for row in rows) for key in columns]
    return Table(
        [str(key) for key in columns], [[_cell(row.get(key)) for key in columns] for row in rows], title, right
    )


def _is_number(value) -> bool:
    return isinstance(value, Number) and not isinstance(value, (bool, np.bool_))


def _cell(value) -> str:
    if value is None or (isinstance(value, (float, np.floating)) and math.isnan(value)):
        return "–"
    if isinstance(value, (bool, np.bool_)):
        return "✓ yes" if value else "✗ no"
    if isinstance(value, (float, np.floating)):
        return format_number(float(value))
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return str(value)
