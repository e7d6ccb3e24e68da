"""A film of one block of a checked kernel: which threads touch which elements, from barrier to barrier."""

from __future__ import annotations

from collections import defaultdict
from textwrap import fill

from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from distlearn.viz.look import AMBER, INK, MUTED, NAVY, SKY, TEAL, VERMILION, WIDEST, style

SHAPES = {"read": ("o", SKY), "write": ("s", NAVY), "atomic": ("D", TEAL)}
LINE_HEIGHT = 0.19  # inches of a line of source


def kernel_film(report):
    """Draw what a block of a kernel does to memory between each two barriers, a figure for each interval.

    Above, threads against elements of every array, clashes in red; below, the source: lines that touch memory are
    marked.

    Parameters
    ----------
    report : Report
        Of `RawKernel.check(..., record=(0,))`.

    Returns
    -------
    frames : list of (Figure, str)
        Figures in the order of time, and what each shows in a sentence. `lab.film` plays them.
    """
    accesses = report.recorded
    if not accesses:
        raise ValueError("nothing was recorded: call check(..., record=(0,)) with the block to draw")
    arrays = list(dict.fromkeys(a.array for a in sorted(accesses, key=lambda a: a.space != "global")))
    found = {name: [a for a in accesses if a.array == name] for name in arrays}
    ends = {name: max(e for a in found[name] for e in elements_of(a)) for name in arrays}
    threads = max(a.thread for a in accesses) + 1
    last = max(a.interval for a in accesses)
    frames = []
    with style():
        for i in range(last + 1):
            clashes = {name: clashing_elements(report, found[name], i) for name in arrays}
            fig, panels, text = _page(report, arrays)
            for ax, name in zip(panels, arrays, strict=True):
                _draw_threads(ax, [a for a in found[name] if a.interval == i], clashes[name])
                ax.set(xlabel=f"element of {name}", xlim=(-1, ends[name] + 1), ylim=(threads, -1))
            panels[0].set_ylabel("thread of the block")
            here = [a for a in accesses if a.interval == i]
            clashing = {a.line for a in here if clashes[a.array].intersection(elements_of(a))}
            _draw_source(text, report, {a.line for a in here}, clashing)
            caption = _caption(i, last, clashes)
            fig.suptitle(fill(caption, 54), x=0.01, ha="left")  # beside the legend
            fig.legend(handles=_key(), loc="upper right", ncols=len(SHAPES) + 1, handletextpad=0, columnspacing=1)
            frames.append((fig, caption))
    return frames


def _page(report, arrays):
    lines = len(_shown_source(report))
    height = 2.6 + LINE_HEIGHT * lines
    fig = plt.figure(figsize=(WIDEST, height))
    grid = fig.add_gridspec(2, len(arrays), height_ratios=(2.6, LINE_HEIGHT * lines))
    first = fig.add_subplot(grid[0, 0])
    panels = [first] + [fig.add_subplot(grid[0, k], sharey=first) for k in range(1, len(arrays))]
    for ax in panels[1:]:
        ax.tick_params(labelleft=False)
    return fig, panels, fig.add_subplot(grid[1, :])


def _key() -> list[Line2D]:
    shapes = {**SHAPES, "clash": ("X", VERMILION)}
    return [Line2D([], [], marker=m, color=c, linestyle="", label=kind) for kind, (m, c) in shapes.items()]


def _draw_threads(ax, accesses, clashes) -> None:
    for kind, (marker, colour) in SHAPES.items():
        points = {(e, a.thread) for a in accesses if a.kind == kind for e in elements_of(a)}
        if points:
            ax.plot(*zip(*points, strict=True), marker=marker, color=colour, markersize=2.5, linestyle="")
    marked = {(e, a.thread) for a in accesses for e in elements_of(a) if e in clashes}
    if marked:
        ax.plot(*zip(*marked, strict=True), marker="X", color=VERMILION, markersize=5, linestyle="")
    ax.xaxis.set_major_locator(plt.MaxNLocator(4, integer=True))
    ax.yaxis.set_major_locator(plt.MaxNLocator(6, integer=True))


def _shown_source(report) -> list[tuple[int, str]]:
    numbered = list(enumerate(report.source.splitlines(), 1))
    first = next((k for k, (_, text) in enumerate(numbered) if text.strip()), 0)
    return numbered[first:]


def _draw_source(ax, report, running, clashing) -> None:
    lines = _shown_source(report)
    ax.set(xlim=(0, 1), ylim=(len(lines) - 0.5, -0.5))
    ax.set_axis_off()
    for y, (number, text) in enumerate(lines):
        if number in running:
            ax.axhspan(y - 0.5, y + 0.5, color=AMBER, alpha=0.4, linewidth=0)
        look = {"color": VERMILION, "fontweight": "bold"} if number in clashing else {"color": INK}
        ax.text(0.045, y, text, va="center", fontsize=8.5, family="monospace", **look)
        mark = f"▸ {number}" if number in running else str(number)
        ax.text(0.035, y, mark, ha="right", va="center", fontsize=8.5, family="monospace", color=MUTED)


def _caption(interval, last, clashes) -> str:
    where = "before the first barrier" if interval == 0 else f"after barrier {interval}"
    where += f" of {last}" if interval else ""
    bad = [f"{len(elements)} elements of {name}" for name, elements in clashes.items() if elements]
    what = f"threads clash on {', '.join(bad)}" if bad else "no two threads clash"
    return f"{where.capitalize()}: {what}"


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
