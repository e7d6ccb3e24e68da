"""`distlearn train` as one of the ranks that `mpiexec` started."""

from __future__ import annotations

import os
import sys
import time
import traceback
from contextlib import contextmanager

import click

from ..trace import Trace

RANK = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
# Environment variables in which MPI launchers (Hydra, Open MPI, Slurm) pass size and rank to a process.
SIZE = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")

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


@contextmanager
def end_other_ranks(size: int):
    """Let an error that rank 0 alone finds, before training, end the other ranks, which wait for it in MPI."""
    try:
        yield
    except Exception as error:
        if size > 1:
            from ..world import MPIWorld

            if not isinstance(error, click.ClickException):
                error = click.ClickException("".join(traceback.format_exception(error)))
            error.show()
            MPIWorld().abort("", error.exit_code)
        raise


def train_as_rank(target, settings, folder, report) -> None:
    """Train as one of the ranks that mpiexec started; rank 0, the only one with a folder, calls `report([run])`."""
    from ..world import MPIWorld
    from .console import make_progress
    from .ranks import PARTIAL, USERS_ERRORS, Result, Run, blas_threads, read_partial, train_recorded

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
        except USERS_ERRORS as error:
            world.abort(f"Error: {error}\n")

    with blas_threads(target.threads):
        results = world.run(until_interrupted, **target.saving)
    progress.close()
    if world.rank == 0:
        report([Run(target, results[0][0], world.trace, sum(n for _, n in results))])
