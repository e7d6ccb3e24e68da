"""Where scaling stalls: AlexNet and GoogLeNet on simulated nodes."""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

from distlearn.comm import Network
from distlearn.nn.conv import Conv2d
from distlearn.nn.layer import walk
from distlearn.nn.linear import Linear
from distlearn.nn.models import model_named
from distlearn.optim import Momentum, Optimizer
from distlearn.parallel.data.data_parallel import DataParallel
from distlearn.parallel.meta import meta_batch, meta_loss, meta_model
from distlearn.parallel.planning.search import CAP_BYTES, compute_of, model_and_sample, name_of
from distlearn.sim import SimWorld
from distlearn.tables import Table, format_time
from distlearn.trace import length
from distlearn.viz.look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title

from .study import label_ticks

# -- A training step on 1, 2, 4, ... 1,024 nodes, by simulation of the strategy's own code.


class Point(NamedTuple):
    """A training step on some nodes. Times are those of one iteration [s], on the node with the most images."""

    nodes: int
    batch: int
    """Images of all nodes together."""
    seconds: float
    computing: float
    communicating: float
    """Time in which any collective or message of the node is in progress, overlapped with computing or not."""


class Curve(NamedTuple):
    """How one model scales over one network, with a fixed number of images for each node."""

    model: str
    batch: int
    network: str
    alone: Point
    points: tuple[Point, ...]

    def efficiency(self, point: Point) -> float:
        """Return the images per second and node of `point`, divided by those of one node alone."""
        return self.alone.seconds / point.seconds

    def stall(self) -> int | None:
        """Return the first number of nodes that keeps less than half of its speed, or None if there is none."""
        # two clusters of half the size, each with a training run of its own, would do more
        return next((p.nodes for p in self.points if self.efficiency(p) < 0.5), None)


def simulate_step(
    model,
    nodes: int,
    network,
    *,
    batch: int,
    sample: tuple[int, ...] | None = None,
    compute="V100",
) -> Point:
    """Simulate one data-parallel training step."""
    model, sample = model_and_sample(model, sample)
    world = SimWorld(nodes, Network.of(network), compute_of(compute), collectives="formula")
    outline = meta_model(model)

    def program(comm):
        own = meta_model(outline)
        optimizer = Optimizer(own.params, Momentum(), 0.01)
        strategy = DataParallel(comm, own, meta_loss, optimizer, cap_bytes=CAP_BYTES)
        part = meta_batch(batch, sample, comm.rank, comm.size)
        comm.barrier()
        began = comm.clock.now()
        strategy.step(part)
        return began, comm.clock.now()

    times = world.run(program)
    began, ended = times[0][0], max(end for _, end in times)
    step = world.trace.window(began)
    busy = [(s.start, s.end) for s in step.select(rank=0, lane="comm")]
    return Point(nodes, batch, ended - began, step.total(rank=0, lane="compute"), length(busy))


def scaling_curve(model, network="ethernet-10g", *, nodes, batch: int, **options) -> Curve:
    """Simulate a training step on increasing numbers of nodes, `batch` images on each."""
    # 1 to 1,024 nodes take some 5 s for AlexNet and 20 s for GoogLeNet.
    alone, *points = (simulate_step(model, n, network, batch=batch * n, **options) for n in (1, *nodes))
    return Curve(name_of(model), batch, network, alone, tuple(points))


# -- AlexNet and GoogLeNet compared: weights, iterations, arithmetic, dense layers; our numbers and a lecture's.


class Facts(NamedTuple):
    """The quantities that decide how well a network's training on ImageNet scales over nodes."""

    weights_mb: float
    """Learned values in single precision [MB]: what every node sends in every iteration."""
    iterations: int
    batch: int
    exaflop: float
    """Operations of the whole training, forward and backward [1e18]."""
    dense_layers: int
    dense_weights: float
    """Millions."""


LECTURE = {
    "alexnet": Facts(250, 450_000, 256, 0.8, 3, 55),
    "googlenet": Facts(50, 1_000_000, 32, 1.1, 1, 1),
}
"""The numbers of the lecture's slide, rounded as given there."""


def facts(name: str) -> Facts:
    """Count what the training of "alexnet" or "googlenet" costs, with the lecture's iterations and batch."""
    iterations, batch = LECTURE[name][1:3]
    known = model_named(name)
    model, shape = known.build(seed=None), (batch, *known.sample)
    work = iterations * (model.flops(shape) + model.backward_flops(shape))
    dense = [layer for layer in walk(model) if isinstance(layer, Linear)]
    weights = sum(p.nbytes for p in model.params)
    return Facts(weights / 1e6, iterations, batch, work / 1e18, len(dense), sum(d.W.size for d in dense) / 1e6)


def without_towers() -> float:
    """Exaflop of training an AlexNet whose convolutions see all channels, instead of the half on their own GPU."""
    known, (iterations, batch) = model_named("alexnet"), LECTURE["alexnet"][1:3]
    model, shape = known.build(seed=None), (batch, *known.sample)
    extra = sum(
        (layer.groups - 1) * (layer.flops(s) + layer.backward_flops(s))
        for layer, s in model.parts(shape)
        if isinstance(layer, Conv2d)
    )
    return facts("alexnet").exaflop + iterations * extra / 1e18


def auxiliary_mb() -> float:
    """Weights of GoogLeNet's two auxiliary classifiers, which published files of weights contain [MB]."""
    # Each sees a map of 4 x 4 pixels: a convolution of 1 x 1 to 128 channels, dense layers of 1,024 and 1,000.
    layers = [Linear(4 * 4 * 128, 1024, "zeros"), Linear(1024, 1000, "zeros")] * 2
    layers += [Conv2d(channels, 128, 1, "zeros") for channels in (512, 528)]  # behind Inception 4a and 4d
    return sum(p.nbytes for layer in layers for p in layer.params) / 1e6


def two_networks() -> Table:
    """Compare AlexNet and GoogLeNet as built here with the numbers of the lecture, and say why they differ."""
    ours = {name: facts(name) for name in LECTURE}
    both = [f for name in ours for f in (ours[name], LECTURE[name])]
    rows = [
        [label, *(form.format(getattr(f, field)) for f in both)]
        for label, field, form in (
            ("weights [MB]", "weights_mb", "{:.0f}"),
            ("iterations", "iterations", "{:,}"),
            ("images in each", "batch", "{}"),
            ("training [exaflop]", "exaflop", "{:.2g}"),
            ("dense layers", "dense_layers", "{}"),
            ("dense weights [million]", "dense_weights", "{:.0f}"),
        )
    ]
    work = [f"{f.exaflop * 1e12 / f.iterations / f.weights_mb:,.0f}" for f in both]
    google = ours["googlenet"]
    images = LECTURE["googlenet"].exaflop / google.exaflop * google.batch
    title = (
        f"The lecture's 0.8 exaflop: no groups ({without_towers():.2g}); 50 MB: with two auxiliary classifiers "
        f"({google.weights_mb + auxiliary_mb():.0f}); 1.1 exaflop: batches of {images:.0f} images"
    )
    header = ["", "AlexNet here", "lecture", "GoogLeNet here", "lecture"]
    return Table(header, [*rows, ["flop per byte of weights", *work]], title)


# -- The time of an iteration and of its communication, by number of nodes.


@styled
def plot_stall(curves, axes=None):
    """Draw the time of an iteration and of its communication against the number of nodes, a panel for each model.

    Where a line meets the shaded communication, computing no longer matters. A ring marks where scaling stalls: the
    first number of nodes at which the efficiency is below one half.

    Parameters
    ----------
    curves : list of Curve
        From `scaling.scaling_curve`.
    axes : sequence of Axes, optional
        Where to draw, one for each model.
    """
    from matplotlib.ticker import FixedLocator, LogLocator

    models = [list(group) for _, group in groupby(curves, key=lambda c: c.model)]
    axes = new_axes(len(models), figsize=(4.5 * len(models), 4.0), sharey=True) if axes is None else axes
    times = [t for c in curves for p in c.points for t in (p.seconds, p.communicating) if t > 0]
    low, high = min(times) / 1.5, max(times) * 1.6
    for ax, group in zip(axes, models, strict=True):
        nodes = [p.nodes for p in group[0].points]
        for i, curve in enumerate(group):
            seconds = [p.seconds for p in curve.points]
            look = {"color": COLORS[i % 6], "linestyle": LINES[i % 6], "marker": MARKERS[i % 6]}
            ax.plot(nodes, seconds, label=f"{curve.batch} images per node", zorder=3, **look)
            if (stall := curve.stall()) is not None:
                ring = {"marker": "o", "markersize": 14, "markerfacecolor": "none", "markeredgewidth": 1.6}
                ax.plot([stall], [seconds[nodes.index(stall)]], color=INK, linestyle="", zorder=4, **ring)
        shown = [(p.nodes, p.communicating) for p in group[-1].points if p.communicating > 0]
        ax.fill_between(*zip(*shown, strict=True), low, color=MUTED, alpha=0.18, linewidth=0, label="communication")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        label_ticks(ax.xaxis, FixedLocator(nodes, nbins=12), "{:.0f}".format)
        label_ticks(ax.yaxis, LogLocator(subs=(1.0, 3.0)), format_time)
        ax.set(xlabel=f"nodes ({group[0].network})", ylim=(low, high))
        kept = " or ".join(f"{100 * curve.efficiency(curve.points[-1]):.0f}" for curve in group)
        write_title(ax, f"{group[0].model} keeps {kept} % on {nodes[-1]:,} nodes")
    axes[0].set_ylabel("time of an iteration")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return axes
