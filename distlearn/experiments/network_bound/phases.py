"""What limits a data-parallel step, by ranks and bandwidth: a formula as a phase diagram, simulated steps beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from ...comm import Network
from ...tables import Table, format_time, quantity
from ..scaling import simulate_step
from ..scaling.stall import CAP_BYTES

PARTS = ("computing", "bandwidth", "latency")
"""What a step can be limited by."""

HEADER = ["", "ranks", "bandwidth", *(f"{part}, time" for part in PARTS), "limited by", "formula"]


class PhasePoint(NamedTuple):
    """A step whose three parts were simulated or measured."""

    ranks: int
    bandwidth: float
    """[bytes/s]"""
    parts: tuple[float, float, float]
    """Seconds of computing, of moving bytes, of latencies."""
    kind: str
    """"simulated" or "measured"."""

    @property
    def limit(self) -> str:
        """The longest part."""
        return PARTS[int(np.argmax(self.parts))]


@dataclass(frozen=True, repr=False)
class PhaseDiagram:
    """Which part of a step is the longest, by ranks and bandwidth.

    Attributes
    ----------
    ranks : (n,) array
    bandwidths : (m,) array
        [bytes/s]
    limits : (m, n) array of int
        Index into `PARTS`.
    formula : callable
        `formula(ranks, bandwidth) -> parts`.
    points : tuple of PhasePoint
    """

    ranks: np.ndarray
    bandwidths: np.ndarray
    limits: np.ndarray
    formula: object
    points: tuple[PhasePoint, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What a step can be limited by, in the order of `limits`."""
        return PARTS

    def predicted(self, point: PhasePoint) -> str:
        """Return what limits a point by the formula."""
        return PARTS[int(np.argmax(self.formula(point.ranks, point.bandwidth)))]

    @property
    def agreeing(self) -> int:
        """How many points are limited by what the formula says."""
        return sum(self.predicted(p) == p.limit for p in self.points)

    def table(self, title: str = "") -> Table:
        """Return the points as a table."""
        rows = [
            [
                p.kind,
                f"{p.ranks}",
                f"{quantity(8 * p.bandwidth)}bit/s",
                *map(format_time, p.parts),
                p.limit,
                self.predicted(p),
            ]
            for p in self.points
        ]
        return Table(HEADER, rows, title or f"{self.agreeing} of {len(self.points)} points are limited as predicted")


def phase_diagram(formula, *, ranks=(1, 1024), bandwidths=(1e6, 1e11), points=(), size: int = 160) -> PhaseDiagram:
    """Evaluate a formula for the parts of a step on a grid of ranks and bandwidths.

    Parameters
    ----------
    formula : callable
        `formula(ranks, bandwidth)` returns the seconds of computing, of moving bytes and of latencies, one after the
        other.
    ranks : (int, int)
        Least and most.
    bandwidths : (float, float)
        Lowest and highest [bytes/s].
    points : sequence of PhasePoint
    size : int
        Of the grid, in both directions.

    Returns
    -------
    diagram : PhaseDiagram

    Raises
    ------
    ValueError
        If the formula does not return three finite numbers.
    """
    p = np.geomspace(*ranks, size)
    betas = np.geomspace(*bandwidths, size)
    limits = np.empty((size, size), int)
    for i, beta in enumerate(betas):
        for j, n in enumerate(p):
            parts = formula(float(n), float(beta))
            if np.shape(parts) != (3,) or not all(map(math.isfinite, parts)):
                raise ValueError(f"phase_diagram: the formula returned {parts!r}, expected three finite numbers")
            limits[i, j] = int(np.argmax(parts))
    return PhaseDiagram(p, betas, limits, formula, tuple(points))


def simulate_points(model, ranks, bandwidths, *, alpha: float, batch: int, **options) -> list[PhasePoint]:
    """Simulate the library's data-parallel step and take it apart, by leaving out one cost at a time.

    Parameters
    ----------
    model : str or Sequential
    ranks : sequence of int
    bandwidths : sequence of float
        [bytes/s]
    alpha : float
        Latency of a message [s].
    batch : int
        Images of all ranks together.
    **options
        Of `simulate_step`.

    Returns
    -------
    points : list of PhasePoint
        Computing is what the step's spans say. Latency is the time of communication on a network of infinite
        bandwidth; bandwidth that on a network without latency.
    """
    found = []
    for p in ranks:
        late = simulate_step(model, p, Network(alpha, 1e18), batch=batch, **options).communicating
        for beta in bandwidths:
            step = simulate_step(model, p, Network(0.0, beta), batch=batch, **options)
            found.append(PhasePoint(p, beta, (step.computing, step.communicating, late), "simulated"))
    return found


def cluster(model: str, nbytes: float, *, batch: int, alpha: float) -> dict:
    """Return what a formula for the parts of a step is told of a model on simulated GPUs, all but ranks and bandwidth.

    Parameters
    ----------
    model : str
    nbytes : float
        Of its gradients.
    batch : int
        Images of all ranks together.
    alpha : float
        Latency of a message [s].

    Returns
    -------
    told : dict
        seconds (of the whole batch on one rank), nbytes, alpha, buckets.
    """
    seconds = simulate_step(model, 1, Network(), batch=batch).seconds
    return {"seconds": seconds, "nbytes": nbytes, "alpha": alpha, "buckets": math.ceil(nbytes / CAP_BYTES)}


def cluster_diagrams(formula, clusters: dict, *, batch: int, ranks=(2, 8, 32, 128), gbits=(1, 10, 100)) -> dict:
    """Evaluate a formula for several models on a grid, with simulated points.

    Parameters
    ----------
    formula : callable
        `formula(ranks, bandwidth, **told)` returns the three parts of a step.
    clusters : dict of str to dict
        What `cluster` returned, by model.
    batch : int
    ranks, gbits : sequence
        Where steps are simulated; bandwidths in Gb/s.

    Returns
    -------
    diagrams : dict of str to PhaseDiagram
    """
    diagrams = {}
    for model, told in clusters.items():
        points = simulate_points(model, ranks, [g * 1e9 / 8 for g in gbits], alpha=told["alpha"], batch=batch)
        parts = partial(formula, **told)
        diagrams[model] = phase_diagram(parts, bandwidths=(1e6, 1e12), points=points)
    return diagrams


def point_table(diagrams: dict) -> Table:
    """Return the points of several diagrams, by name, as one table."""
    rows = [[name, *row] for name, diagram in diagrams.items() for row in diagram.table().rows]
    return Table(["network", "", *HEADER[1:]], rows, "The points of the map")
