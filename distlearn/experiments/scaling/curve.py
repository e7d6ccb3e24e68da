"""How a model scales: training steps on more and more nodes, and where that stalls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...tables import Table, Tabular, format_time, quantity


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
