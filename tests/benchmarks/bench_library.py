"""What every user waits for: importing the library, a hand-over between simulated ranks, a ring of 256 of them."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

import numpy as np

from distlearn.comm import Network, ring_all_reduce
from distlearn.sim import SimWorld

from . import quick, record, seconds

RANKS = 256


def import_seconds() -> float:
    """`import distlearn` in a fresh process, the best of several: only the machine can make it slower."""
    code = "import time; t = time.perf_counter(); import distlearn; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(7)]
    return min(float(run.stdout) for run in runs)


def hand_over_seconds(ranks: int, rounds: int) -> float:
    """One hand-over: every rank sleeps a moment of virtual time, again and again, and so passes the baton on.

    The difference of a long run and a short one, so that starting the ranks does not count.
    """

    def nap(comm, times):
        for _ in range(times):
            comm.clock.sleep(1e-6)

    world = SimWorld(ranks)

    def once():
        short, long = (seconds(lambda n=n: world.run(nap, n)) for n in (1, 1 + rounds))
        return (long - short) / (ranks * rounds)

    return median(once() for _ in range(3 if quick() else 9))


def ring(comm):
    """One ring all-reduce on send and receive: 2 (p - 1) messages from each rank."""
    return float(ring_all_reduce(comm, np.full(1024, comm.rank, dtype=np.float64))[0])


def ring_seconds() -> float:
    """All 130,560 messages of a ring over 256 ranks."""
    world = SimWorld(RANKS, Network(alpha=1e-6, beta=1e10))
    times = []
    for _ in range(1 if quick() else 3):
        results = []
        times.append(seconds(lambda results=results: results.extend(world.run(ring))))
        assert results == [RANKS * (RANKS - 1) / 2] * RANKS
    return median(times)


def records():
    """Three numbers that are promised."""
    return [
        record("import distlearn, best of 7 fresh processes", "ms", 1e3 * import_seconds(), goal="ours < 300"),
        record("simulator: one hand-over, 64 ranks", "µs", 1e6 * hand_over_seconds(64, 500), goal="ours < 5"),
        record("simulator: one hand-over, 4,096 ranks", "µs", 1e6 * hand_over_seconds(4096, 10), goal="ours < 5"),
        record("simulator: ring all-reduce over 256 ranks, 130,560 messages", "s", ring_seconds(), goal="ours < 10"),
    ]
