"""How arrays lie on ranks: which part of each a rank has, or which summand."""

from __future__ import annotations

from matplotlib.patches import Rectangle

from ..shares import shares
from .look import COLORS, INK, MUTED, new_axes, styled, write_title

HATCHES = ("", "///", "...", "xx", "\\\\\\", "++", "oo", "--")
LAYER = 0.12


@styled
def plot_placements(arrays, size: int, *, ax=None, title=None):
    """Draw matrices side by side, each with the part that every rank has of it.

    A `Shard` is cut into bands, one for each rank; a `Replicate` is one block that all ranks have; a `Partial` is a
    stack of blocks, one for each rank, which are to be summed.

    Parameters
    ----------
    arrays : dict of str to (rows, columns, placement)
        Lengths in any unit, by what is written above the matrix; signs such as "@" and "=" may stand between: give
        None instead of a triple.
    size : int
        Number of ranks.
    ax : Axes, optional
    title : str, optional

    Returns
    -------
    ax : Axes
    """
    if not arrays or not size >= 1:
        raise ValueError(f"plot_placements: {len(arrays)} arrays on {size} ranks, expected at least one of each")
    ax = new_axes(figsize=(8.4, 2.9))[0] if ax is None else ax
    at, tallest = 0.0, max(entry[0] for entry in arrays.values() if entry)
    for name, entry in arrays.items():
        if entry is None:
            ax.text(at + 0.2, 0, name.strip(), ha="center", va="center", fontsize=15, color=INK)
            at += 0.7
            continue
        rows, columns, placement = entry
        wide = _draw(ax, at, rows, columns, placement, size)
        ax.text(at + wide / 2, tallest / 2 + 0.35, name, ha="center", va="bottom", color=INK)
        ax.text(at + wide / 2, -tallest / 2 - 0.3, repr(placement), ha="center", va="top", color=MUTED, fontsize=9)
        at += wide + 0.5
    ax.set(xlim=(-0.3, at), ylim=(-tallest / 2 - 0.9, tallest / 2 + 0.9), aspect="equal")
    ax.axis("off")
    write_title(ax, f"{len(arrays)} arrays on {size} ranks", title)
    return ax


def _draw(ax, left, rows, columns, placement, size) -> float:
    """Draw one matrix, centred on the line y = 0; return its width."""
    axis, kind = getattr(placement, "axis", None), type(placement).__name__
    if kind == "Replicate":
        _block(ax, left, -rows / 2, columns, rows, "0.88", "", "all ranks")
        return columns
    if kind == "Partial":
        depth = LAYER * (size - 1)
        for rank in reversed(range(size)):
            told = "+ ... +" if rank == 0 else ""
            color, hatch = _look(rank)
            _block(ax, left + LAYER * rank, -rows / 2 + LAYER * rank - depth / 2, columns, rows, color, hatch, told)
        return columns + depth
    if axis not in (0, 1):
        raise ValueError(f"plot_placements: {placement!r}, expected Shard(0), Shard(1), Replicate() or Partial()")
    for rank, part in enumerate(shares(120, size)):
        a, b = part.start / 120, part.stop / 120
        told, (color, hatch) = str(rank), _look(rank)
        if axis == 0:
            _block(ax, left, rows / 2 - b * rows, columns, (b - a) * rows, color, hatch, told)
        else:
            _block(ax, left + a * columns, -rows / 2, (b - a) * columns, rows, color, hatch, told)
    return columns


def _look(rank: int) -> tuple[str, str]:
    return COLORS[rank % len(COLORS)], HATCHES[rank % len(HATCHES)]


def _block(ax, left, bottom, width, height, color, hatch, told) -> None:
    """Draw a rectangle with a word in it."""
    look = {"facecolor": color, "edgecolor": "white", "hatch": hatch}
    ax.add_patch(Rectangle((left, bottom), width, height, **look))
    ax.add_patch(Rectangle((left, bottom), width, height, fill=False, edgecolor=INK, linewidth=0.8))
    if told:
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2, "alpha": 0.9}
        ax.text(left + width / 2, bottom + height / 2, told, ha="center", va="center", fontsize=9, color=INK, bbox=box)
