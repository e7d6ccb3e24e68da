"""How a real rank waits: it polls, so that it can be interrupted, can time out, and leaves its core to others.

A rank that waits *inside* MPI keeps its core busy, halves the speed of a computing neighbour when ranks share cores,
and ignores Ctrl-C. Polling adds next to no latency; it has three phases:

1. poll without a pause for a millisecond: most small messages have arrived by then; but if there are more ranks on
   this machine than cores, only for 20 microseconds, because the awaited rank may need this core;
2. then yield the core between two polls (`sched_yield`), for as long as the transfer should take;
3. then sleep between two polls for a tenth of the time waited so far, at most a millisecond, so that sleeping never
   makes a wait more than about a tenth longer.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path

from ..trace import Span, WallClock

SPIN_SECONDS = 1e-3
CROWDED_SPIN_SECONDS = 20e-6
BRISK_SECONDS = 500e-6  # after spinning
SLOW_BYTES_PER_SECOND = 4e8  # slower than any memory: while bytes may still be moving, a rank does not nap
LONGEST_NAP = 1e-3
# Fraction of a span's time that is spent after it on making progress: a single poll moves one fragment of a message, so
# over a network slower than memory most of the message would be left to the end.
PROGRESS_SHARE = 0.03

_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))


def count_cores() -> int:
    """Return how many cores this process may use: of the machine, of its affinity mask, of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):  # no container, or no limit ("max")
        pass
    return cores


def poll(
    done, nbytes: float = 0, timeout: float | None = None, spin: float = CROWDED_SPIN_SECONDS, on_nap=None
) -> bool:
    """Call `done()` until it returns True; return False if that takes longer than `timeout` seconds."""
    if done():
        return True
    start = time.perf_counter()
    brisk = spin + BRISK_SECONDS + nbytes / SLOW_BYTES_PER_SECOND
    while not done():
        waited = time.perf_counter() - start
        if timeout is not None and waited > timeout:
            return False
        if waited > brisk:
            if on_nap is not None:
                on_nap(waited)
            time.sleep(min(LONGEST_NAP, waited / 10))
        elif waited > spin:
            _give_way()
    return True


class RankClock(WallClock):
    """The wall clock of a real rank; all ranks of one machine can share the origin of time."""

    make_progress = None

    def start_at(self, zero: float) -> None:
        """Set the origin of time to the moment at which `time.perf_counter()` was `zero`."""
        self._zero = zero

    @contextmanager
    def span(self, name, *, lane="compute", flops=0, nbytes=0):
        """Record the block as one span."""
        start = self.now()
        try:
            yield
        finally:
            end = self.now()
            self.trace.spans.append(Span(self.rank, lane, name, start, end, flops, nbytes))
            if self.make_progress is not None:
                self.make_progress(PROGRESS_SHARE * (end - start))
