"""Training on ranks of any kind, for `distlearn train`: one call, one `Run` with history, trace and shares.

run_training(place, settings) --> world of the right kind --> train_recorded on every rank --> Run
"""

from __future__ import annotations

import os
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field

import click
import numpy as np

from ..comm import Network, RankError
from ..sim import Roofline, SimWorld
from ..trace import Trace
from ..train import DivergedError, Result, Settings, train
from .progress import make_progress

SPANS = 100_000
"""Spans that a run keeps, over all ranks; a trace of this size is 15 MB as JSON and still opens quickly."""

USERS_ERRORS = (ValueError, TypeError, OSError, DivergedError)
"""What a rank may raise because of what the user asked for: shown as one line."""


@dataclass(frozen=True)
class Place:
    """Where to train.

    Parameters
    ----------
    world : {"local", "sim", "mpi", "engines"}
    size : int
        Number of ranks.
    threads : int
        BLAS threads of each rank.
    network, compute : Network, Roofline
        Of simulated ranks.
    saving : dict
        `checkpoints`, `every` and `resume`, as for `train`; empty for a run that is not saved.
    """

    world: str
    size: int
    threads: int = 1
    network: Network = field(default_factory=Network)
    compute: Roofline | None = None
    saving: dict = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Words for a legend: "4 ranks"."""
        return "sequential" if self.size == 1 else f"{self.size} ranks"


@dataclass
class Run:
    """One training run.

    Attributes
    ----------
    share : float
        Communication share: part of the steps' time that a rank spent communicating with nothing to compute, the mean
        over ranks.
    dropped : int
        Spans that were not kept, because there were more than `SPANS`.
    """

    place: Place
    result: Result
    trace: Trace
    dropped: int = 0

    @property
    def history(self):
        """The run's `History`."""
        return self.result.history

    @property
    def share(self) -> float:
        """Communication share of the recorded steps."""
        return communication_share(self.trace)


class Kept(list):
    """A list that keeps its first items and counts the others: a run of an hour must not fill the memory with spans."""

    def __init__(self, limit: int):
        super().__init__()
        self.limit, self.dropped = limit, 0

    def append(self, item) -> None:
        """Keep the item if there is room."""
        if len(self) < self.limit:
            super().append(item)
        else:
            self.dropped += 1


def train_recorded(comm, settings: Settings, trace: Trace | None = None, **saving) -> tuple[Result, int]:
    """Train on this rank, keeping a bounded number of spans; return the result and how many spans were not kept.

    Parameters
    ----------
    comm : Communicator
    settings : Settings
    trace : Trace, optional
        Of all ranks, in a simulated world; by default each rank's clock has its own.
    **saving
        For `train`: `checkpoints`, `every`, `resume`.
    """
    spans = Kept(SPANS // comm.size)
    if trace is None:
        comm.clock.trace.spans = spans
    elif comm.rank == 0:
        trace.spans = spans = Kept(SPANS)
    with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges says so in one line, not in twenty
        result = train(comm, settings, **saving)
    return result, spans.dropped


def communication_share(trace: Trace) -> float:
    """Return the part of the steps' time in which a rank communicated and computed nothing, the mean over ranks.

    What happens between a step's "update" and the next step's first work (evaluation, waiting for its end) does not
    count. NaN for an empty trace.
    """
    from ..viz.intervals import length

    shares = []
    for rank in trace.ranks:
        spans = in_steps(sorted(trace.select(rank=rank), key=lambda s: s.start))
        busy = length([s.start for s in spans], [s.end for s in spans]) if spans else 0.0
        if busy > 0:
            shares.append(Trace(spans).exposed(rank) / busy)
    return sum(shares) / len(shares) if shares else float("nan")


def in_steps(spans) -> list:
    """Keep the spans that belong to training steps: from the first work of a step to its "update".

    Parameters
    ----------
    spans : list of Span
        Of one rank, by start.
    """
    kept, inside = [], False
    for span in spans:
        inside = inside or (span.lane == "compute" and span.name != "update")
        if inside:
            kept.append(span)
        inside = inside and span.name != "update"
    return kept


def run_training(place: Place, settings: Settings) -> Run:
    """Train at a place.

    Raises
    ------
    click.ClickException
        If what was asked for cannot be done, or training diverged: one line.
    """
    settings = settings.but(strategy="serial") if place.size == 1 and settings.strategy == "data" else settings
    with one_line_errors(place), closing(make_progress(place.label)) as progress:
        results, trace = _RUNNERS[place.world](place, settings, progress)
    (result, _), dropped = results[0], sum(n for _, n in results)
    return Run(place, result, trace, dropped)


@contextmanager
def one_line_errors(place: Place):
    """Turn what goes wrong on ranks into one error of the command; `DISTLEARN_DEBUG=1` shows the traceback."""
    try:
        yield
    except (RankError, *USERS_ERRORS) as error:
        if os.environ.get("DISTLEARN_DEBUG"):
            raise
        cause = error.original if isinstance(error, RankError) else error
        expected = isinstance(cause, USERS_ERRORS)
        raise click.ClickException(str(cause) if expected else str(error)) from error
    except RuntimeError as error:  # the ranks cannot be started, or lost each other
        if os.environ.get("DISTLEARN_DEBUG"):
            raise
        where = {"mpi": "mpiexec", "engines": "engines"}.get(place.world, "ranks")
        raise click.ClickException(
            f"{place.size} {where}: {error}\n`distlearn doctor` looks for the reason."
        ) from error


def throttled(progress):
    """Hand on some reports a second: drawing a bar at every step would be measured, too."""
    from ..world.progress import Reporter

    return Reporter(lambda report: progress(report[0], report[1], **report[2]))


def blas_threads(n: int):
    """Context in which BLAS uses n threads in this process."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=n, user_api="blas") if n else nullcontext()


def _run_local(place, settings, progress):
    from ..world import LocalWorld

    world = LocalWorld(report=throttled(progress))
    with blas_threads(place.threads):
        return world.run(train_recorded, settings, **place.saving), world.trace


def _run_sim(place, settings, progress):
    world = SimWorld(place.size, place.network, place.compute, report=throttled(progress))

    def train_simulated(comm):
        return train_recorded(comm, settings, world.trace, **place.saving)

    with blas_threads(place.threads):
        return world.run(train_simulated), world.trace


def _run_engines(place, settings, progress):
    from ..world import EngineWorld, train_through_failures

    with EngineWorld(place.size, threads=place.threads, progress=progress) as world:
        if not place.saving:
            return world.run(train_recorded, settings), world.trace
        run = train_through_failures(world, train_recorded, settings, **place.saving)
    for restart in run.restarts:
        click.echo(f"{restart}", err=True)
    run.results[0][0].history.recoveries = run.restarts
    return run.results, world.trace


def _run_mpi(place, settings, progress):
    from .mpiexec import train_under_mpiexec

    return train_under_mpiexec(place, settings, progress)


_RUNNERS = {"local": _run_local, "sim": _run_sim, "engines": _run_engines, "mpi": _run_mpi}
