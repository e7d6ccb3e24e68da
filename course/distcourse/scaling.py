"""Where scaling stalls, and what helps: AlexNet and GoogLeNet on simulated nodes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from distlearn.comm import Network
from distlearn.nn.container import Sequential
from distlearn.nn.conv import Conv2d
from distlearn.nn.layer import Layer, walk
from distlearn.nn.linear import Linear
from distlearn.nn.models import model_named
from distlearn.nn.pool import GlobalAvgPool
from distlearn.nn.shape import Flatten
from distlearn.optim import Momentum, Optimizer
from distlearn.parallel.data.compression import FP16, Codec, Int8, OneBit, TopK
from distlearn.parallel.data.data_parallel import DataParallel
from distlearn.parallel.meta import MetaCodec, meta_batch, meta_loss, meta_model
from distlearn.parallel.planning import compute_of, model_and_sample, name_of
from distlearn.sim import SimWorld
from distlearn.tables import Table, Tabular, format_time, quantity, table, time_unit
from distlearn.trace import union
from distlearn.viz.look import AMBER, COLORS, INK, LINES, MARKERS, MUTED, NAVY, new_axes, styled, write_title

# -- Where scaling stalls: a training step on 1, 2, 4, ... 1,024 nodes, by simulation of the strategy's own code.


class Point(NamedTuple):
    """A training step on some nodes. Times are those of one iteration [s], on the node with the most images."""

    nodes: int
    batch: int
    """Images of all nodes together."""
    seconds: float
    """From the start of the step to the end of the slowest node's."""
    computing: float
    communicating: float
    """Time in which any collective or message of the node is in progress, overlapped with computing or not."""
    exposed: float
    """The part of it that is not overlapped."""

    @property
    def throughput(self) -> float:
        """Images per second."""
        return self.batch / self.seconds

    @property
    def share(self) -> float:
        """Share of the iteration in which nodes do nothing but wait for the network."""
        return 1 - self.computing / self.seconds


@dataclass(frozen=True, repr=False)
class Curve(Tabular):
    """How one model scales over one network."""

    model: str
    scaling: str
    batch: int
    network: str
    remedy: str
    alone: Point
    points: tuple[Point, ...]

    def efficiency(self, point: Point) -> float:
        """Return the throughput of `point`, divided by `point.nodes` times that of one node."""
        return point.throughput / (point.nodes * self.alone.throughput)

    def stall(self, least: float = 0.5) -> int | None:
        """Return the first number of nodes whose efficiency is below `least`, or None if there is none."""
        # Below 0.5 more than half of what the nodes could do is lost: two clusters of half the size, each with a
        # training run of its own, would do more.
        return next((p.nodes for p in self.points if self.efficiency(p) < least), None)

    @property
    def best(self) -> Point:
        """The most images per second; with strong scaling also the shortest iteration."""
        return max([self.alone, *self.points], key=lambda p: p.throughput)

    @property
    def label(self) -> str:
        """The curve's label in a legend."""
        words = f"{self.batch} images" + (" per node" if self.scaling == "weak" else " in all")
        return f"{words}, {self.remedy}" if self.remedy else words

    def finding(self) -> str:
        """Describe in a sentence where scaling stalls."""
        stall, last = self.stall(), self.points[-1]
        if stall is None:
            text = f"keeps {self.efficiency(last):.0%} of the speed up to {last.nodes:,} nodes"
        else:
            text = f"stalls at {stall:,} nodes"
        if self.best.nodes < last.nodes:
            text += f", is fastest on {self.best.nodes:,}"
        return f"{self.model} with {self.label} {text}"

    def table(self) -> Table:
        """Return the points as a table."""
        header = ["nodes", "batch", "iteration", "computing", "communicating", "exposed", "images/s", "efficiency"]
        rows = [
            [
                f"{p.nodes:,}",
                f"{p.batch:,}",
                *(format_time(t) for t in (p.seconds, p.computing, p.communicating, p.exposed)),
                quantity(p.throughput),
                f"{self.efficiency(p):.0%}",
            ]
            for p in self.points
        ]
        return Table(header, rows, f"{self.finding()} ({self.network})")


CAP_BYTES = 25 << 20
"""Size of a bucket: PyTorch's default."""


def simulate_step(
    model,
    nodes: int,
    network,
    *,
    batch: int,
    sample: tuple[int, ...] | None = None,
    compute="V100",
    codec: Codec | None = None,
    cap_bytes: float = CAP_BYTES,
    overlap: bool = True,
) -> Point:
    """Simulate one data-parallel training step."""
    model, sample = model_and_sample(model, sample)
    if not nodes <= batch:
        raise ValueError(f"simulate_step: a batch of {batch!r} for {nodes} nodes, expected an image for each, or more")
    world = SimWorld(nodes, Network.of(network), compute_of(compute), collectives="formula")
    outline, codec = meta_model(model), None if codec is None else MetaCodec(codec)

    def program(comm):
        own = meta_model(outline)
        optimizer = Optimizer(own.params, Momentum(), 0.01)
        strategy = DataParallel(comm, own, meta_loss, optimizer, cap_bytes=cap_bytes, overlap=overlap, compress=codec)
        part = meta_batch(batch, sample, comm.rank, comm.size)
        comm.barrier()
        began = comm.clock.now()
        strategy.step(part)
        return began, comm.clock.now()

    times = world.run(program)
    began, ended = times[0][0], max(end for _, end in times)
    step = world.trace.window(began)
    seconds, computing = ended - began, step.total(rank=0, lane="compute")
    return Point(nodes, batch, seconds, computing, _communicating(step, codec), seconds - computing)


def _communicating(step, codec) -> float:
    """Seconds in which rank 0 communicates; compressed gradients are sent as messages without spans."""
    busy = [(s.start, s.end) for s in step.select(rank=0, lane="comm")]
    if codec is not None:
        busy += [(m.sent, m.arrived) for m in step.messages if 0 in (m.source, m.dest)]
    return sum(end - start for start, end in union(busy))


def scaling_curve(
    model,
    network="ethernet-10g",
    *,
    nodes=None,
    batch: int = 32,
    scaling: str = "weak",
    name: str = "",
    remedy: str = "",
    progress=None,
    **options,
) -> Curve:
    """Simulate a training step on increasing numbers of nodes."""
    # 1 to 1,024 nodes take some 5 s for AlexNet and 20 s for GoogLeNet.
    if scaling not in ("weak", "strong"):
        raise ValueError(f"scaling_curve: scaling is {scaling!r}, expected 'weak' or 'strong'")
    if nodes is None:
        nodes = [2**i for i in range(11) if scaling == "weak" or 2**i <= batch]
    nodes = sorted(set(nodes))
    if not nodes or not hasattr(batch, "__index__"):
        raise ValueError(f"scaling_curve: nodes are {nodes}, batch {batch!r}, expected whole numbers, 1 or more")
    net, sample = model_and_sample(model, options.pop("sample", None))
    name = name or name_of(model)
    points, began = [], time.perf_counter()
    for i, n in enumerate([1, *nodes]):
        whole = batch * n if scaling == "weak" else batch
        points.append(simulate_step(net, n, network, batch=whole, sample=sample, **options))
        if progress is not None:
            progress(i + 1, len(nodes) + 1, model=name, nodes=n, elapsed=time.perf_counter() - began)
    label = network if isinstance(network, str) else repr(network)
    return Curve(name, scaling, batch, label, remedy, points[0], tuple(points[1:]))


def stall_study(
    models=("alexnet", "googlenet"),
    network="ethernet-10g",
    *,
    batches=(32, 128, 512),
    scaling: str = "weak",
    progress=None,
    **options,
) -> list[Curve]:
    """Simulate several models and batch sizes on increasing numbers of nodes, to find where scaling stalls.

    The two networks with three batch sizes on 1 to 1,024 nodes take a minute or two. `scaling.plot_stall` draws them.

    Parameters
    ----------
    scaling : {"weak", "strong"}
    progress : callable, optional
        `progress(step, total, **values)` after every curve; `distlearn.world.progress.Bar()` shows a bar.
    **options
        For `scaling_curve`.

    Returns
    -------
    curves : list of Curve
        One for each model and batch.
    """
    models = [models] if isinstance(models, (str, Layer)) else models
    pairs = [(model, batch) for model in models for batch in np.atleast_1d(batches).tolist()]
    curves = []
    for i, (model, batch) in enumerate(pairs):
        curves.append(scaling_curve(model, network, batch=batch, scaling=scaling, **options))
        if progress is not None:
            progress(i + 1, len(pairs), model=curves[-1].model, batch=batch, stall=curves[-1].stall())
    return curves


def stall_table(curves: list[Curve], *, title: str = "") -> Table:
    """Return the points of several curves as one table."""
    rows = [
        {
            "network": f"{curve.model}, {curve.remedy}" if curve.remedy else curve.model,
            "images": curve.batch,
            "nodes": point.nodes,
            "iteration [ms]": 1e3 * point.seconds,
            "communication [ms]": 1e3 * point.communicating,
            "efficiency [%]": 100 * curve.efficiency(point),
        }
        for curve in curves
        for point in curve.points
    ]
    return table(rows, title=title)


# -- What helps where communication is the bottleneck: fewer weights, fewer bits per gradient, fewer gradients.


CODECS = {"fp16": FP16(), "8 bit": Int8(), "1 bit": OneBit(), "top 1 %": TopK(0.01), "top 0.1 %": TopK(0.001)}


def without_dense(model: Sequential) -> Sequential | None:
    """Replace a model's dense layers by the mean over the image and one small dense layer, as GoogLeNet does."""
    layers = model.layers
    cut = next((i for i, layer in enumerate(layers) if isinstance(layer, Flatten)), None)
    if cut is None:
        return None
    channels = next(layer.W.data.shape[-1] for layer in reversed(layers[:cut]) if layer.params)
    dtype = layers[-1].W.data.dtype
    return Sequential(*layers[:cut], GlobalAvgPool(), Linear(channels, layers[-1].d_out, "zeros", dtype=dtype))


def remedies(
    model="alexnet", network="ethernet-10g", *, nodes=(4, 16, 64), batch: int = 128, progress=None, **options
) -> list[Curve]:
    """Simulate a training step with every remedy: none, no dense layers, and every codec.

    Some 15 s with the defaults; `scaling.plot_remedies` draws them. Every message of a codec is simulated, the work of
    encoding is not.

    Parameters
    ----------
    batch : int
        Images for each node.
    progress : callable, optional
        `progress(step, total, **values)` after every remedy; `distlearn.world.progress.Bar()` shows a bar.
    **options
        For `scaling_curve`.

    Returns
    -------
    curves : list of Curve
        The first one is without a remedy.
    """
    name = name_of(model)
    model, sample = model_and_sample(model, options.pop("sample", None))
    dense_free = without_dense(model)
    runs = {"": (model, None)} | ({} if dense_free is None else {"no dense layers": (dense_free, None)})
    runs |= {remedy: (model, codec) for remedy, codec in CODECS.items()}
    curves = []
    for i, (remedy, (net, codec)) in enumerate(runs.items()):
        fixed = {"nodes": nodes, "batch": batch, "sample": sample, "remedy": remedy, "codec": codec, "name": name}
        curves.append(scaling_curve(net, network, **fixed, **options))
        if progress is not None:
            progress(i + 1, len(runs), remedy=remedy or "none")
    return curves


# -- AlexNet and GoogLeNet compared: weights, iterations, arithmetic, dense layers; our numbers and a lecture's.


ITERATIONS = {"alexnet": (450_000, 256), "googlenet": (1_000_000, 32)}
"""Iterations of training on ImageNet and images in each, as in the lecture."""


class Facts(NamedTuple):
    """The quantities that decide how well a network's training scales over nodes."""

    weights_mb: float
    """Learned values in single precision [MB]: what every node sends in every iteration."""
    iterations: int
    batch: int
    exaflop: float
    """Operations of the whole training, forward and backward [1e18]."""
    dense_layers: int
    dense_weights: float
    """Millions."""

    @property
    def flop_per_byte(self) -> float:
        """Operations of an iteration for each byte of weights: the more, the better it scales."""
        return self.exaflop * 1e18 / self.iterations / (self.weights_mb * 1e6)


LECTURE = {
    "alexnet": Facts(250, 450_000, 256, 0.8, 3, 55),
    "googlenet": Facts(50, 1_000_000, 32, 1.1, 1, 1),
}
"""The numbers of the lecture's slide, rounded as given there."""


def facts(name: str) -> Facts:
    """Count what a network by name costs.

    Parameters
    ----------
    name : {"alexnet", "googlenet"}

    Examples
    --------
    >>> found = facts("alexnet")
    >>> round(found.weights_mb), found.dense_layers, round(found.dense_weights)
    (244, 3, 59)
    """
    if name not in ITERATIONS:
        raise ValueError(f"facts: name is {name!r}, expected one of {', '.join(ITERATIONS)}")
    known, (iterations, batch) = model_named(name), ITERATIONS[name]
    model, shape = known.build(seed=None), (batch, *known.sample)
    work = iterations * (model.flops(shape) + model.backward_flops(shape))
    dense = [layer for layer in walk(model) if isinstance(layer, Linear)]
    weights = sum(p.nbytes for p in model.params)
    return Facts(weights / 1e6, iterations, batch, work / 1e18, len(dense), sum(d.W.size for d in dense) / 1e6)


def without_towers() -> float:
    """Exaflop of training an AlexNet whose convolutions see all channels, instead of the half on their own GPU."""
    known, (iterations, batch) = model_named("alexnet"), ITERATIONS["alexnet"]
    model, shape = known.build(seed=None), (batch, *known.sample)
    extra = sum(
        (layer.groups - 1) * (layer.flops(s) + layer.backward_flops(s))
        for layer, s in model.parts(shape)
        if isinstance(layer, Conv2d)
    )
    return iterations * (model.flops(shape) + model.backward_flops(shape) + extra) / 1e18


def auxiliary_mb() -> float:
    """Weights of GoogLeNet's two auxiliary classifiers, which published files of weights contain [MB]."""
    # Each sees a map of 4 x 4 pixels: a convolution of 1 x 1 to 128 channels, dense layers of 1,024 and 1,000.
    heads = [
        [Conv2d(channels, 128, 1, "zeros"), Linear(4 * 4 * 128, 1024, "zeros"), Linear(1024, 1000, "zeros")]
        for channels in (512, 528)  # behind Inception 4a and 4d
    ]
    return sum(_nbytes(layer) for head in heads for layer in head) / 1e6


def _nbytes(layer: Layer) -> int:
    return sum(p.nbytes for p in layer.params)


def two_networks() -> Table:
    """Compare AlexNet and GoogLeNet as built here with the numbers of the lecture, and say why they differ."""
    ours = {name: facts(name) for name in LECTURE}
    rows = [
        ["weights [MB]", *_cells(ours, "weights_mb", "{:.0f}")],
        ["iterations", *_cells(ours, "iterations", "{:,}")],
        ["images in each", *_cells(ours, "batch", "{}")],
        ["training [exaflop]", *_cells(ours, "exaflop", "{:.2g}")],
        ["dense layers", *_cells(ours, "dense_layers", "{}")],
        ["dense weights [million]", *_cells(ours, "dense_weights", "{:.0f}")],
        ["flop per byte of weights", *_cells(ours, "flop_per_byte", "{:,.0f}")],
    ]
    header = ["", "AlexNet here", "lecture", "GoogLeNet here", "lecture"]
    return Table(header, rows, "; ".join(reasons(ours)))


def _cells(ours, field: str, form: str) -> list[str]:
    """Ours and the lecture's, for both networks."""
    return [form.format(getattr(f, field)) for name in ours for f in (ours[name], LECTURE[name])]


def reasons(ours: dict[str, Facts]) -> list[str]:
    """Explain, in numbers, what the lecture must have counted where it differs."""
    google = ours["googlenet"]
    images = LECTURE["googlenet"].exaflop / google.exaflop * google.batch
    return [
        f"AlexNet without its two towers takes {without_towers():.2g} exaflop",
        f"GoogLeNet with its two auxiliary classifiers has {google.weights_mb + auxiliary_mb():.0f} MB",
        f"{LECTURE['googlenet'].exaflop:g} exaflop are 1,000,000 iterations of {images:.0f} images: "
        f"four nodes of 32 are {4 * google.exaflop:.2g}",
    ]


# -- What a training step is made of: a bar for each way to train, split into computing, communication and waiting.


KINDS = {"computing": (NAVY, ""), "communication": ("#e7b3aa", "//"), "bubble": (AMBER, "..")}
"""Colour and hatch of each part, in order."""


def draw_steps(ax, rows, pale=(), *, below: bool = False) -> None:
    """Draw a bar for each row: its parts one after another, then a note."""
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


# -- Where scaling stalls, and what helps: iteration and communication by number of nodes, with and without remedies.


@styled
def plot_stall(curves, *, axes=None):
    """Draw the time of an iteration and of its communication against the number of nodes, a panel for each model.

    Where a line meets the shaded communication, computing no longer matters. A ring marks where scaling stalls: the
    first number of nodes at which the efficiency is below one half.

    Parameters
    ----------
    curves : list of Curve
        From `scaling.stall_study` or `scaling.scaling_curve`.
    axes : sequence of Axes, optional
        Where to draw, one for each model.
    """
    if not curves:
        raise ValueError("plot_stall: there are no curves")
    models = [list(group) for _, group in groupby(curves, key=lambda c: c.model)]
    made = axes is None
    if made:
        axes = new_axes(len(models), figsize=(5.6 * len(models), 4.0), sharey=True)
    axes = list(np.ravel(axes))
    if len(axes) != len(models):
        raise ValueError(f"plot_stall: {len(axes)} axes, expected one for each of the {len(models)} models")
    for ax, group in zip(axes, models, strict=True):
        for i, curve in enumerate(group):
            _draw(ax, curve, i)
        _shade(ax, group, _limits(curves)[0])
        _nodes_axis(ax, group)
        ax.set_ylim(_limits(curves))
        write_title(ax, _finding(group))
    axes[0].set_ylabel("time of an iteration")
    if made:
        axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    else:
        axes[0].legend()
    return axes


def _draw(ax, curve, i: int) -> None:
    """One curve, and a ring where it stalls."""
    nodes, times = [p.nodes for p in curve.points], [p.seconds for p in curve.points]
    look = {"color": COLORS[i % 6], "linestyle": LINES[i % 6], "marker": MARKERS[i % 6]}
    ax.plot(nodes, times, label=curve.label, zorder=3, **look)
    stall = curve.stall()
    if stall is not None:
        ring = {"marker": "o", "markersize": 14, "markerfacecolor": "none", "markeredgewidth": 1.6}
        ax.plot([stall], [times[nodes.index(stall)]], color=INK, linestyle="", zorder=4, **ring)


def _shade(ax, group, low: float) -> None:
    """The time of communication, which depends on the nodes alone."""
    points = max(group, key=lambda c: c.batch).points
    shown = [(p.nodes, p.communicating) for p in points if p.communicating > 0]
    ax.fill_between(*zip(*shown, strict=True), low, color=MUTED, alpha=0.18, linewidth=0, label="communication")


def _limits(curves) -> tuple[float, float]:
    """Limits of a logarithmic axis that shows every time of all curves."""
    times = [t for c in curves for p in c.points for t in (p.seconds, p.communicating) if t > 0]
    return min(times) / 1.5, max(times) * 1.6


def _nodes_axis(ax, group) -> None:
    """Numbers of nodes, doublings equally far apart; times as a logarithm."""
    nodes = sorted({p.nodes for c in group for p in c.points})
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_locator(FixedLocator(nodes, nbins=12))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda p, _: f"{p:.0f}"))
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda t, _: format_time(t)))
    ax.set_xlabel(f"nodes ({group[0].network})")


def _finding(group) -> str:
    """Where a model stalls, over its batch sizes."""
    model, stalls = group[0].model, [c.stall() for c in group]
    some = [s for s in stalls if s is not None]
    if not some:
        worst = min(c.efficiency(c.points[-1]) for c in group)
        return f"{model} keeps {worst:.0%} on {group[0].points[-1].nodes:,} nodes"
    where = f"{min(some):,}" if min(some) == max(some) else f"{min(some):,} to {max(some):,}"
    if len(some) == len(stalls):
        return f"{model} stalls at {where} nodes"
    free = [c.batch for c, s in zip(group, stalls, strict=True) if s is None]
    return f"{model} stalls at {where} nodes, not with {min(free):,} images"


@styled
def plot_remedies(curves, *, nodes: int | None = None, ax=None):
    """Draw an iteration with each remedy: bars of computing and of waiting for the network.

    Parameters
    ----------
    curves : list of Curve
        From `scaling.remedies`; the first one is what the others are compared with.
    nodes : int, optional
        At which number of nodes; the largest by default.
    """
    if len(curves) < 2:
        raise ValueError(f"plot_remedies: {len(curves)} curves, expected one without a remedy and others to compare")
    nodes = curves[0].points[-1].nodes if nodes is None else nodes
    points = {c.remedy or "as it is": next((p for p in c.points if p.nodes == nodes), None) for c in curves}
    if None in points.values():
        raise ValueError(f"plot_remedies: not every curve has a point of {nodes} nodes")
    made = ax is None
    ax = new_axes(1, figsize=(8.4, 0.42 * len(points) + 1.5))[0] if made else ax
    first = next(iter(points.values()))
    rows = {}
    for name, point in points.items():
        gain = "" if point is first else f"{_relative(first, point):.2g} times as fast"
        rows[name] = {"computing": point.computing, "communication": point.seconds - point.computing}, gain
    draw_steps(ax, rows, below=made)
    write_title(ax, _best_remedy(curves[0], points, nodes))
    return ax


def _relative(before, after) -> float:
    """How many times more images a second."""
    return after.throughput / before.throughput


def _best_remedy(curve, points, nodes: int) -> str:
    """What helps most, and what the least, in a line."""
    first, *rest = points
    gains = {name: _relative(points[first], points[name]) for name in rest}
    best, worst = max(gains, key=gains.get), min(gains, key=gains.get)
    where = f"{curve.model} on {nodes} nodes, {curve.network}"
    if max(gains.values()) < 1.05:
        return f"{where}: no remedy gains 5 %"
    return f"{where}: {best} is {gains[best]:.2g} times as fast, {worst} {gains[worst]:.2g}"
