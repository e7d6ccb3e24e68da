"""The numbers of a figure's curves, points and bars as tables, for readers who cannot see it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.ticker import FixedLocator, FuncFormatter, PercentFormatter

from distlearn.tables import LONG, Table, table
from distlearn.viz.files import figure_of

# Most rows of a table, spread evenly over a longer curve; half as many for each curve where they differ.
MOST = LONG


class _Series(NamedTuple):
    """Numbers of one curve or group of bars, as their axes write them."""

    name: str
    keys: list[Any]
    values: list[Any]


def plotted_tables(drawn: Any) -> list[Table]:
    """Return the numbers that a figure shows, a table for each of its axes that has any.

    Curves, points and bars that the legend could name are listed, and a curve without a name if it is the only one:
    other lines are guides. Numbers are in the axis' unit; images and time lines have none.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> fig, ax = plt.subplots()
    >>> _ = ax.plot([1, 2], [3.0, 4.5], label="measured"), ax.axhline(4), ax.set(xlabel="ranks", ylabel="time [s]")
    >>> print(*plotted_tables(fig))
    ranks  time [s]: measured
    ─────────────────────────
        1                   3
        2                 4.5
    >>> plt.close(fig)
    """
    found = []
    for ax in figure_of(drawn).axes:
        bars = [c for c in ax.containers if isinstance(c, BarContainer) and len(c)]
        across = bool(bars) and bars[0].orientation == "horizontal"
        axes = (ax.yaxis, ax.xaxis) if across else (ax.xaxis, ax.yaxis)
        series = _named([*_bars(bars, axes[0]), *(() if across else _curves(ax)), *(() if across else _points(ax))])
        series = [_Series(s.name, _written(s.keys, axes[0]), _written(s.values, axes[1])) for s in series]
        if series:
            labels = [axis.get_label_text().replace("\n", " ") for axis in axes]
            labels = [label or other for label, other in zip(labels, ("bar" if bars else "x", "value"), strict=True)]
            found.append(_table(series, *labels, ax.get_title("left") or ax.get_title()))
    return found


def _named(series):
    """Leave out guides: series without a name, unless there is nothing else and only one."""
    named = [s for s in series if s.name and not s.name.startswith("_")]
    alone = [_Series("", s.keys, s.values) for s in series] if len(series) == 1 else []
    return named or alone


def _curves(ax):
    """List the curves; horizontal and vertical lines across the axes have another transform."""
    names = {id(c.lines[0]): c.get_label() for c in ax.containers if isinstance(c, ErrorbarContainer)}
    for line in ax.get_lines():
        if line.get_transform() is ax.transData and len(line.get_xdata()):
            name = str(names.get(id(line), line.get_label()))
            yield _Series(name, *map(list, line.get_data(orig=False)))  # names as their places


def _points(ax):
    for points in ax.collections:
        if isinstance(points, PathCollection) and len(points.get_offsets()):
            x, y = np.ma.filled(points.get_offsets(), np.nan).T
            yield _Series(str(points.get_label()), list(x), list(y))


def _bars(bars, along):
    for group in bars:
        if group.orientation == "horizontal":
            places = [(bar.get_y() + bar.get_height() / 2, bar.get_width()) for bar in group]
        else:
            places = [(bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in group]
        ticks = along.get_majorticklocs()
        if isinstance(along.get_major_locator(), FixedLocator) and len(ticks):  # bars side by side share a tick
            places = [(ticks[np.abs(ticks - at).argmin()], size) for at, size in places]
        yield _Series(str(group.get_label()), *map(list, zip(*places, strict=True)))


def _written(values, axis) -> list[Any]:
    """Values as the axis' labels write them: names of ticks, per cent, a unit."""
    formatter = axis.get_major_formatter()
    if isinstance(formatter, PercentFormatter):
        return [_number(100 * v / formatter.xmax) for v in values]
    if isinstance(formatter, (FuncFormatter, StrCategoryFormatter)):
        return [_number(formatter(v, None) or v) if np.isfinite(v) else None for v in values]  # "": no tick is there
    return [_number(v) for v in values]


def _number(value):
    try:
        value = float(str(value).replace(",", ""))
    except ValueError:
        return str(value)
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def _table(series, along: str, what: str, title: str) -> Table:
    keys = list(dict.fromkeys(key for s in series for key in s.keys))
    longest = max(len(s.keys) for s in series)
    alike = len({len(s.keys) for s in series}) == 1 and len(keys) == longest
    again = any(len(set(s.keys)) < len(s.keys) for s in series)
    if again or longest == 1 < len(series) or not (alike or len(keys) <= min(MOST, 2 * longest)):
        part = [(s.name, pair) for s in series for pair in _some(list(zip(s.keys, s.values, strict=True)), MOST // 2)]
        return table([{"curve": name, along: key, what: value} for name, (key, value) in part], title=title)
    if not any(isinstance(key, str) for key in keys):
        keys.sort()
    rows = [{along: key} for key in keys]
    for s in series:
        found = dict(zip(s.keys, s.values, strict=True))
        head = f"{what}: {s.name}" if s.name and len(series) == 1 else s.name or what
        for row in rows:
            row[head] = found.get(row[along])
    parts = [title, what * (len(series) > 1), f"{MOST} of {len(rows)} rows" * (len(rows) > MOST)]
    return table(_some(rows, MOST), title="; ".join(filter(None, parts)))


def _some(rows, most):
    """At most `most` of the rows, evenly spread, first and last among them."""
    return [rows[i] for i in dict.fromkeys(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))]
