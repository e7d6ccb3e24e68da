"""Memory of a training step over time, by owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps

from ..tables import quantity
from .look import (
    AMBER,
    INK,
    NAVY,
    PURPLE,
    SKY,
    TEAL,
    TRACK,
    VERMILION,
    count_axis,
    new_axes,
    styled,
    time_axis,
    write_title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LASTING = {"parameters": NAVY, "gradients": VERMILION, "optimizer": PURPLE, "batch": TRACK}
PASSING = {"gradients of activations": AMBER, "communication": TEAL, "other": SKY}
MOST = 7  # Layers that are named one by one.


@styled
def plot_memory(record: Any, rank: int = 0, *, measured: Any = None, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw a rank's memory by owner as stacked areas over the time of a step, lasting memory at the bottom.

    Parameters
    ----------
    record : MemoryRecord
        A prediction of `record_memory`.
    measured : MemoryRecord, optional
        Of the same step on data, on one rank: drawn as points.
    """
    ax = new_axes(figsize=(7.2, 4.0))[0] if ax is None else ax
    samples = record[rank]
    begin, end = samples[0].seconds, samples[-1].seconds
    x = [s.seconds - begin for s in samples] if end > begin else range(len(samples))
    layers = [owner for owner in dict.fromkeys(o for s in samples for o in s.owners) if owner not in LASTING | PASSING]
    shades = colormaps["YlGnBu"](np.linspace(0.1, 0.85, len(layers)) if len(layers) <= MOST else [0.4] * len(layers))
    colors = LASTING | dict(zip(layers, shades, strict=True)) | PASSING
    top = max(s.total for s in samples)
    number, unit = quantity(top, "B").split()
    scale = float(number) / top
    areas = {owner: [s.owners.get(owner, 0) * scale for s in samples] for owner in colors}
    areas = {owner: values for owner, values in areas.items() if any(values)}
    hatches = ["" if owner in LASTING else "xxx" if owner in PASSING else "//" for owner in areas]  # for a grey print
    style = {"colors": [colors[o] for o in areas], "hatch": hatches, "edgecolor": "white", "lw": 0.3, "step": "post"}
    drawn = ax.stackplot(x, areas.values(), **style)
    named = dict(zip(areas, drawn, strict=True))
    if len(layers) > MOST:  # one entry for all of them
        one = f"saved by {len(layers)} layers"
        named = {one if owner in layers else owner: area for owner, area in named.items()}
    if measured is not None:
        named["measured"] = ax.plot(x, [s.total * scale for s in measured[0]], "o", color=INK, ms=3.5)[0]
    if end > begin:
        time_axis(ax.xaxis, end - begin, "time")
    else:
        count_axis(ax.xaxis, "passes of layers, and updates")
    ax.set_ylabel(f"memory of rank {rank} [{unit}]")
    ax.legend(list(named.values())[::-1], list(named)[::-1], loc="upper left", bbox_to_anchor=(1, 1))
    write_title(ax, title)
    return ax
