"""Commands on MPI ranks: as one of the ranks that `mpiexec` started, or as the process that starts them.

The second way, for `distlearn train --world mpi`: the command writes a job into a folder, starts this module as n
ranks, and shows the progress that rank 0 writes there until it finds their results.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import click

from ..trace import Trace
from ..world import World

RANK = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
# Environment variables in which MPI launchers (Hydra, Open MPI, Slurm) pass size and rank to a process.
SIZE = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")

NAP = 0.1
REPORTING = 30.0  # Seconds within which rank 0 reports an interrupted run.


def mpi_size() -> int:
    """Return how many ranks `mpiexec` (or `srun`) started this process with; 0 if it was not started so."""
    if not any(name in os.environ for name in RANK):
        return 0
    for name in SIZE:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    from ..world import MPIWorld

    return MPIWorld().size


def mpi_rank() -> int:
    """Return this process's rank, without initializing MPI; 0 outside of mpiexec."""
    return next((int(os.environ[name]) for name in RANK if os.environ.get(name, "").isdigit()), 0)


def train_as_rank(target, settings, folder, report) -> None:
    """Train as one of the ranks that mpiexec started; rank 0, the only one with a folder, calls `report([run])`."""
    from ..world import MPIWorld
    from .console import make_progress
    from .ranks import PARTIAL, Result, Run, blas_threads, read_partial, train_recorded

    settings = settings.but(strategy="serial") if target.size == 1 and settings.strategy == "data" else settings
    progress = make_progress(target.label)
    world = MPIWorld(progress=progress)
    if folder is not None:
        (folder / PARTIAL).unlink(missing_ok=True)

    def until_interrupted(comm, **saving):
        try:
            return train_recorded(comm, settings, folder=folder and str(folder), **saving)
        except KeyboardInterrupt:  # mpiexec passes it on to every rank: rank 0 reports, and ends the others
            if comm.rank:
                time.sleep(REPORTING)
            elif (history := read_partial(folder)) is None:
                click.echo("interrupted in the first epoch: there are no results", err=True)
            else:
                report([Run(target, Result(history, None), Trace(), interrupted=True)])
            sys.exit(130)

    with blas_threads(target.threads):
        results = world.run(until_interrupted, **target.saving)
    progress.close()
    if world.rank == 0:
        report([Run(target, results[0][0], world.trace, sum(n for _, n in results))])


class Mpiexec(World):
    """A world of ranks that `mpiexec` starts for every run, on this machine."""

    def __init__(self, size: int, threads: int, progress):
        self.size, self.threads, self.progress = size, threads, progress
        self.trace = Trace()

    def run(self, fn, *args, **kwargs) -> list:
        from ..world import launch

        with tempfile.TemporaryDirectory(prefix="distlearn-") as name:
            folder = Path(name)
            (folder / "order").write_bytes(pickle.dumps((fn, args, kwargs)))
            with _Watcher(folder / "progress", self.progress):
                command = ["python", "-P", "-m", __spec__.name, str(folder)]
                done = launch(self.size, command, threads=self.threads, capture=True)
            if done.returncode or not (folder / "results").exists():
                raise click.ClickException(complaint(done))
            for text in (done.stdout, done.stderr):
                if text.strip():
                    click.echo(text.rstrip(), err=True)
            results, self.trace = pickle.loads((folder / "results").read_bytes())
        return results


def complaint(done: subprocess.CompletedProcess) -> str:
    """Return the failed rank's error: one line if the user can fix it, else all output."""
    text = f"{done.stdout}\n{done.stderr}".strip()
    found = re.search(r"^RankError: rank (\d+): (\w+): ((?:.|\n)*?)(?=\n\S*$|\n=+|\nAbort|\Z)", text, re.MULTILINE)
    if found and found[2] in ("ValueError", "DivergedError", "FileNotFoundError", "ConnectionError"):
        return found[3].strip()
    return f"mpiexec ended with exit code {done.returncode}; with --checkpoint, --resume continues\n{text}"


class _Watcher:
    """Shows the progress that rank 0 writes to a file, while the block waits for the ranks."""

    def __init__(self, path: Path, progress):
        self._path, self._progress, self._over = path, progress, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while not self._over.wait(NAP):
            self._show()

    def _show(self):
        try:
            step, total, values = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # nothing written yet
            return
        self._progress(step, total, **values)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *exc):
        self._over.set()
        self._thread.join()
        self._show()


def main(folder: Path) -> None:
    """Run the job as one of its ranks."""
    from ..world import MPIWorld
    from .output import write_json

    fn, args, kwargs = pickle.loads((folder / "order").read_bytes())
    world = MPIWorld(progress=lambda *report, **values: write_json(folder / "progress", [*report, values]))
    results = world.run(fn, *args, **kwargs)
    if world.rank == 0:
        (folder / "results").write_bytes(pickle.dumps((results, world.trace)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
