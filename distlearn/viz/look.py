"""The look of every figure: colours that stay apart for colour-blind readers and in greyscale, matplotlib's settings.

The six colours are about 10 steps of CIE lightness apart, so each keeps its own grey; under simulated protanopia,
deuteranopia and tritanopia every pair stays 15 or more (CIE76) apart. They are ordered so that the first few differ
most. Line styles and markers change with the colours.

Functions import matplotlib, not this module: ranks import the labs' modules, whose plot functions use it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from cycler import cycler

from ..tables import time_unit

NAVY, VERMILION, SKY, PURPLE, AMBER, TEAL = "#132f5b", "#c24430", "#62b2e6", "#7529a1", "#f0c350", "#2e968b"

COLORS = (NAVY, VERMILION, SKY, PURPLE, AMBER, TEAL)  # Colours of curves, in order.

# Line styles that go with `COLORS`.
LINES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 1, 1, 1, 1, 1)), (0, (9, 3)))

MARKERS = ("o", "s", "^", "D", "v", "P")  # Markers that go with `COLORS`.

INK, MUTED, TRACK = "#20262e", "#5b6570", "#e6e9ed"

_SETTINGS = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.prop_cycle": cycler(color=COLORS) + cycler(linestyle=LINES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.unicode_minus": True,
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.wspace": 0.04,
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "figure.figsize": (7.2, 3.6),
    "figure.titlesize": 13,
    "figure.titleweight": "bold",
    "font.size": 11,
    "grid.color": TRACK,
    "grid.linewidth": 0.8,
    "image.cmap": "cividis",
    "legend.fontsize": 10,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "lines.markersize": 5.5,
    "savefig.dpi": 160,
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 10,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 10,
}

Plot = TypeVar("Plot", bound=Callable[..., Any])


def style() -> Any:
    """Use the look inside a `with` block; restore the previous settings after it.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> with style():
    ...     fig, ax = plt.subplots()
    >>> bool(ax.spines["top"].get_visible())
    False
    >>> plt.close(fig)
    """
    return settings(_SETTINGS)


@contextmanager
def settings(values: dict[str, Any]):
    """Use matplotlib's settings inside a `with` block, and restore these alone."""
    # not `rc_context`, which restores all: a notebook's backend switches "interactive" on with its first figure
    from matplotlib import rcParams

    before = {name: rcParams[name] for name in values}
    try:
        rcParams.update(values)
        yield
    finally:
        rcParams.update(before)


def use_style() -> None:
    """Use the look for all figures that this process makes from now on."""
    from matplotlib import rcParams

    rcParams.update(_SETTINGS)


def lightness(color: Any) -> float:
    """Return the lightness of a colour, from 0 (black) to 100 (white), as in greyscale.

    Parameters
    ----------
    color : colour
        Anything that matplotlib accepts as one.

    References
    ----------
    CIE 15:2018, Colorimetry, section 8.2.1: L* of CIE 1976, of an sRGB colour under D65.

    Examples
    --------
    >>> [round(lightness(c)) for c in ("black", "0.5", "white")]
    [0, 53, 100]
    """
    from matplotlib.colors import to_rgb

    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    y = float(linear @ (0.2126, 0.7152, 0.0722))
    return 116 * y ** (1 / 3) - 16 if y > 216 / 24389 else y * 24389 / 27


def styled(plot: Plot) -> Plot:
    """Give the look to the figure that a plot function makes, and do not change given axes."""

    @functools.wraps(plot)
    def wrapper(*args, **kwargs):
        if kwargs.get("ax") is not None or kwargs.get("axes") is not None:
            return plot(*args, **kwargs)
        with style():
            return plot(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


# Inches: JupyterLab on a screen of 1280 pixels, beside its file browser, shows 8.6; it shrinks wider ones.
WIDEST = 9.0


def new_axes(ncols: int = 1, figsize=None, **kwargs):
    """Make a figure that a notebook will show, no wider than `WIDEST`, and return its axes as a list."""
    from matplotlib import pyplot as plt  # here, not above: pyplot chooses a backend when it is imported

    if figsize is not None:
        figsize = (min(figsize[0], WIDEST), figsize[1])
    _, axes = plt.subplots(1, ncols, figsize=figsize, squeeze=False, **kwargs)
    return list(axes[0])


def rectangles(row, left, right, top, bottom) -> np.ndarray:
    """Return the corners of boxes in rows, as (n, 4, 2) array; `top` and `bottom` are counted from a row's middle."""
    corners = np.empty((len(left), 4, 2))
    corners[:, :2, 0], corners[:, 2:, 0] = left[:, None], right[:, None]
    corners[:, [0, 3], 1], corners[:, [1, 2], 1] = (row + top)[:, None], (row + bottom)[:, None]
    return corners


def write_title(where, finding: str, title: str | None = None) -> None:
    """Set the title of a figure; all plot functions use this."""
    text = finding if title is None else title
    if text:
        if hasattr(where, "set_title"):
            where.set_title(text)
        else:
            where.suptitle(text, x=0.01, ha="left")


# -- axes whose numbers fit their units: seconds as s, ms, µs or ns, counts as 10k, shares as per cent -----------------


def time_axis(axis, longest: float, label: str, zero: float = 0.0) -> None:
    """Label an axis of seconds in the unit that suits its range; the labels count from `zero`."""
    from matplotlib.ticker import MaxNLocator

    class FromZero(MaxNLocator):
        """Round numbers, counted from `zero`."""

        def tick_values(self, vmin, vmax):
            return super().tick_values(vmin - zero, vmax - zero) + zero

    unit, name = time_unit(longest)
    axis.set_major_locator(FromZero(6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(lambda seconds, _: f"{round((seconds - zero) / unit, 9):.10g}")
    axis.set_label_text(f"{label} [{name}]")


def count_axis(axis, label: str) -> None:
    """Label an axis that counts something: whole numbers, thousands as k."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(8, integer=True))
    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_label_text(label)


def share_axis(axis, label: str) -> None:
    """Label an axis that holds shares from 0 to 1 as per cent."""
    from matplotlib.ticker import PercentFormatter

    axis.set_major_formatter(PercentFormatter(xmax=1, symbol=""))
    axis.set_label_text(f"{label} [%]")


def rank_axis(ax, rows, label: str = "rank") -> None:
    """Label the rows of ranks, at the given positions, from the top."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    ax.set_ylim(max(rows) + 0.5, min(rows) - 0.5)
    few = len(rows) <= 16
    ax.yaxis.set_major_locator(FixedLocator(rows) if few else MaxNLocator(12, steps=[1, 2, 4, 5, 8, 10], integer=True))
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.set_ylabel(label)
