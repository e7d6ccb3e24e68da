"""Virtual time: a rank's clock, and the compute models that say by how much a span of work advances it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..bounds import check_number
from ..trace import Span
from .scheduler import Fibre
from .transport import Transport

INFINITY = float("inf")


class SimClock:
    """Virtual time of one rank."""

    def __init__(self, transport: Transport, fibre: Fibre):
        world = transport.world
        self._transport, self._fibre, self._compute = transport, fibre, world.compute
        self._factor = world.slowdown.get(fibre.rank, 1.0)
        self._jitter = world.jitter
        self._rng = np.random.default_rng([world.seed, fibre.rank]) if world.jitter else None

    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self._fibre.now

    def sleep(self, seconds: float) -> None:
        if not 0 <= seconds < INFINITY:
            raise ValueError(f"rank {self._fibre.rank}: sleep({seconds!r}), expected 0 seconds or more, and finite")
        self._transport.scheduler.yield_until(self._fibre, self._fibre.now + seconds)

    def _seconds_run(self) -> float:
        return self._fibre.seconds_run + time.perf_counter() - self._fibre.since

    @contextmanager
    def span(self, name, *, lane="compute", flops=0, nbytes=0):
        """Run the block, then advance the clock by the compute model's seconds."""
        fibre, compute, failures = self._fibre, self._compute, self._fibre.failures
        if failures is not None:
            failures.apply(fibre)
        start = fibre.now
        began = self._seconds_run() if compute.measures else 0.0
        yield
        seconds = compute.seconds(flops, nbytes, self._seconds_run() - began if compute.measures else 0.0)
        if not (0 <= seconds < INFINITY and flops >= 0 <= nbytes):
            given = f"flops={flops!r}, nbytes={nbytes!r}"
            raise ValueError(
                f"rank {fibre.rank}: span {name!r} with {given} takes {seconds} s, expected amounts of 0 or more"
            )
        seconds *= self._factor
        if self._rng is not None:
            seconds *= float(np.exp(self._rng.normal(0.0, self._jitter)))
        fibre.now = fibre.now + seconds if failures is None else failures.finish(fibre.now, seconds)
        self._transport.trace.spans.append(Span(fibre.rank, lane, name, start, fibre.now, flops, nbytes))
        if failures is not None:
            failures.apply(fibre)


# -- compute models: how many seconds a span of work takes


class ComputeModel(Protocol):
    """Turns a span's work into seconds."""

    measures: bool
    """Whether `seconds` reads its `wall` argument."""

    def seconds(self, flops: float, nbytes: float, wall: float) -> float:
        """Seconds for `flops` operations on `nbytes` bytes that took `wall` seconds on this machine."""


@dataclass(frozen=True)
class Free:
    """Computing takes no time: for tests of results, and for counting messages alone."""

    measures = False

    def seconds(self, flops: float, nbytes: float, wall: float) -> float:
        return 0.0


@dataclass(frozen=True)
class Roofline:
    r"""A span takes max(flops / peak, nbytes / bandwidth) seconds: the same in every run.

    Parameters
    ----------
    peak : float
        Arithmetic speed [flop/s].
    bandwidth : float
        Memory bandwidth [bytes/s].

    References
    ----------
    S. Williams, A. Waterman, D. Patterson (2009), Roofline: an insightful visual performance model for multicore
    architectures, CACM 52(4).
    """

    peak: float
    bandwidth: float = float("inf")
    measures = False

    def __post_init__(self):
        check_number("Roofline", above=0, peak=self.peak, bandwidth=self.bandwidth)

    @classmethod
    def of(cls, card: Any) -> Roofline:
        """Make the roofline of a real graphics card, by name.

        Examples
        --------
        >>> Roofline.of("V100")
        Roofline(peak=15700000000000.0, bandwidth=900000000000.0)
        """
        from ..cuda.cards import card as find

        found = find(card)
        return cls(found.peak, found.bandwidth)

    def seconds(self, flops: float, nbytes: float, wall: float) -> float:
        return max(flops / self.peak, nbytes / self.bandwidth)


@dataclass(frozen=True)
class Measured:
    """A span takes as long as its block really took here, times `scale`.

    The measurement is undisturbed, as no other simulated rank runs meanwhile; it differs from run to run.
    """

    scale: float = 1.0
    measures = True

    def __post_init__(self):
        check_number("Measured", least=0, below=INFINITY, scale=self.scale)

    def seconds(self, flops: float, nbytes: float, wall: float) -> float:
        return wall * self.scale
