"""Training on ranks of any kind, for `distlearn train`: one call, one `Run` with history, trace and shares.

run_training(target, settings, folder) --> world of the right kind --> train_recorded on every rank --> Run
"""

from __future__ import annotations

import json
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click
import numpy as np

from ..comm import Network, RankError
from ..nn import keep_memory
from ..sim import Roofline, SimWorld
from ..trace import Trace, gaps, length, pieces, times, union
from ..train import DivergedError, History, Result, Settings, train
from .console import make_progress, plain_errors
from .output import PARTIAL, write_json

# Spans that a run keeps, over all ranks; a trace of this size is 15 MB as JSON and still opens quickly.
SPANS = 100_000

OUTSIDE = ("evaluate", "checkpoint")  # Names of spans that are not part of a training step.

# Errors of a rank that the user's settings may cause: shown as one line.
USERS_ERRORS = (ValueError, TypeError, OSError, DivergedError)


@dataclass(frozen=True)
class Target:
    """Where to train."""

    world: str
    size: int
    threads: int
    network: Network = field(default_factory=Network)
    compute: Roofline | None = None
    saving: dict = field(default_factory=dict)

    @property
    def label(self) -> str:
        return "sequential" if self.size == 1 else f"{self.size} ranks"


@dataclass
class Run:
    """One training run."""

    target: Target
    result: Result
    trace: Trace
    dropped: int = 0  # spans that were not kept, because there were more than `SPANS`
    interrupted: bool = False  # by Ctrl-C; the history holds the epochs that were done

    @property
    def history(self):
        return self.result.history

    @property
    def share(self) -> float:
        """Communication share of the recorded steps."""
        return communication_share(self.trace)


class BoundedList(list):
    """A list that keeps its first items and counts the others, to bound the memory of a long run."""

    def __init__(self, limit: int):
        super().__init__()
        self.limit, self.dropped = limit, 0

    def append(self, item) -> None:
        if len(self) < self.limit:
            super().append(item)
        else:
            self.dropped += 1


def train_recorded(
    comm, settings: Settings, trace: Trace | None = None, folder: str | None = None, **saving
) -> tuple[Result, int]:
    """Train on this rank, keeping a bounded number of spans; return the result and how many spans were not kept."""
    keep_memory()  # safe here: these processes belong to the command
    settings = settings.but(strategy="serial") if comm.size == 1 and settings.strategy == "data" else settings
    spans = BoundedList(SPANS // comm.size)
    if trace is None:
        comm.clock.trace.spans = spans
    elif comm.rank == 0:
        trace.spans = spans = BoundedList(SPANS)

    def write(history) -> None:
        with suppress(OSError):  # a full disk ends no training
            write_json(Path(folder, PARTIAL), {"epochs": history.as_dicts(), "losses": history.losses})

    with np.errstate(over="ignore", invalid="ignore"):  # divergence is reported as one error, not as twenty warnings
        result = train(comm, settings, on_epoch=write if folder and comm.rank == 0 else None, fused=True, **saving)
    return result, spans.dropped


def read_partial(folder: Path) -> History | None:
    """Return the finished epochs, if there are any."""
    try:
        found = json.loads((folder / PARTIAL).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return History.from_dicts(found["epochs"], found["losses"])


def communication_share(trace: Trace) -> float:
    """Return the part of the steps' time in which a rank communicated without computing, the mean over ranks."""

    # Waiting for others is part of it, as it is of every all-reduce. Time outside of steps does not count:
    # evaluation, checkpoints, and all before the first work and after the last update. NaN for an empty trace.
    def inside(spans):
        return np.transpose(pieces(*times(spans), *steps)[1:])

    shares = []
    for rank in trace.ranks:
        spans = [s for s in trace.select(rank=rank) if s.lane in ("compute", "comm") or s.name in OUTSIDE]
        work = [s for s in spans if s.lane == "compute" and s.name not in OUTSIDE]
        if not work:
            continue
        between = times(s for s in spans if s.name in OUTSIDE)
        last = max((s.end for s in work if s.name == "update"), default=max(s.end for s in work))
        steps = gaps(*union(*between), min(s.start for s in work), last)
        computing = length(inside(work))
        # idle time of a simulated rank is waiting, which leaves no span; that of a real one may be Python's overhead
        time = length(np.transpose(steps) if trace.messages else inside(s for s in spans if s.name not in OUTSIDE))
        if time > 0:
            shares.append(1 - computing / time)
    return sum(shares) / len(shares) if shares else float("nan")


def run_training(target: Target, settings: Settings, folder: Path) -> Run | None:
    """Train on the ranks of a target."""
    (folder / PARTIAL).unlink(missing_ok=True)  # of the run before
    errors = plain_errors(RankError, RuntimeError, ModuleNotFoundError, *USERS_ERRORS, text=partial(_in_a_line, target))
    with errors, closing(make_progress(target.label)) as progress, blas_threads(target.threads):
        with _make_world(target, progress) as world:
            try:
                results = _train(world, target, settings, str(folder.resolve()))
            except KeyboardInterrupt:
                history = read_partial(folder)
                return None if history is None else Run(target, Result(history, None), world.trace, interrupted=True)
        (result, _), dropped = results[0], sum(n for _, n in results)
        return Run(target, result, world.trace, dropped)


def _train(world, target: Target, settings: Settings, folder: str) -> list:
    if isinstance(world, SimWorld):  # whose ranks share one trace
        return world.run(lambda comm: train_recorded(comm, settings, world.trace, folder, **target.saving))
    if target.world != "engines" or not target.saving:
        return world.run(train_recorded, settings, folder=folder, **target.saving)
    from ..world import train_through_failures

    run = train_through_failures(world, train_recorded, settings, folder=folder, **target.saving)
    for restart in run.restarts:
        click.echo(f"{restart}", err=True)
    run.results[0][0].history.recoveries = run.restarts
    return run.results


def _in_a_line(target: Target, error: Exception) -> str:
    """Describe an error of ranks: in the words of its cause if the user's settings may be that."""
    cause = error.original if isinstance(error, RankError) else error
    if isinstance(cause, USERS_ERRORS):
        return str(cause)
    if isinstance(error, RankError):
        return str(error)
    # ranks cannot be started, or lost their connection
    return f"{target.size} ranks ({target.world}): {error}\n`distlearn doctor` looks for the reason."


def blas_threads(n: int):
    """Return a context in which BLAS uses n threads in this process."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=n, user_api="blas")


def _make_world(target: Target, progress):
    from ..world import EngineWorld, LocalWorld
    from ..world.progress import Reporter

    if target.world == "engines":
        return EngineWorld(target.size, threads=target.threads, progress=progress)
    # a few reports per second: drawing the bar at every step would distort the measured time
    report = Reporter(lambda last: progress(last[0], last[1], **last[2]))
    if target.world == "sim":
        return SimWorld(target.size, target.network, target.compute, report=report)
    return LocalWorld(report=report)
