"""Training that survives the failure of engines: they are restarted, and training resumes from the last checkpoint.

Under MPI the death of one rank ends them all: there are no survivors to continue, as there are on the simulator. The
aim is to lose little (frequent checkpoints), to notice the failure soon, and to restart fast.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..comm.base import CommError, RankError
from ..parallel.checkpoint.store import CheckpointError, CheckpointStore, CheckpointWarning
from .progress import Bar

if TYPE_CHECKING:
    from .local import World

LOG = logging.getLogger(__name__)


@dataclass
class Restart:
    """One failure, after which training resumed from a checkpoint.

    Attributes
    ----------
    rank : int or None
        The rank that failed first; None if the controller died.
    reason : str
        What happened, in one line.
    size : int
        Ranks that training resumed on.
    noticed, resumed : float
        When the failure was noticed, and when the first step after it was done [s since the start].
    reached, step : int
        Steps known to be done before the failure, and the step from which training resumed.
    """

    rank: int | None
    reason: str
    size: int
    noticed: float
    resumed: float = float("nan")
    reached: int = 0
    step: int = 0

    @property
    def steps_lost(self) -> int:
        """Steps that were done again, at least: engines report ten times a second, not every step."""
        return max(0, self.reached - self.step)

    @property
    def seconds_down(self) -> float:
        """From noticing the failure to the end of the first step after it [s]."""
        return self.resumed - self.noticed

    def __str__(self) -> str:
        return (
            f"{self.reason}: on {self.size} ranks again after {self.seconds_down:.1f} s, from step {self.step} "
            f"(at least {self.steps_lost} steps lost)"
        )


@dataclass
class ElasticRun:
    """The result of `train_through_failures`.

    Attributes
    ----------
    results : list
        What the program returned, by rank.
    steps : int
        The last step that was reported.
    seconds : float
        Total time [s].
    """

    results: list[Any]
    restarts: list[Restart] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0

    def __repr__(self):
        done = f"{self.steps} steps in {self.seconds:.3g} s"
        return f"ElasticRun({len(self.results)} ranks, {done}, restarts={self.restarts})"


class _Log:
    """Records which steps were done, and passes reports on."""

    def __init__(self, store: CheckpointStore, show):
        self._store, self._show, self._zero = store, show, time.perf_counter()
        self.done = 0
        self._open: Restart | None = None  # a restart whose first step has not been reported

    def now(self) -> float:
        return time.perf_counter() - self._zero

    def failed(self, restart: Restart) -> None:
        if self._open is not None:  # a second failure before a step was done
            self._open.resumed, self._open.step = restart.noticed, self._open.reached
        self._open, restart.reached = restart, self.done
        with warnings.catch_warnings(), contextlib.suppress(CheckpointError):  # the ranks report the same files
            warnings.simplefilter("ignore", CheckpointWarning)
            found = self._store.latest()
            restart.step = found.step if found else 0

    def __call__(self, step, total, **values) -> None:
        if self._open is not None:  # the first step after a failure
            restart, self._open = self._open, None
            restart.resumed = self.now()
            self.done = restart.step
        self.done = max(self.done, step)
        if self._show is not None:
            self._show(step, total, **values)


def train_through_failures(
    world: World,
    program: Callable[..., Any],
    *args: Any,
    checkpoints: str | Path,
    every: int = 50,
    restarts: int = 10,
    fewer: bool = False,
    progress_timeout: float | None = None,
    resume: bool = True,
    **kwargs: Any,
) -> ElasticRun:
    """Run a training program on engines until it is complete, restarting them after failures.

    Parameters
    ----------
    world : EngineWorld
        One that started its own engines, so that it can restart them.
    program : callable
        `program(comm, *args, checkpoints=..., every=..., resume=..., **kwargs)`, such as `distlearn.train.train`. It
        must `comm.report` every step, as `fit` does.
    *args, **kwargs
        For the program.
    checkpoints : path
        Folder that all engines can access.
    every : int
        Steps between two checkpoints; `young_interval` estimates the best number.
    restarts : int
        Give up after this many failures.
    fewer : bool
        Resume with one rank fewer after every failure, as if its machine were gone; else with as many as before.
    progress_timeout : float, optional
        Longest time between two reports [s]; then a rank hangs, which counts as a failure. Without it a failure is the
        death of an engine, or ten seconds without an answer to ipyparallel.
    resume : bool
        Start from the newest checkpoint in the folder.

    Returns
    -------
    run : ElasticRun
        Equal to a run without failures: bit for bit on as many ranks, to rounding on fewer.

    Raises
    ------
    RankError
        If a rank raised an exception, which would happen again; after too many failures.
    """
    shown, bar = world.progress, Bar() if world.progress is True else None
    run = ElasticRun([])
    log = _Log(CheckpointStore(checkpoints), bar or shown or None)
    world.progress = log
    try:
        while not run.results:
            options = {"checkpoints": str(checkpoints), "every": every, "resume": resume or bool(run.restarts)}
            try:
                run.results = world.run(program, *args, progress_timeout=progress_timeout, **options, **kwargs)
            except CommError as error:
                # lost processes, as opposed to an error in the program
                failure = error.lost if isinstance(error, RankError) else "controller" in str(error)
                if not failure or len(run.restarts) >= restarts:
                    raise
                size = max(1, world.size - fewer)
                world.resize(size)
                reason = str(error).partition("\n")[0]
                run.restarts.append(Restart(getattr(error, "rank", None), reason, size, log.now()))
                log.failed(run.restarts[-1])
                LOG.info("restart on %d ranks: %s", size, reason)
    finally:
        world.progress = shown
        if bar is not None:
            bar.close()
    run.steps, run.seconds = log.done, log.now()
    for result in run.results:
        if hasattr(result, "history"):
            result.history.recoveries = run.restarts
    return run
