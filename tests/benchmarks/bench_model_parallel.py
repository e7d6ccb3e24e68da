"""Model parallelism on two real ranks, next to data parallelism, on networks with too many weights for that.

float32, SGD, one BLAS thread per rank; the median over rounds that measure all sides in the same processes
(`model_parallel_rank`).
"""

from __future__ import annotations

import json
from statistics import median

from distlearn.world.launching import count_cores, launch

from . import load_note, quick, record

CASES = {
    "mlp": ("MLP 784-4096-4096-10, batch 64", "TensorParallel", 20),
    "cnn": ("CNN with 6.5 million dense weights, batch 128", "OneWeirdTrick", 20),
}
"""Name in the table, the strategy, and rounds."""


def measure(model: str, rounds: int) -> dict[str, list[float]]:
    """Run the two ranks; return seconds per step, by side, round by round."""
    command = ["python", "-m", "tests.benchmarks.model_parallel_rank", model, rounds]
    done = launch(2, command, threads=1, timeout=600, capture=True)
    if done.returncode:
        raise RuntimeError(f"the ranks of the benchmark failed:\n{done.stderr}")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def records():
    """Every strategy against data parallelism, and against a serial step."""
    rows = []
    for model, (name, strategy, rounds) in CASES.items():
        busy = load_note()
        times = measure(model, 5 if quick() else rounds)
        note = busy or f"{count_cores()} cores"
        for peer, goal in (("DataParallel", "ratio > 1"), ("Serial", "")):
            ratio = median(b / a for a, b in zip(times[strategy], times[peer], strict=True))
            rows.append(
                record(
                    f"{strategy} step of 2 ranks, {name} (ratio: {peer}'s time / ours)",
                    "ms",
                    median(times[strategy]) * 1e3,
                    median(times[peer]) * 1e3,
                    ratio=ratio,
                    goal=goal,
                    note=note,
                )
            )
    return rows
