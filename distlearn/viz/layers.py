"""The time of a training step, layer by layer, and of matrix products, by batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..tables import format_time, time_unit
from .look import COLORS, LINES, MARKERS, TRACK, new_axes, share_axis, styled, write_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@styled
def plot_layers(profiles: Any, *, share: bool = False, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw a stacked bar for every batch size: the time per sample, by layer.

    The five layers that take the most get a colour each, the rest share a grey.

    Parameters
    ----------
    profiles : list of Profile, or Profile
        The result of `nn.profile_sweep`.
    share : bool
        Shares of the step instead of time.
    """
    profiles = _listed(profiles)
    ax = new_axes(figsize=(7.2, 4.0))[0] if ax is None else ax
    shares = {t.name: sum(p.shares()[t.name] for p in profiles) for t in profiles[0].layers}
    names = sorted(shares, key=shares.get, reverse=True)[: len(COLORS) - 1]
    per_sample = np.array([[t.seconds / p.batch for t in p.layers] for p in profiles])
    if share:
        per_sample /= per_sample.sum(axis=1, keepdims=True)
    order = [t.name for t in profiles[0].layers]
    heights = {name: per_sample[:, order.index(name)] for name in names}
    heights["all others"] = per_sample.sum(axis=1) - sum(heights.values())
    unit, unit_name = (1.0, "") if share else time_unit(per_sample.sum(axis=1).max())
    base, x = np.zeros(len(profiles)), np.arange(len(profiles))
    for name, color in zip(heights, [*COLORS[: len(names)], TRACK], strict=True):
        ax.bar(x, heights[name] / unit, bottom=base, color=color, label=name, edgecolor="white", width=0.7)
        base = base + heights[name] / unit
    ax.set_xticks(x, [f"{p.batch:,}" for p in profiles])
    ax.set_xlabel("batch size")
    if share:
        share_axis(ax.yaxis, "share of the step")
    else:
        ax.set_ylabel(f"time per sample [{unit_name}]")
    ax.grid(visible=False, axis="x")
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0))
    write_title(ax, title)
    return ax


@styled
def plot_products(products: Any, *, card: Any = None, ax: Axes | None = None, title: str = "") -> Axes:
    """Draw the speed of a matrix product against the batch size: skinny ones wait for memory.

    Parameters
    ----------
    products : list of Product
        The result of `nn.skinny_products`.
    card : Card, optional
        Of the machine: its roofline is drawn as the upper bound.
    """
    ax = new_axes(figsize=(7.2, 4.0))[0] if ax is None else ax
    speed = [p.flop_rate / 1e9 for p in products]
    ax.plot([p.batch for p in products], speed, marker=MARKERS[0], color=COLORS[0], label="measured")
    if card is not None:
        bound = [card.attainable(p.intensity) / 1e9 for p in products]
        ax.plot([p.batch for p in products], bound, color=COLORS[1], linestyle=LINES[1], label="bound")
        ax.legend(loc="lower right")
    ax.set_xscale("log", base=2)
    ax.minorticks_off()
    ax.set_xticks([p.batch for p in products], [f"{p.batch:,}\n{format_time(p.seconds)}" for p in products])
    ax.set_xlabel("batch size, and the time of a product")
    ax.set_ylim(0, max([*speed, card.peak / 1e9 if card else 0]) * 1.15)
    ax.set_ylabel("speed [Gflop/s]")
    write_title(ax, title)
    return ax


def _listed(profiles):
    profiles = list(profiles) if isinstance(profiles, (list, tuple)) else [profiles]
    names = {tuple(t.name for t in p.layers) for p in profiles}
    if len(names) != 1:
        raise ValueError(f"plot_layers: expected profiles of one model, got {len(names)} different lists of layers")
    return profiles
