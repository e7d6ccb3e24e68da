"""The look of a lab's figures: one style, colours that stay apart in greyscale, a readable font."""

from __future__ import annotations

COLORS = ("#0b3c6f", "#b23a4c", "#3fa396", "#edae49", "#7b5ea7", "#8a8f98")
"""Line colours in order. The first four differ in lightness; line styles tell all six apart without colour."""

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))


def use() -> None:
    """Set matplotlib's defaults for this process."""
    import matplotlib as mpl
    from cycler import cycler

    mpl.rcParams.update(
        {
            "axes.prop_cycle": cycler(color=COLORS) + cycler(linestyle=LINES),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlelocation": "left",
            "axes.titlesize": 12,
            "axes.labelsize": 11,
            "axes.grid": True,
            "grid.color": "#e3e5e8",
            "grid.linewidth": 0.8,
            "axes.axisbelow": True,
            "figure.figsize": (7.2, 3.6),
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "font.size": 11,
            "image.cmap": "cividis",
            "legend.frameon": False,
            "lines.linewidth": 2,
            "xtick.labelsize": 10,
            "ytick.labelsize": 10,
        }
    )
