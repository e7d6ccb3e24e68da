"""The chart of the benchmarks: the library beside its peers."""

import re
import textwrap

from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from distlearn.viz.look import COLORS, INK, MUTED, VERMILION, new_axes, styled, write_title


@styled
def plot(records, *, ax=None, title=""):
    """Draw the time (or rate) of the library as a multiple of its peer's, one row for each measurement with a ratio."""
    # A dot is a ratio, on a logarithmic axis; the bar from 1 is its distance from the peer. A goal is a short line:
    # the dot must be on the side to which the arrow beside it points. A missed goal is red.
    rows = [r for r in records if r["ratio"] is not None]
    ax = new_axes(figsize=(8.4, 1.3 + 0.4 * len(rows)))[0] if ax is None else ax
    for i, row in enumerate(rows):
        colour = VERMILION if row["holds"] is False else COLORS[0]
        ax.plot(
            [1, row["ratio"]], [i, i], color=colour, linewidth=3, linestyle="-", solid_capstyle="butt", gid=f"bar {i}"
        )
        ax.plot([row["ratio"]], [i], color=colour, marker="o", linestyle="", gid=f"ratio {i}")
        goal = re.fullmatch(r"ratio *([<>])=? *([-+0-9.eE]+)", row["goal"] or "")
        if goal:
            mark = {"color": INK, "markersize": 9, "linestyle": "", "gid": f"goal {i}"}
            ax.plot([float(goal[2])], [i], marker=0 if goal[1] == "<" else 1, **mark)
            ax.plot([float(goal[2])], [i], marker="|", **mark)
    ax.axvline(1, color=MUTED, linewidth=1, zorder=0)
    ax.set_xscale("log")
    ax.set_yticks(range(len(rows)), [textwrap.fill(row["name"], 60) for row in rows], fontsize=9)
    ax.invert_yaxis()
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > 5 * low else MaxNLocator(6))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("ours / peer (the mark is the goal)")
    ax.grid(axis="y", visible=False)
    write_title(ax, title)
    return ax
