"""A nemesis: faults as data that strike a training run, and whether it comes out as if nothing had happened.

    plan: (Kill(step=7.0, rank=1), FlipFile(step=10.0, bit=4711))
        strike(plan, world) --> Outcome: what each rank got, the restarts, or the error that ended the run
            outcome.problems --> [] if training came out as if nothing had happened

The workload is always the same small training run, saved every few steps; `train_through_failures` restarts it. The
words are those of Maelstrom (workload, nemesis, invariants). `tests/world/faults.py` has more faults, and draws plans.
"""

from __future__ import annotations

import functools
import os
import signal
import tempfile
import warnings
from dataclasses import dataclass

import numpy as np

from distlearn import data, nn, optim
from distlearn.comm.base import CommError, CutOffError
from distlearn.parallel import DataParallel
from distlearn.parallel.checkpoint.store import CheckpointStore, CheckpointWarning
from distlearn.sim import SimWorld
from distlearn.train import fit
from distlearn.world.elastic import ElasticRun, train_through_failures

EPOCHS, BATCH, SAMPLES, EVERY = 3, 30, 150, 4
PATIENCE = 60.0
"""The longest that training may stand still [s]."""


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong once, after a step."""

    step: float

    @property
    def victims(self) -> tuple[int, ...]:
        """The ranks that it strikes."""
        return (self.rank,) if hasattr(self, "rank") else ()

    def strike_rank(self, comm, model) -> None:
        """Strike one of them; this runs there."""

    def strike_file(self, path) -> None:
        """Strike a checkpoint that has just been saved."""


@dataclass(frozen=True)
class Kill(Fault):
    """A rank's process ends."""

    rank: int

    def strike_rank(self, comm, model):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class FlipFile(Fault):
    """A bit of a checkpoint flips on the disk."""

    bit: int

    def strike_file(self, path):
        content = np.fromfile(path, np.uint8)
        flip(content, self.bit)
        content.tofile(path)


def flip(content: np.ndarray, bit: int) -> None:
    """Flip one bit of an array of bytes, counted around its end."""
    content[bit // 8 % content.size] ^= 1 << bit % 8


class _StruckStore(CheckpointStore):
    """A store on a disk that faults strike."""

    def __init__(self, folder, plan):
        super().__init__(folder, keep=3)
        self.plan = plan

    def save(self, checkpoint):
        """Save, then damage what was saved."""
        path = super().save(checkpoint)
        for i, fault in enumerate(self.plan):
            on_disk = type(fault).strike_file is not Fault.strike_file
            if on_disk and fault.step <= checkpoint.step and not marked(self.folder, i):
                mark(self.folder, i)
                fault.strike_file(path)
        return path


def marked(folder, i: int) -> bool:
    """Return whether a fault has struck: it does not strike again after a restart."""
    return os.path.exists(os.path.join(folder, f"struck-{i}"))


def mark(folder, i: int) -> None:
    """Note that a fault has struck."""
    open(os.path.join(folder, f"struck-{i}"), "wb").close()


def workload(comm, plan, *, checkpoints, every: int = EVERY, resume: bool = False):
    """Train a small network, while faults strike; return (losses, parameters, samples), None on a rank cut off."""
    os.makedirs(checkpoints, exist_ok=True)
    warnings.simplefilter("ignore", CheckpointWarning)  # of files that are struck
    model = nn.MLP((64, 10, 10), seed=3, dtype="float64")
    optimizer = optim.Optimizer(model.params, optim.Momentum(0.9), 0.1)

    def report(step, total, **values):
        comm.report(step, total, **values)
        for i, fault in enumerate(plan):
            if comm.rank in fault.victims and int(fault.step) == step and not marked(checkpoints, i):
                mark(checkpoints, i)
                fault.strike_rank(comm, model)

    try:
        strategy = DataParallel(comm, model, nn.SoftmaxCrossEntropy(), optimizer, cap_bytes=3000, check_every=1)
        history = fit(
            strategy, data.load("digits", dtype="float64").take(SAMPLES), epochs=EPOCHS, batch_size=BATCH,
            evaluate_every=0, report=report, checkpoints=_StruckStore(checkpoints, plan), every=every, resume=resume,
        )  # fmt: skip
    except CutOffError:
        return None
    return history.losses, {p.name: p.data.copy() for p in model.params}, history.last.samples


@functools.cache
def undisturbed() -> tuple:
    """Return what the workload gives without faults."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        return SimWorld(1).run(workload, (), checkpoints=folder)[0]


def differences(rank: int, result) -> list[str]:
    """Say in what a rank's result differs from that of an undisturbed run."""
    (losses, params, samples), found = undisturbed(), []
    if result[2] != samples or len(result[0]) != len(losses):
        found.append(f"rank {rank}: {result[2]} samples in {len(result[0])} steps, expected {samples}")
    elif not np.allclose(result[0], losses, rtol=0, atol=1e-9):
        first = int(np.flatnonzero(~np.isclose(result[0], losses, rtol=0, atol=1e-9))[0])
        found.append(f"rank {rank}: the loss of step {first + 1} is {result[0][first]!r}, not {losses[first]!r}")
    return found + [
        f"rank {rank}: {name} is not that of an undisturbed run"
        for name in params
        if not np.allclose(result[1][name], params[name], rtol=0, atol=1e-9)
    ]


@dataclass
class Outcome:
    """How a run came out that a plan struck; `run` is None where it ended with an error."""

    plan: tuple[Fault, ...]
    run: ElasticRun | None = None
    error: Exception | None = None

    @property
    def problems(self) -> list[str]:
        """Return which invariants do not hold; [] if all do."""
        if self.error is not None:
            return [f"ended with {type(self.error).__name__}: {self.error}"]
        found = [text for rank, result in enumerate(self.run.results) for text in differences(rank, result)]
        slow = [restart for restart in self.run.restarts if restart.seconds_down > PATIENCE]
        return found + [f"training stood still for {r.seconds_down:.1f} s: {r.reason}" for r in slow]


def strike(plan, world, *, fewer: bool = False) -> Outcome:
    """Run the workload while a plan's faults strike.

    Parameters
    ----------
    plan : sequence of Fault
    world : EngineWorld
        Its engines are killed, and started again.
    fewer : bool
        Restart with one rank fewer after every failure.
    """
    outcome = Outcome(tuple(plan))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # a busy machine may take a rank of an engine for hung
        options = {"checkpoints": folder, "every": EVERY, "fewer": fewer, "restarts": len(outcome.plan) + 2}
        try:
            outcome.run = train_through_failures(world, workload, outcome.plan, progress_timeout=2.0, **options)
        except CommError as error:
            outcome.error = error
    return outcome
