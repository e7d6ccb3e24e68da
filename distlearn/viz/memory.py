"""What a rank keeps in memory for the model, as bars: data parallelism and the stages of ZeRO."""

from __future__ import annotations

from .look import COLORS, INK, new_axes, styled, write_title

PARTS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer's state",
    "activations": "activations",
}
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))


@styled
def plot_memory(memories, *, ax=None, title=""):
    """Draw a stacked bar for everything that a rank keeps, and a tick where its peak was, if that is known."""
    # memories: by label, what `nn.memory_report` counted or `ZeRO.memory()` measured (without activations); the first
    # is what the others are compared with
    ax = new_axes(figsize=(7.2, 0.9 + 0.55 * len(memories)))[0] if ax is None else ax
    tops = [max(getattr(m, "peak", 0), m.total) for m in memories.values()]
    unit, name = byte_unit(max(tops))
    rows, left = range(len(memories)), [0.0] * len(memories)
    for (part, label), color in zip(PARTS.items(), COLORS, strict=False):
        if not any(hasattr(m, part) for m in memories.values()):
            continue
        widths = [getattr(m, part, 0) / unit for m in memories.values()]
        ax.barh(rows, widths, left=left, height=0.62, color=color, edgecolor="white", linewidth=0.5, label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    peaks = [(i, top / unit) for i, (m, top) in enumerate(zip(memories.values(), tops, strict=True)) if top > m.total]
    if peaks:
        ax.vlines([p for _, p in peaks], [r - 0.4 for r, _ in peaks], [r + 0.4 for r, _ in peaks], INK, label="peak")
    for row, (end, memory) in enumerate(zip(left, memories.values(), strict=True)):
        ax.annotate(
            f"{memory.total / unit:.3g}",
            (max(end, tops[row] / unit), row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
        )
    ax.set_yticks(rows, list(memories))
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.set_xlabel(f"memory of one rank [{name}]")
    ax.grid(visible=False, axis="y")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    write_title(ax, title)
    return ax


def byte_unit(nbytes: float) -> tuple[float, str]:
    """Return the decimal unit for so many bytes, as (bytes in it, name)."""
    return next(((unit, name) for unit, name in _UNITS if nbytes >= unit), _UNITS[-1])
