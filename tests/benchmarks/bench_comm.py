"""What communication through the library costs: all-reduce against mpi4py's own, engines against ipyparallel's own.

An all-reduce of `MPIComm` can be interrupted and timed out, leaves its core to others and is recorded; that may cost a
few microseconds, no more than a fifth at 1 MB, and no more than a tenth above. The same holds for its strict mode,
which compares the calls of all ranks; of a training step it may take a twentieth.
"""

from __future__ import annotations

import tempfile
import time
from statistics import median

from distlearn.world import EngineWorld

from . import load_note, quick, record, times_on_ranks

RANKS = 2
ENGINES = 4


def records() -> list[dict]:
    """Measure on this machine."""
    return [*all_reduces(), *strict_steps(), *engines()]


def all_reduces() -> list[dict]:
    """All-reduce of float32 over two ranks."""
    note = load_note()  # who waits politely gets less of shared cores
    times = times_on_ranks("comm_rank", RANKS)
    rows = []
    for side, mode in enumerate(("", ", strict")):
        for nbytes, rounds in ((int(n), p) for n, p in times.items()):
            ours, raw = median(r[side] for r in rounds), median(r[-1] for r in rounds)
            ratio = median(r[side] / r[-1] for r in rounds)
            name = f"all-reduce {_size(nbytes)}{mode}, {RANKS} ranks, against mpi4py"
            goal = "" if nbytes < 1 << 20 else "ratio <= 1.2" if nbytes == 1 << 20 else "ratio <= 1.1"
            rows.append(record(name, "ms", ours * 1e3, raw * 1e3, ratio=ratio, goal=goal, note=note))
    return rows


def strict_steps() -> list[dict]:
    """Return what strict mode and the flight recorder cost: a data-parallel step with them over one without."""
    note, rows = load_note(), []
    for name, rounds in times_on_ranks("strict_rank", RANKS).items():
        strict, plain, bare = (median(times) for times in zip(*rounds, strict=True))
        step = f"step of {name}, batch 64, {RANKS} ranks"
        ratio = median(a / b for a, b, _ in rounds)
        what = f"{step}, strict, against not strict"
        rows.append(record(what, "ms", strict * 1e3, plain * 1e3, ratio=ratio, goal="ratio < 1.05", note=note))
        ratio = median(a / b for _, a, b in rounds)
        what = f"{step}, against one without flight recorder"
        rows.append(record(what, "ms", plain * 1e3, bare * 1e3, ratio=ratio, goal="ratio < 1.02", note=note))
    return rows


def engines() -> list[dict]:
    """Start, run, stop: against what ipyparallel does by itself."""
    began = time.perf_counter()
    world = EngineWorld(ENGINES, progress=False)
    start = time.perf_counter() - began
    try:
        run, apply = [], []
        for _ in range(10 if quick() else 40):
            for times, call in (
                (run, lambda: world.run(_nothing)),
                (apply, lambda: world.view.apply_sync(_nothing, None)),
            ):
                began = time.perf_counter()
                call()
                times.append(time.perf_counter() - began)
    finally:
        began = time.perf_counter()
        world.close()
        stop = time.perf_counter() - began
    peer = None if quick() else ipyparallel_start()
    return [
        record(f"start {ENGINES} engines under MPI, against ipyparallel's defaults", "s", start, peer, goal="ours < 8"),
        record(f"stop {ENGINES} engines", "s", stop, goal="ours < 4"),
        record(
            f"run an empty function on {ENGINES} engines, against apply_sync",
            "ms",
            median(run) * 1e3,
            median(apply) * 1e3,
            ratio=median(a / b for a, b in zip(run, apply, strict=True)),
        ),
    ]


def _nothing(comm) -> None:
    """Do nothing."""


def ipyparallel_start() -> float:
    """Seconds that ipyparallel takes to start the engines with its own settings."""
    import logging

    import ipyparallel
    from traitlets.config import Config

    from distlearn.world.launching import find_mpiexec

    config = Config()
    config.MPIEngineSetLauncher.mpi_cmd = [find_mpiexec()]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        cluster = ipyparallel.Cluster(
            n=ENGINES, engines="mpi", config=config, profile_dir=folder, log_level=logging.CRITICAL
        )
        try:
            client = cluster.start_and_connect_sync()
            seconds = time.perf_counter() - began
            client.close()
        finally:
            cluster.stop_cluster_sync()
    return seconds


def _size(nbytes: int) -> str:
    return f"{nbytes >> 20} MB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KB"
