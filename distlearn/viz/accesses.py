"""What a checked kernel did to memory: threads by element between two barriers, and the sectors that a warp moves."""

from __future__ import annotations

from collections import Counter, defaultdict

from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from .look import COLORS, MUTED, NAVY, SKY, VERMILION, new_axes, styled, write_title

WARP, SECTOR = 32, 32  # lanes, bytes
MOST_ROWS = 16  # accesses of a warp that one figure shows


@styled
def plot_accesses(report, array, interval=None, *, ax=None, title=None):
    """Draw threads against the elements of an array that they touch between two barriers; clashes are marked."""
    # Two threads clash where they touch one element without a barrier between, at least one writes, and the report
    # names a race of the array.
    # report: Of `RawKernel.check(..., record=(0,))`.
    # array: Name of a shared or global array.
    # interval: Number of barriers of the block before it; by default the interval with the most clashes, or the first
    # in which the array is touched.
    # title: By default the finding.
    # ValueError: If nothing was recorded of the array (in that interval).
    found = [a for a in recorded_accesses(report) if a.array == array]
    if interval is None:
        by_interval = Counter(
            {i: len(clashing_elements(report, found, i)) for i in sorted({a.interval for a in found})}
        )
        interval = by_interval.most_common(1)[0][0] if by_interval else 0
    shown = [a for a in found if a.interval == interval]
    if not shown:
        arrays = ", ".join(dict.fromkeys(a.array for a in report.recorded))
        raise ValueError(f"plot_accesses: no access to {array!r} was recorded in interval {interval}, only to {arrays}")
    clashes = clashing_elements(report, found, interval)
    ax = new_axes(figsize=(7.2, 4.2))[0] if ax is None else ax
    for kind, marker, colour, size in (("read", "o", SKY, 7), ("write", "s", NAVY, 5), ("atomic", "D", NAVY, 5)):
        points = {(e, a.thread) for a in shown if a.kind == kind for e in elements_of(a)}
        if points:
            ax.plot(
                *zip(*points, strict=True),
                marker=marker,
                color=colour,
                markersize=size,
                linestyle="",
                label=kind,
                zorder=3,
            )
    marked = {(e, a.thread) for a in shown for e in elements_of(a) if e in clashes}
    for element in clashes:
        ax.axvline(element, color=VERMILION, linewidth=0.6, alpha=0.4, zorder=1)
    if marked:
        ax.plot(*zip(*marked, strict=True), marker="o", color=VERMILION, markersize=12, linestyle="", fillstyle="none",
                label="clash", zorder=4)  # fmt: skip
    ax.set(xlabel=f"element of {array}", ylabel="thread of the block")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.invert_yaxis()
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    write_title(ax, _who_clashes(array, interval, clashes, shown), title)
    return ax


@styled
def plot_sectors(report, array, warp=0, *, ax=None, title=None):
    """Draw the 32-byte sectors of a global array that a warp's accesses move, each line of the source in its colour."""
    # A row is one access of the warp. A pale square is a sector that moves, its dark part the bytes that the lanes
    # asked for: the pale area is moved but not used.
    # report: Of `RawKernel.check(..., record=(0,))`.
    # array: Name of a global array.
    # warp: Number of the warp in the block.
    # title: By default the finding.
    # ValueError: If nothing was recorded of the array and warp.
    rows = requests_of_warp([a for a in recorded_accesses(report) if a.array == array and a.thread // WARP == warp])
    if not rows or rows[0][1][0].space != "global":
        arrays = ", ".join(dict.fromkeys(a.array for a in report.recorded if a.space == "global"))
        raise ValueError(f"plot_sectors: warp {warp} made no recorded access to global {array!r}, only to {arrays}")
    rows = rows[:MOST_ROWS]
    lines = list(dict.fromkeys(line for line, _ in rows))
    colours = {line: COLORS[i % len(COLORS)] for i, line in enumerate(lines)}
    ax = new_axes(figsize=(9, max(2.4, 1.2 + 0.32 * len(rows))))[0] if ax is None else ax
    counts = defaultdict(list)
    for y, (line, accesses) in enumerate(rows):
        sectors = {s for a in accesses for s in range(a.offset // SECTOR, (a.offset + a.size - 1) // SECTOR + 1)}
        counts[line].append(len(sectors))
        for s in sectors:
            ax.add_patch(Rectangle((s, y - 0.4), 1, 0.8, facecolor=colours[line], alpha=0.3, edgecolor="white", lw=0.5))
        for offset, size in {(a.offset, a.size) for a in accesses}:
            ax.add_patch(
                Rectangle((offset / SECTOR, y - 0.4), size / SECTOR, 0.8, facecolor=colours[line], linewidth=0)
            )
    every = [
        s for _, accesses in rows for a in accesses for s in (a.offset // SECTOR, (a.offset + a.size - 1) // SECTOR)
    ]
    ax.set_xlim(min(every) - 0.5, max(every) + 1.5)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [f"line {line}" for line, _ in rows])
    ax.set_xlabel(f"sector of {array} (32 bytes each)")
    ax.grid(axis="y", visible=False)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    labels = [Patch(color=colours[n], label=f"line {n}: {_mean(counts[n])} sectors an access") for n in lines]
    labels.append(Patch(color=MUTED, alpha=0.3, label="moved, not requested"))
    ax.legend(handles=labels, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    write_title(ax, _how_many(array, warp, counts, rows), title)
    return ax


def recorded_accesses(report):
    """Return what was recorded, or raise."""
    if not report.recorded:
        raise ValueError("nothing was recorded: call check(..., record=(0,)) with the block to draw")
    return report.recorded


def elements_of(access) -> range:
    """Return the elements that an access touches."""
    return range(access.offset // access.item, (access.offset + access.size - 1) // access.item + 1)


def clashing_elements(report, accesses, interval) -> set[int]:
    """Return the elements that several threads touch in an interval, one of them writing."""
    if not accesses or not any(
        e.kind == "race" and accesses[0].array in (e.array, *e.message.split()) for e in report.errors
    ):
        return set()
    threads, writers = defaultdict(set), defaultdict(set)
    for a in accesses:
        if a.interval == interval:
            for e in elements_of(a):
                threads[e].add(a.thread)
                if a.kind == "write":
                    writers[e].add(a.thread)
    return {e for e in writers if len(threads[e]) > 1}


def requests_of_warp(accesses) -> list[tuple[int, list]]:
    """Return (line, accesses) of each access of a warp: the n-th time that its lanes were at a line, in order."""
    seen, rows = Counter(), {}
    for order, a in enumerate(accesses):
        nth = seen[a.thread, a.line, a.kind] = seen[a.thread, a.line, a.kind] + 1
        rows.setdefault((a.interval, a.line, a.kind, nth), (order, []))[1].append(a)
    return [(key[1], found) for key, (_, found) in sorted(rows.items(), key=lambda r: (r[0][0], r[0][3], r[1][0]))]


def _mean(numbers) -> str:
    return f"{sum(numbers) / len(numbers):.3g}"


def _who_clashes(array, interval, clashes, shown) -> str:
    where = "before the first barrier" if interval == 0 else f"after barrier {interval}"
    if clashes:
        return f"{len(clashes)} elements of {array} are touched by several threads {where}"
    return f"{len({a.thread for a in shown})} threads touch {array} {where}, none another's element"


def _how_many(array, warp, counts, rows) -> str:
    moved = sum(sum(c) for c in counts.values()) * SECTOR
    asked = sum(len({b for a in found for b in range(a.offset, a.offset + a.size)}) for _, found in rows)
    return f"Warp {warp} moves {moved:,} bytes of {array} for {asked:,} that it requests"
