"""A simulated rank's clock: virtual time that a span advances by the cost of what it computes."""

from __future__ import annotations

import time
from contextlib import contextmanager

import numpy as np

from ..trace import Span
from .scheduler import Fibre
from .transport import Transport


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
        """Advance the clock, and let the other ranks catch up."""
        if not seconds >= 0:
            raise ValueError(f"rank {self._fibre.rank}: sleep({seconds!r}), expected 0 seconds or more")
        self._transport.scheduler.yield_until(self._fibre, self._fibre.now + seconds)

    def _seconds_run(self) -> float:
        """Wall time that this rank itself has really run."""
        return self._fibre.seconds_run + time.perf_counter() - self._fibre.since

    @contextmanager
    def span(self, name, *, lane="compute", flops=0, nbytes=0):
        """Run the block, then advance the clock by what the compute model says it took."""
        fibre, compute = self._fibre, self._compute
        start = fibre.now
        began = self._seconds_run() if compute.measures else 0.0
        yield
        seconds = compute.seconds(flops, nbytes, self._seconds_run() - began if compute.measures else 0.0)
        seconds *= self._factor
        if self._rng is not None:
            seconds *= float(np.exp(self._rng.normal(0.0, self._jitter)))
        fibre.now = self._end(fibre.now, seconds)
        self._transport.trace.spans.append(Span(fibre.rank, lane, name, start, fibre.now, flops, nbytes))

    def _end(self, start: float, seconds: float) -> float:
        """Return when work of this many seconds ends."""
        return start + seconds
