"""More faults for `distcourse.nemesis`, drawn at random, on simulated and on real ranks alike.

    draw(seed, size) --> plan --> strike(plan, size or EngineWorld) --> problems(outcome) --> shrink(plan, fails)

The menu is that of torchft. A plan's repr can be pasted into a test.
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
from distcourse import nemesis
from distcourse.nemesis import BATCH, EPOCHS, PATIENCE, SAMPLES, Fault, FlipFile, Kill, differences, flip, mark, marked

from distlearn.comm.base import CommError, CutOffError, PeerLostError, RankError
from distlearn.comm.network import Network
from distlearn.parallel.checkpoint.store import CheckpointStore
from distlearn.sim import Failure, Roofline, SimWorld

STEPS = EPOCHS * SAMPLES // BATCH
NETWORK, COMPUTE = Network(1e-5, 1e9), Roofline(1e8)
LOST = (PeerLostError, CutOffError)


@dataclass(frozen=True)
class Hang(Fault):
    """A rank's process is suspended and never resumes."""

    rank: int

    def strike_rank(self, comm, model):
        os.kill(os.getpid(), signal.SIGSTOP)


@dataclass(frozen=True)
class Slow(Fault):
    """A rank takes longer over the next steps; nobody may take it for dead."""

    rank: int

    def strike_rank(self, comm, model):
        time.sleep(0.3)


@dataclass(frozen=True)
class Late(Fault):
    """A rank's messages arrive late, but before anyone takes it for dead."""

    rank: int

    def strike_rank(self, comm, model):
        time.sleep(0.1)


@dataclass(frozen=True)
class Partition(Fault):
    """Some ranks are cut off from the others for good; processes of one machine cannot be."""

    ranks: tuple[int, ...]

    @property
    def victims(self):
        return self.ranks


@dataclass(frozen=True)
class Lost(Fault):
    """The next gradient that a rank sends is lost, and the rank does not notice."""

    rank: int

    def strike_rank(self, comm, model):
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

    def strike_rank(self, comm, model):
        flip(model.params[0].data.view(np.uint8).reshape(-1), self.bit)


@dataclass(frozen=True)
class FullDisk(Fault):
    """There is no room for a checkpoint."""

    def strike_file(self, path):
        os.remove(path)
        raise OSError(errno.ENOSPC, "No space left on device")


@dataclass(frozen=True)
class Truncate(Fault):
    """A checkpoint loses its second half."""

    def strike_file(self, path):
        os.truncate(path, path.stat().st_size // 2)


DISK = (FullDisk, Truncate, FlipFile)
NAMED = (Lost, FlipWeight)
"""Nothing repairs them: the run may end with an error that names the rank."""
FAILURES = {
    Kill: lambda f, at, step: [Failure(f.rank, at)],
    Hang: lambda f, at, step: [Failure(f.rank, at, "hang")],
    Slow: lambda f, at, step: [Failure(f.rank, at, "hang", at + 3 * step)],
    Late: lambda f, at, step: [Failure(f.rank, at, "cut", at + 3 * step)],
    Partition: lambda f, at, step: [Failure(rank, at, "cut") for rank in f.ranks],
}
"""By kind of fault, what it is on simulated ranks; `step` is how long one takes [virtual s]."""
MENU = (*FAILURES, *NAMED, *DISK)


def draw(seed: int, size: int, *, menu=MENU, most: int = 4) -> tuple[Fault, ...]:
    """Draw a plan of up to `most` faults of a world of `size` ranks."""
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


@functools.cache
def times(size: int) -> np.ndarray:
    """Return the virtual time at the end of every step of a run without faults."""
    world = SimWorld(size, NETWORK, COMPUTE)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        world.run(nemesis.workload, (), checkpoints=folder)
    return np.array([0.0, *(span.end for span in world.trace.select(rank=0, name="update"))])


class Simulated:
    """What `train_through_failures` needs of an `EngineWorld`, on simulated ranks that fail by a plan."""

    def __init__(self, size: int):
        self.size, self.progress, self.times = size, None, times(size)

    def resize(self, size: int) -> None:
        """Go on with so many ranks."""
        self.size = size

    def run(self, program, plan, *, checkpoints, progress_timeout=None, **options) -> list:
        """Run until a rank is declared lost."""
        done, period, due = max(CheckpointStore(checkpoints).steps, default=0), self.times[-1] / STEPS, {}
        for i, fault in enumerate(plan):
            at = float(np.interp(fault.step, range(STEPS + 1), self.times) - self.times[done])
            for failure in FAILURES.get(type(fault), lambda *_: [])(fault, max(0.0, at), period):
                if failure.rank < self.size and not marked(checkpoints, i):
                    due[failure] = i
        world = SimWorld(self.size, NETWORK, COMPUTE, report=self.progress, failures=list(due), detection=5 * period)
        others = tuple(Fault(f.step) if type(f) in FAILURES else f for f in plan)
        try:
            results = world.run(program, others, checkpoints=checkpoints, **options)
        except CommError as error:
            if not isinstance(getattr(error, "original", error), LOST) or not world.losses:
                raise
        for failure, i in due.items():
            if failure.at <= world.makespan:
                mark(checkpoints, i)
        if world.losses:
            raise RankError(world.losses[0].rank, str(world.losses[0]), lost=True)
        return results


def strike(plan, world=4, **options) -> nemesis.Outcome:
    """Strike engines, or a number of simulated ranks."""
    return nemesis.strike(plan, Simulated(world) if isinstance(world, int) else world, **options)


def problems(outcome: nemesis.Outcome, simulated: bool = True) -> list[str]:
    """Return which invariants do not hold; [] if all do, or if the run ended with an error that names a fault."""
    if outcome.error is not None:
        return [] if is_named(outcome) else outcome.problems
    results = outcome.run.results
    # one rank alone has nobody to compare its weights with
    alone = sum(result is not None for result in results) == 1
    silent = alone and any(isinstance(fault, FlipWeight) for fault in outcome.plan)
    found, struck = [], {rank for fault in outcome.plan for rank in fault.victims}
    for rank, result in enumerate(results):
        if result is None:  # the others have gone on without it
            found += [] if rank in struck else [f"rank {rank} was given up, and nothing had struck it"]
        elif not silent:
            found += differences(rank, result)
    for restart in outcome.run.restarts:
        if simulated and restart.rank not in struck:
            found.append(f"restarted because of rank {restart.rank}, which nothing had struck: {restart.reason}")
        if restart.seconds_down > PATIENCE:
            found.append(f"training stood still for {restart.seconds_down:.1f} s: {restart.reason}")
    if simulated and len(outcome.run.restarts) > len(outcome.plan):
        found.append(f"{len(outcome.run.restarts)} restarts for {len(outcome.plan)} faults")
    return found


def is_named(outcome: nemesis.Outcome) -> bool:
    """Return whether the error that ended a run names what struck it."""
    plan = outcome.plan
    text = str(getattr(outcome.error, "original", None) or outcome.error)  # without the rank that raised it
    if any(isinstance(f, DISK) for f in plan) and "can be used" in text:
        return True  # no intact checkpoint is left: starting from scratch silently would lose the run
    if "no majority agrees" in text:  # of two ranks that differ, nobody can say which is right
        return any(isinstance(f, NAMED) for f in plan)
    return any(f"rank {f.rank}" in text or f"ranks {f.rank}" in text for f in plan if isinstance(f, NAMED))


def shrink(plan, fails: Callable[[tuple], bool]) -> tuple[Fault, ...]:
    """Return a smaller plan that still fails: no fault can be left out, and steps are whole where they may be."""
    for i, fault in enumerate(plan):
        others = plan[:i], plan[i + 1 :]
        whole = dataclasses.replace(fault, step=float(int(fault.step)))
        for smaller in ((*others[0], *others[1]), (*others[0], whole, *others[1])):
            if smaller != plan and fails(smaller):
                return shrink(smaller, fails)
    return plan
