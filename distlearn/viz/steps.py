"""What a training step is made of: a bar for each way to train, split into computing, communication and waiting."""

from __future__ import annotations

from matplotlib.ticker import FuncFormatter, MaxNLocator

from ..tables import format_time, time_unit
from .look import AMBER, MUTED, NAVY, new_axes, styled, write_title

KINDS = {"computing": (NAVY, ""), "communication": ("#e7b3aa", "//"), "bubble": (AMBER, "..")}
"""Colour and hatch of each part, in order."""


def draw_steps(ax, rows, pale=(), *, below: bool = False) -> None:
    """Draw a bar for each row: its parts one after another, then a note.

    Parameters
    ----------
    ax : Axes
    rows : dict of str to (dict of str to float, str)
        By label: seconds of each of `KINDS`, and the note.
    pale : set of str
        Labels of bars to draw pale.
    below : bool
        Put the legend below the axes, which are alone in their figure.
    """
    longest = max(sum(parts.values()) for parts, _ in rows.values())
    named = set()
    for row, (label, (parts, note)) in enumerate(rows.items()):
        left = 0.0
        for kind, (color, hatch) in KINDS.items():
            length = parts.get(kind, 0.0)
            if length <= 0:
                continue
            look = {"color": color, "hatch": hatch, "edgecolor": "white", "linewidth": 0}
            name = None if kind in named or label in pale else kind
            ax.barh(row, length, left=left, height=0.62, label=name, alpha=0.3 if label in pale else 1, **look)
            named |= set() if label in pale else {kind}
            left += length
        text = f"{format_time(left)}  {note}".strip()
        color = MUTED if label in pale else "black"
        ax.annotate(text, (left, row), (5, 0), textcoords="offset points", va="center", fontsize=9.5, color=color)
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    ax.set_xlim(0, 1.32 * longest)
    unit, name = time_unit(longest)
    ax.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t / unit:.10g}"))
    ax.set_xlabel(f"time of a training step [{name}]")
    ax.grid(axis="y", visible=False)
    if named and below:
        ax.figure.legend(loc="outside lower center", ncols=len(KINDS))
    elif named:
        ax.legend(loc="lower right")


@styled
def plot_plan(plan, *, most: int = 12, ax=None):
    """Draw what a step is made of in every layout of a plan: computing, communication, bubble.

    Parameters
    ----------
    plan : Plan
        From `parallel.plan`.
    most : int
        How many of the fastest layouts; data parallelism, which the title compares with, is added.
    ax : Axes, optional

    Returns
    -------
    ax : Axes
    """
    shown = plan.costs[:most] + [c for c in plan.costs[most:] if c is _plain(plan)]
    made = ax is None
    ax = new_axes(1, figsize=(8.4, 0.4 * len(shown) + 1.6))[0] if made else ax
    rows = {}
    for cost in shown:
        parts = {"computing": cost.computing, "communication": cost.communicating, "bubble": cost.bubble}
        rows[str(cost.layout)] = (
            parts,
            "recommended" if cost is plan.best else "" if plan.fits(cost) else "does not fit",
        )
    draw_steps(ax, rows, pale={str(c.layout) for c in shown if not plan.fits(c)}, below=made)
    write_title(ax, _finding(plan))
    return ax


def _plain(plan):
    """The cost of data parallelism alone, if it fits; None if it does not, or there is one rank."""
    return next((c for c in plan.costs if c.layout.kinds == ("data",) and plan.fits(c)), None)


def _finding(plan) -> str:
    best = plan.best
    if best is None:
        return f"{plan.name} fits in no layout of {plan.n} ranks"
    text = f"{plan.name} on {plan.n} ranks: {best.layout}"
    data = _plain(plan)
    if data is not None and data is not best:
        return f"{text} is {data.seconds / best.seconds:.2g} times as fast as data parallelism"
    second = next((c for c in plan.costs[1:] if plan.fits(c)), None)
    if second is not None:
        return f"{text} is {second.seconds / best.seconds:.2g} times as fast as {second.layout}"
    return text if len(plan.costs) == 1 else f"{text} is the only one that fits"
