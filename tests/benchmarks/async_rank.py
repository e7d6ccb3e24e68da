"""A rank of `bench_async`: a server and four workers, one of them four times as slow, with every policy in turn.

Steps are made of sleep for the most part (20 ms, and 80 ms on the slow one), so that five ranks fit on two cores and
other programs hardly matter. Simulated beside them: what the run itself calibrates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from distlearn.world import MPIWorld

from . import quick
from .real import ON_FOUR, digits_task, real_beside_simulated


def measure(world) -> dict | None:
    """Return updates, gradients and simulated / real gradients per second, by policy; None but on rank 0."""
    steps = 25 if quick() else 60
    pair = real_beside_simulated(world, digits_task(), steps=steps, policies=ON_FOUR)
    return pair and {
        name: {"updates": run.throughput, "gradients": len(run.applied) / run.seconds, "simulated": pair.ratios()[name]}
        for name, run in pair.real.items()
    }


if __name__ == "__main__":
    world = MPIWorld(progress=False, timeout=60)
    found = measure(world)
    if found is not None:
        Path(sys.argv[1]).write_text(json.dumps(found), encoding="utf-8")
