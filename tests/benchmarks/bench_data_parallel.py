"""Data parallelism on two real ranks: efficiency against one rank, next to PyTorch's DistributedDataParallel.

MLP 784-256-128-10, float32, SGD, global batch 1,024, one BLAS thread per rank. Efficiency is T(1) / (2 T(2)), the
median over rounds that measure both in the same processes (`data_parallel_rank`).
"""

from __future__ import annotations

import json
from statistics import median

from distlearn.world.launching import count_cores, launch

from . import load, quick, record

STEPS = 20


def measure(rounds: int) -> dict[str, list[float]]:
    """Run the two ranks; return seconds per step, by side, round by round."""
    command = ["python", "-m", "tests.benchmarks.data_parallel_rank", rounds, STEPS]
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


def records():
    """Efficiency of both, and the parallel step of one against the other."""
    busy = load()
    times = measure(5 if quick() else 25)
    ours, peer = times["ours parallel"], times.get("torch parallel")
    ratio = median(b / a for a, b in zip(ours, peer, strict=True)) if peer else None
    cores = count_cores()
    note = f"{cores} cores" + (
        f", load {busy:.1f} before the run: other programs took part of them" if busy > 0.3 else ""
    )
    return [
        record(
            "parallel efficiency of 2 ranks, MLP, batch 1,024 (peer: torch DDP)",
            "share",
            efficiency(times, "ours"),
            efficiency(times, "torch"),
            goal="ours >= 0.85",
            note=note,
        ),
        record(
            "data-parallel step of 2 ranks, MLP, batch 1,024 (ratio: torch DDP's time / ours)",
            "ms",
            median(ours) * 1e3,
            median(peer) * 1e3 if peer else None,
            ratio=ratio,
            goal="ratio >= 1",
        ),
    ]
