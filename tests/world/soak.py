"""A soak: one plan of a nemesis after another strikes training on real engines, and a table says what came of it.

    make soak                                     half an hour
    SOAK_MINUTES=3 SOAK_SEED=1000 make soak       other plans, for less time

Ends with exit code 1 if an invariant did not hold and no error named the fault (the plan is then shrunk and printed),
or if a process is left behind.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter

import psutil

from distlearn.tables import table
from distlearn.world import EngineWorld

from .faults import MENU, Partition, draw, problems, shrink, strike

MINUTES, SEED = float(os.environ.get("SOAK_MINUTES", 30)), int(os.environ.get("SOAK_SEED", 0))
SIZE = 4


def family() -> list[str]:
    """Command lines of the processes that this one has started, directly or not."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(process.cmdline())[:100])
    return [line for line in found if line]


def main() -> int:
    """Soak; return the exit code."""
    menu = [kind for kind in MENU if kind is not Partition]
    end, came, down, bad, seed = time.monotonic() + 60 * MINUTES, Counter(), [], 0, SEED
    with EngineWorld(SIZE, progress=False) as world:
        while time.monotonic() < end:
            plan = draw(seed, SIZE, menu=menu)
            outcome = strike(plan, world)
            restarts = [] if outcome.error else outcome.run.restarts
            down += [restart.seconds_down for restart in restarts]
            came[
                f"{len(restarts)} restarts" if outcome.error is None else "ended with an error that names the rank"
            ] += 1
            print(seed, plan, outcome.error or f"{len(restarts)} restarts", flush=True)
            if found := problems(outcome, simulated=False):
                bad += 1
                print("PROBLEMS:", *found, sep="\n  ")
                print("smallest plan:", shrink(plan, lambda plan: bool(problems(strike(plan, world), False))))
            seed += 1
    print(table([{"outcome": what, "plans": n} for what, n in sorted(came.items())]))
    if down:
        print(
            f"{len(down)} restarts, {sorted(down)[len(down) // 2]:.1f} s each (median), {max(down):.1f} s the longest"
        )
    psutil.wait_procs(psutil.Process().children(recursive=True), timeout=5)
    if left := family():
        print("left behind:", *left, sep="\n  ")
    print(f"{seed - SEED} plans, {bad} with problems")
    return 1 if bad or left else 0


if __name__ == "__main__":
    sys.exit(main())
