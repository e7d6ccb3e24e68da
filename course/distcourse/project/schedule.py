"""Track 2: a pipeline schedule for uneven stages, as the CSV that PyTorch's pipelining reads; its time is simulated."""

from __future__ import annotations

import itertools
from pathlib import Path

from distlearn.parallel.pipeline.schedule import check_schedule, make_schedule, simulate

from .reading import csv_rows, read_bytes
from .track import Draws, Result, judged, refused

name, file, unit = "schedule", "schedule.csv", "ticks"
hidden = False
CELL = r"(0|[1-9][0-9]?)[FBIW](0|[1-9][0-9]?)"


def draw(draws: Draws) -> dict:
    """Draw stages of uneven cost, for twice as many stages as ranks."""
    ranks, stages = 4, 8
    forward = [draws(2, 9, "forward", i) for i in range(stages)]
    backward = [2 * (f + draws(-1, 2, "backward", i)) for i, f in enumerate(forward)]
    return {"ranks": ranks, "stages": stages, "microbatches": 8, "forward": forward, "backward": backward,
            "transfer": 1, "room": 11}  # fmt: skip


def floor(task: dict) -> int:
    """Return ticks that every schedule needs: the longest chain of actions, and the work shared by all ranks."""
    # A rank may hold any stages, so messages may cost nothing, and the weights' gradients, half of backward, can be
    # computed while others finish.
    f, m, p = task["forward"], task["microbatches"], task["ranks"]
    half = [b // 2 for b in task["backward"]]
    before = [0, *itertools.accumulate(f)]
    after = [0, *itertools.accumulate(half)]
    chain = before[-1] + after[-1] + half[0]
    alone = [before[i] + m * (f[i] + half[i]) + max(m * half[i], after[i] + half[0]) for i in range(len(f))]
    idle = sum(before[:p])  # the k-th rank to begin waits at least for the stages before it
    shared = -(-(m * (sum(f) + 2 * sum(half)) + idle) // p)
    return max(chain, shared, *alone)


def read(path: Path, task: dict):
    rows = csv_rows(read_bytes(path), path.name, CELL, "0F3", task["ranks"], 1000)
    return make_schedule(rows, task["ranks"], task["microbatches"])


def score(path: Path, task: dict, **_) -> Result:
    """Check and simulate a schedule."""
    try:
        made = read(path, task)
        report = check_schedule(made)
    except ValueError as error:
        return refused(error)
    if report.findings:
        return refused(report.findings[0], "wrong")
    if made.n_stages != task["stages"]:
        return refused(f"{made.n_stages} stages, expected {task['stages']}", "wrong")
    full = [f"rank {r} holds {n}" for r, n in enumerate(report.in_flight) if n > task["room"]]
    if full:
        return refused(f"{full[0]} activations, there is room for {task['room']}", "wrong")
    run = simulate(made, forward=task["forward"], backward=task["backward"], transfer=task["transfer"])
    return judged(round(run.makespan), floor(task), notes=[f"bubble {run.bubble:.1%}"])


def beat_this(task: dict) -> bytes:
    """Return the library's interleaved 1F1B."""
    made = make_schedule("interleaved", task["ranks"], task["microbatches"], n_virtual=task["stages"] // task["ranks"])
    return (made.csv + "\n").encode()
