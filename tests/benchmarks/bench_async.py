"""Asynchrony: what not waiting brings on real ranks with a straggler, and how fast staleness is simulated.

Four workers and a server, one worker four times as slow (`async_rank`). BSP's update is the mean of four gradients,
ASP's and SSP's of one; so both are given: updates and gradients per second, each against BSP's.
"""

from __future__ import annotations

import time

from distcourse.events import simulate

from distlearn.parallel.asynchronous.param_server import Speeds, asp, backup, bsp, ssp

from . import load_note, quick, record, seconds, times_on_ranks
from .real import digits_task, run_policy

WORKERS = 10_000


def on_ranks(note: str) -> list[dict]:
    """Compare policies on real ranks."""
    found = times_on_ranks("async_rank", 5)
    bulk, rows = found["BSP"], []
    for name, goal in (("SSP(1)", ""), ("SSP(4)", ""), ("ASP", "ratio >= 2"), ("backup(0.75)", "")):
        for what in ("updates", "gradients"):
            title = f"{name}, {what} a second, 4 workers, one 4 times as slow (peer: BSP)"
            rows.append(record(title, "1/s", found[name][what], bulk[what], goal=goal))
    between = (
        bulk["updates"] < found["SSP(1)"]["updates"] <= 1.05 * found["SSP(4)"]["updates"] < found["ASP"]["updates"]
    )
    rows.append(record("SSP lies between BSP and ASP (1: yes)", "1", float(between), goal="ours >= 1"))
    worst = max(abs(each["simulated"] - 1) for each in found.values())
    rows.append(record("largest error of the calibrated simulation, gradients a second", "share", worst, note=note))
    return rows


def events_per_second(policy, law: str, steps: int) -> float:
    """Return events per second of the fastest of some simulations with 10,000 workers.

    In seconds that the one core really worked, so that other programs do not count.
    """
    speeds, best = Speeds(WORKERS, law=law, seed=1), float("inf")
    for _ in range(1 if quick() else 3):
        began = time.process_time()
        simulate(policy, speeds, steps)
        best = min(best, time.process_time() - began)
    return WORKERS * steps / best


def records() -> list[dict]:
    """Measure on this machine."""
    rows = on_ranks(load_note())
    for policy in (asp(), ssp(4), bsp(), backup(0.9)):
        rate = events_per_second(policy, "lognormal", 5)
        name = f"event simulation, {policy}, 10,000 workers"
        rows.append(record(name, "events/core s", rate))
    task, speeds = digits_task(batch=16), Speeds(64, slow={0: 4.0})
    took = min(seconds(lambda: run_policy(task, asp(), speeds, steps=15)) for _ in range(3))
    rows.append(record("a seed of 64 simulated workers, 960 real gradients", "s", took, goal="ours < 10"))
    return rows
