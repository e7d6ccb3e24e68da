"""Where scaling stalls: a training step on 1, 2, 4, ... 1,024 nodes, by simulation of the strategy's own code.

A point of a curve is a step of `DataParallel` on so many simulated nodes of one card each: the time line is that of its
buckets and its overlap, on meta arrays (`distlearn.parallel.meta`). So AlexNet at its real size runs on
1,024 nodes in a few seconds, and on 4,096 in some ten.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...comm import Network
from ...nn.layer import Layer
from ...optim import Momentum, Optimizer
from ...parallel.data.codecs import Codec
from ...parallel.data.data_parallel import DataParallel
from ...parallel.meta import MetaCodec, meta_batch, meta_loss, meta_model
from ...parallel.planning.named import compute_of, model_and_sample, name_of
from ...sim import SimWorld
from ...tables import Table, Tabular, format_time, quantity, table
from ...trace import union


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
    """How one model scales over one network.

    Attributes
    ----------
    model : str
    scaling : {"weak", "strong"}
        Weak: a fixed batch for each node; strong: a fixed batch for all of them together.
    batch : int
        The fixed one of the two.
    network : str
    remedy : str
        What was changed to make it scale better; "" for nothing.
    alone : Point
        One node.
    points : tuple of Point
    """

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
        """Return the first number of nodes whose efficiency is below `least`, or None if there is none.

        Below 0.5 more than half of what the nodes could do is lost: two clusters of half the size, each with a training
        run of its own, would do more.
        """
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
    """Simulate one data-parallel training step.

    Parameters
    ----------
    model : str or Sequential
        A name such as "alexnet", or any model.
    nodes : int
        One rank each.
    network : Network or str
        Or the name of a preset. Collectives cost what its `all_reduce` returns: a ring, and rings of rings on a
        `HierarchicalNetwork`.
    batch : int
        Images of all nodes together, at least one each.
    sample : tuple of int, optional
        Shape of an image; known for models by name.
    compute : str, Card or ComputeModel
        A name is that of a GPU, modelled by its roofline.
    codec : Codec, optional
        What goes over the wire. Then every message is simulated: nodes (nodes - 1) for each bucket and phase, so that
        64 nodes take a second and 256 some 20. Encoding counts as free.
    cap_bytes : float
        Size of a bucket [bytes].
    overlap : bool
        Communicate during the backward pass.

    Returns
    -------
    point : Point

    Notes
    -----
    SGD with momentum. Spans take the longer of computing and moving by the roofline; communication does not slow
    computing down.
    """
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
    """Simulate a training step on increasing numbers of nodes.

    1 to 1,024 nodes take some 5 s for AlexNet and 20 s for GoogLeNet.

    Parameters
    ----------
    model : str or Sequential
    network : Network or str
    nodes : sequence of int, optional
        By default the powers of two up to 1,024; with strong scaling up to the batch.
    batch : int
        Images for each node (weak scaling), or for all together (strong).
    scaling : {"weak", "strong"}
    name, remedy : str
        Of the model, and of what `options` change, for the legend.
    progress : callable, optional
        `progress(step, total, **values)` after every point; `distlearn.world.progress.Bar()` shows a bar.
    **options
        For `simulate_step`: sample, compute, codec, cap_bytes, overlap.

    Returns
    -------
    curve : Curve

    Examples
    --------
    >>> curve = scaling_curve("lenet", "ethernet-1g", nodes=[2, 4, 8], batch=8)
    >>> [point.batch for point in curve.points], curve.stall()
    ([16, 32, 64], 2)
    """
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

    The two networks with three batch sizes on 1 to 1,024 nodes take a minute or two. `viz.plot_stall` draws them.

    Parameters
    ----------
    models : str, Sequential, or a sequence of these
    network : Network or str
    batches : int or sequence of int
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
