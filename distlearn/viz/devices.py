"""Which device is the fastest, by the size of the work."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.ticker import FuncFormatter, NullFormatter

from ..tables import format_time
from .look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title


@styled
def plot_devices(sizes, seconds, *, measured=None, xlabel="size", ax=None, title=None):
    """Draw the time of the same work on several devices, and from which size on the first one is no longer the fastest.

    Parameters
    ----------
    sizes : sequence of float
    seconds : dict of str to sequence of float
        Of every device, by size; the first one is compared with the others.
    measured : dict of str to (sizes, seconds), optional
        Measured points, by device.
    xlabel : str
        What the sizes are, with the unit.
    ax : Axes, optional
    title : str, optional
        By default the finding.

    Returns
    -------
    ax : Axes
    """
    if not isinstance(seconds, Mapping) or not seconds:
        raise ValueError(f"plot_devices: seconds is {seconds!r}, expected times of at least one device, by its name")
    if wrong := next((name for name in measured or {} if name not in seconds), None):
        raise ValueError(f"plot_devices: {wrong!r} was measured, expected one of {', '.join(seconds)}")
    ax = new_axes(figsize=(7.2, 4.2))[0] if ax is None else ax
    first, wins = next(iter(seconds)), {}
    for i, (name, values) in enumerate(seconds.items()):
        color, marker = COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]
        label = name
        if name != first:
            wins[name] = faster_from(list(sizes), seconds[first], values)
            label += f": faster from {wins[name]:,}" if wins[name] is not None else ": not faster"
        ax.plot(sizes, values, color=color, linestyle=LINES[i % len(LINES)], label=label)
        if name in (measured or {}):
            ax.plot(*measured[name], color=color, marker=marker, linestyle="", label=f"{name}, measured")
        if wins.get(name) is not None:
            at = list(sizes).index(wins[name])
            ax.plot([sizes[at]], [values[at]], marker=marker, color=color, markersize=6.5, linestyle="", zorder=4)
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="time")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: format_time(v)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(loc="upper left", labelcolor=INK)
    ax.tick_params(colors=MUTED)
    found = [w for w in wins.values() if w is not None]
    finding = f"{first} is the fastest at every size" if not found else f"{first} is the fastest below {min(found):,}"
    write_title(ax, finding, title)
    return ax


def faster_from(sizes, before, after):
    """Return the smallest size from which on `after` takes less time than `before` at every size, or None.

    Examples
    --------
    >>> faster_from([1, 2, 4, 8], [1, 2, 4, 8], [3, 3, 3, 3])
    4
    """
    slower = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if b >= a]
    start = slower[-1] + 1 if slower else 0
    return sizes[start] if start < len(sizes) else None
