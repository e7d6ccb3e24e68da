"""Data parallelism on two real ranks, next to PyTorch's DistributedDataParallel and to ShallowSpeed's design.

MLP 784-256-128-10 and the small CNN, both with `nn.fuse`, float32, SGD, global batch 1,024, one BLAS thread per rank.
Efficiency is T(1) / (2 T(2)), the median over rounds that measure both in the same processes (`data_parallel_rank`).
"""

from __future__ import annotations

import json
from statistics import median

from distlearn.world.launching import count_cores, launch

from . import load_note, quick, record

MODELS = {"mlp": ("MLP, fused", 25, 20), "cnn": ("small CNN, fused", 12, 2)}
"""Name in the table, rounds, and steps of a round."""


def measure(model: str, rounds: int, steps: int) -> dict[str, list[float]]:
    """Run the two ranks; return seconds per step, by side, round by round."""
    command = ["python", "-m", "tests.benchmarks.data_parallel_rank", model, rounds, steps]
    done = launch(2, command, threads=1, timeout=600, capture=True)
    if done.returncode:
        raise RuntimeError(f"the ranks of the benchmark failed:\n{done.stderr}")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def efficiency(times: dict, side: str) -> float | None:
    """T(1) / (2 T(2)), the median over rounds."""
    if f"{side} serial" not in times:
        return None
    return median(a / 2 / b for a, b in zip(times[f"{side} serial"], times[f"{side} parallel"], strict=True))


def against(times: dict, peer: str, what: str, goal: str = "") -> dict:
    """Compare the parallel steps: the peer's time over ours, the median over rounds."""
    ours, theirs = times["ours parallel"], times.get(f"{peer} parallel")
    ratio = median(b / a for a, b in zip(ours, theirs, strict=True)) if theirs else None
    return record(what, "ms", median(ours) * 1e3, median(theirs) * 1e3 if theirs else None, ratio=ratio, goal=goal)


def records():
    """Efficiency of both, and the parallel step of one against the other."""
    rows = []
    for model, (name, rounds, steps) in MODELS.items():
        busy = load_note()
        times = measure(model, max(3, rounds // 5) if quick() else rounds, steps)
        note = busy or f"{count_cores()} cores"
        rows += [
            record(
                f"parallel efficiency of 2 ranks, {name}, batch 1,024 (peer: torch DDP)",
                "share",
                efficiency(times, "ours"),
                efficiency(times, "torch"),
                goal="ours >= 0.9",
                note=note,
            ),
            against(
                times,
                "torch",
                f"data-parallel step of 2 ranks, {name}, batch 1,024 (ratio: torch DDP's time / ours)",
                goal="ratio >= 1",
            ),
        ]
        if "shallowspeed parallel" in times:
            what = f"data-parallel step of 2 ranks, {name}, batch 1,024 (ratio: ShallowSpeed's design / ours)"
            rows.append(against(times, "shallowspeed", what))
    return rows
