"""A nemesis: faults as data that strike a training run, on simulated and on real ranks alike, and what must still hold.

    draw(seed, size) --> plan: (Kill(step=7.0, rank=1), FlipFile(step=10.0, bit=4711))
        strike(plan, world) --> Outcome: what each rank got, the restarts, or the error that ended the run
            outcome.problems --> [] if training came out as if nothing had happened, or the error names the fault
                shrink(plan, fails) --> the smallest plan that still fails; its repr can be pasted into a test

The workload is always the same small training run, saved every few steps. On engines, and in a simulated world that
stands in for them, `train_through_failures` restarts it. The words are those of
Maelstrom (workload, nemesis, invariants), the menu of faults that of torchft.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from distlearn import data, nn, optim
from distlearn.comm.base import CommError, CutOffError, PeerLostError, RankError
from distlearn.comm.network import Network
from distlearn.parallel import DataParallel
from distlearn.parallel.checkpoint.store import CheckpointStore, CheckpointWarning
from distlearn.sim import Failure, Roofline, SimWorld
from distlearn.train import fit
from distlearn.world.elastic import ElasticRun, train_through_failures

EPOCHS, BATCH, SAMPLES, EVERY = 3, 30, 150, 4
STEPS = EPOCHS * SAMPLES // BATCH
PATIENCE = 60.0
"""The longest that training may stand still [s]."""

# -- faults ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong once, after a step; in the simulator a fraction says when within the next one."""

    step: float

    simulated_only = False
    only_named = False
    """Nothing repairs it: the run may end with an error that names the rank."""

    @property
    def victims(self) -> tuple[int, ...]:
        """The ranks that it strikes."""
        return (self.rank,) if hasattr(self, "rank") else ()

    def failures(self, at: float, period: float) -> list[Failure]:
        """Return it as failures of simulated ranks; `at` is when, `period` how long a step takes [virtual s]."""
        return []

    def strike_process(self) -> None:
        """Strike the process that this runs in, where ranks are processes."""

    def strike_training(self, comm, model) -> None:
        """Strike a rank's program, in every world."""

    def strike_disk(self, store: CheckpointStore, step: int) -> None:
        """Strike after a checkpoint was saved, or raise OSError instead of saving it."""


@dataclass(frozen=True)
class Kill(Fault):
    """A rank's process ends."""

    rank: int

    def failures(self, at, period):
        return [Failure(self.rank, at)]

    def strike_process(self):
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Hang(Fault):
    """A rank's process is stopped, and never goes on."""

    rank: int

    def failures(self, at, period):
        return [Failure(self.rank, at, "hang")]

    def strike_process(self):
        os.kill(os.getpid(), signal.SIGSTOP)


@dataclass(frozen=True)
class Slow(Fault):
    """A rank takes longer over the next steps; nobody may take it for dead."""

    rank: int

    def failures(self, at, period):
        return [Failure(self.rank, at, "slow", at + 4 * period, factor=3.0)]

    def strike_process(self):
        time.sleep(0.3)


@dataclass(frozen=True)
class Late(Fault):
    """A rank's messages arrive late, but before anyone takes it for dead."""

    rank: int

    def failures(self, at, period):
        return [Failure(self.rank, at, "cut", at + 3 * period)]

    def strike_process(self):
        time.sleep(0.1)


@dataclass(frozen=True)
class Partition(Fault):
    """Some ranks are cut off from the others for good."""

    ranks: tuple[int, ...]

    simulated_only = True  # processes of one machine cannot be cut off from one another

    @property
    def victims(self):
        return self.ranks

    def failures(self, at, period):
        return [Failure(rank, at, "cut") for rank in self.ranks]


@dataclass(frozen=True)
class Lost(Fault):
    """The next gradient that a rank sends is lost, and the rank does not notice."""

    rank: int

    only_named = True

    def strike_training(self, comm, model):
        class Sent:
            def wait(self):
                return None

        def lose(x, *args):
            del comm.iall_reduce
            return Sent()

        comm.iall_reduce = lose


@dataclass(frozen=True)
class FlipWeight(Fault):
    """A bit of a rank's weights flips, as when a core computes wrongly now and then."""

    rank: int
    bit: int

    only_named = True

    def strike_training(self, comm, model):
        flip(model.params[0].data.view(np.uint8).reshape(-1), self.bit)


@dataclass(frozen=True)
class FullDisk(Fault):
    """There is no room for a checkpoint."""

    def strike_disk(self, store, step):
        if step not in store.steps:
            raise OSError(errno.ENOSPC, "No space left on device")


@dataclass(frozen=True)
class Truncate(Fault):
    """A checkpoint loses its second half."""

    def strike_disk(self, store, step):
        os.truncate(store.path(step), store.path(step).stat().st_size // 2)


@dataclass(frozen=True)
class FlipFile(Fault):
    """A bit of a checkpoint flips on the disk."""

    bit: int

    def strike_disk(self, store, step):
        content = np.fromfile(store.path(step), np.uint8)
        flip(content, self.bit)
        content.tofile(store.path(step))


def flip(content: np.ndarray, bit: int) -> None:
    """Flip one bit of an array of bytes, counted around its end."""
    content[bit // 8 % content.size] ^= 1 << bit % 8


DISK = (FullDisk, Truncate, FlipFile)
MENU = (Kill, Hang, Slow, Late, Partition, Lost, FlipWeight, *DISK)


def draw(seed: int, size: int, *, menu=MENU, most: int = 4) -> tuple[Fault, ...]:
    """Draw a plan of up to `most` faults of a world of `size` ranks.

    Examples
    --------
    >>> draw(5, 4) == draw(5, 4)
    True
    """
    rng = np.random.default_rng([seed, size])
    make = {
        "step": lambda: round(float(rng.uniform(1, STEPS - 1)), 2),
        "rank": lambda: int(rng.integers(size)),
        "ranks": lambda: tuple(map(int, sorted(rng.permutation(size)[: rng.integers(1, max(2, size))]))),
        "bit": lambda: int(rng.integers(2**20)),
    }
    kinds = [menu[i] for i in rng.integers(len(menu), size=rng.integers(1, most + 1))]
    plan = [kind(**{f.name: make[f.name]() for f in dataclasses.fields(kind)}) for kind in kinds]
    return tuple(sorted(plan, key=lambda fault: fault.step))


# -- the workload ------------------------------------------------------------------------------------------------------


class _StruckStore(CheckpointStore):
    """A store on a disk that faults strike."""

    def __init__(self, folder, plan):
        super().__init__(folder, keep=3)
        self.plan = plan

    def save(self, checkpoint):
        """Save, unless the disk is full; then damage what was saved."""
        due = [i for i, f in enumerate(self.plan) if isinstance(f, DISK) and f.step <= checkpoint.step]
        due = [i for i in due if not _marked(self.folder, i)]
        for i in due:
            _mark(self.folder, i)
            if isinstance(self.plan[i], FullDisk):
                self.plan[i].strike_disk(self, checkpoint.step)
        path = super().save(checkpoint)
        for i in due:
            self.plan[i].strike_disk(self, checkpoint.step)
        return path


def _marked(folder, i: int) -> bool:
    return os.path.exists(os.path.join(folder, f"struck-{i}"))


def _mark(folder, i: int) -> None:
    """Note that a fault has struck: it does not strike again after a restart."""
    open(os.path.join(folder, f"struck-{i}"), "wb").close()


def workload(comm, plan, processes: bool, *, checkpoints, every: int, resume: bool):
    """Train a small network, while faults strike; return (losses, parameters, samples), None on a rank cut off."""
    os.makedirs(checkpoints, exist_ok=True)
    if processes:
        warnings.simplefilter("ignore", CheckpointWarning)  # `strike` does so for simulated ranks
    model = nn.MLP((64, 10, 10), seed=3, dtype="float64")
    optimizer = optim.Optimizer(model.params, optim.Momentum(0.9), 0.1)

    def report(step, total, **values):
        comm.report(step, total, **values)
        for i, fault in enumerate(plan):
            if comm.rank in fault.victims and int(fault.step) == step and not _marked(checkpoints, i):
                if processes or type(fault).strike_training is not Fault.strike_training:
                    _mark(checkpoints, i)
                if processes:
                    fault.strike_process()
                fault.strike_training(comm, model)

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
def undisturbed(size: int) -> tuple[tuple, np.ndarray]:
    """Return what the workload gives without faults, and the virtual time at the end of every step."""
    world = SimWorld(size, NETWORK, COMPUTE)
    with tempfile.TemporaryDirectory() as folder:
        result = world.run(workload, (), False, checkpoints=folder, every=EVERY, resume=False)[0]
    return result, np.array([0.0, *(span.end for span in world.trace.select(rank=0, name="update"))])


# -- a run -------------------------------------------------------------------------------------------------------------

NETWORK, COMPUTE = Network(1e-5, 1e9), Roofline(1e8)
LOST = (PeerLostError, CutOffError)


class _Simulated:
    """What `train_through_failures` needs of an `EngineWorld`, on simulated ranks that fail by a plan."""

    def __init__(self, size: int, plan):
        self.size, self.plan, self.progress = size, plan, None
        _, self.times = undisturbed(size)
        self.period = self.times[-1] / STEPS

    def resize(self, size: int) -> None:
        """Go on with so many ranks."""
        self.size = size

    def run(self, program, *args, checkpoints, progress_timeout=None, **options) -> list:
        """Run until a rank is declared lost."""
        done = max(CheckpointStore(checkpoints).steps, default=0)
        due = {}
        for i, fault in enumerate(self.plan):
            at = float(np.interp(fault.step, range(STEPS + 1), self.times) - self.times[done])
            for failure in fault.failures(max(0.0, at), self.period):
                if failure.rank < self.size and not _marked(checkpoints, i):
                    due[failure] = i
        world = SimWorld(
            self.size, NETWORK, COMPUTE, report=self.progress, failures=list(due), detection=5 * self.period
        )
        try:
            results = world.run(program, *args, checkpoints=checkpoints, **options)
        except CommError as error:
            if not isinstance(getattr(error, "original", error), LOST) or not world.losses:
                raise
        for failure, i in due.items():
            if failure.at <= world.makespan:
                _mark(checkpoints, i)
        if world.losses:
            raise RankError(world.losses[0].rank, str(world.losses[0]), lost=True)
        return results


@dataclass
class Outcome:
    """How a run came out that a plan struck.

    Attributes
    ----------
    plan : tuple of Fault
    run : ElasticRun or None
        None of a run that ended with an error.
    error : Exception or None
    """

    plan: tuple[Fault, ...]
    run: ElasticRun | None = None
    error: Exception | None = None
    simulated: bool = True

    @property
    def problems(self) -> list[str]:
        """Return which invariants do not hold; [] if all do, or if the run ended with an error that names a fault."""
        if self.error is not None:
            return [] if self._is_named() else [f"ended with {type(self.error).__name__}: {self.error}"]
        (losses, params, samples), _ = undisturbed(1)
        # one rank alone has nobody to compare its weights with
        alone = sum(result is not None for result in self.run.results) == 1
        silent = alone and any(isinstance(fault, FlipWeight) for fault in self.plan)
        found, struck = [], {rank for fault in self.plan for rank in fault.victims}
        for rank, result in enumerate(self.run.results):
            if result is None:  # the others have gone on without it
                found += [] if rank in struck else [f"rank {rank} was given up, and nothing had struck it"]
                continue
            if silent:
                continue
            if result[2] != samples or len(result[0]) != len(losses):
                found.append(f"rank {rank}: {result[2]} samples in {len(result[0])} steps, expected {samples}")
            elif not np.allclose(result[0], losses, rtol=0, atol=1e-9):
                first = int(np.flatnonzero(~np.isclose(result[0], losses, rtol=0, atol=1e-9))[0])
                found.append(
                    f"rank {rank}: the loss of step {first + 1} is {result[0][first]!r}, not {losses[first]!r}"
                )
            found += [
                f"rank {rank}: {name} is not that of an undisturbed run"
                for name in params
                if not np.allclose(result[1][name], params[name], rtol=0, atol=1e-9)
            ]
        for restart in self.run.restarts:
            if self.simulated and restart.rank not in struck:
                found.append(f"restarted because of rank {restart.rank}, which nothing had struck: {restart.reason}")
            if restart.seconds_down > PATIENCE:
                found.append(f"training stood still for {restart.seconds_down:.1f} s: {restart.reason}")
        return found

    def _is_named(self) -> bool:
        text = str(getattr(self.error, "original", None) or self.error)  # without the name of the rank that raised it
        if any(isinstance(f, DISK) for f in self.plan) and "can be used" in text:
            return True  # no intact checkpoint is left: starting from scratch silently would lose the run
        if "no majority agrees" in text:  # of two ranks that differ, nobody can say which is right
            return any(f.only_named for f in self.plan)
        return any(f"rank {f.rank}" in text or f"ranks {f.rank}" in text for f in self.plan if f.only_named)


def strike(plan, world=4, *, fewer: bool = False) -> Outcome:
    """Run the workload while a plan's faults strike.

    Parameters
    ----------
    plan : sequence of Fault
    world : int or EngineWorld
        A number of simulated ranks, or engines, which this kills.
    fewer : bool
        Restart with one rank fewer after every failure.
    """
    plan, simulated = tuple(plan), isinstance(world, int)
    if not simulated and any(fault.simulated_only for fault in plan):
        raise ValueError(f"strike: {plan} needs simulated ranks: processes cannot be cut off")
    world = _Simulated(world, plan) if simulated else world
    outcome = Outcome(plan, simulated=simulated)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)  # of disks that are struck
        # a busy machine may take a rank of an engine for hung
        options = {"checkpoints": folder, "every": EVERY, "fewer": fewer, "restarts": len(plan) + 2 * (not simulated)}
        try:
            outcome.run = train_through_failures(world, workload, plan, not simulated, progress_timeout=2.0, **options)
        except CommError as error:
            outcome.error = error
    return outcome


def shrink(plan, fails: Callable[[tuple], bool]) -> tuple[Fault, ...]:
    """Return a smaller plan that still fails: no fault can be left out, and steps are whole where they may be."""
    for i, fault in enumerate(plan):
        others = plan[:i], plan[i + 1 :]
        whole = dataclasses.replace(fault, step=float(int(fault.step)))
        for smaller in ((*others[0], *others[1]), (*others[0], whole, *others[1])):
            if smaller != plan and fails(smaller):
                return shrink(smaller, fails)
    return plan
