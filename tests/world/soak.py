"""A soak: minutes of training on real engines with a kill every now and then, and a table of the recoveries.

    make soak                                     half an hour, a kill every two minutes
    SOAK_MINUTES=3 SOAK_EVERY=30 make soak

Ends with exit code 1 if a kill was noticed late, training came back late, the model is not that of an undisturbed run,
or a process is left behind.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time

import numpy as np
import psutil

from distlearn.sim import SimWorld
from distlearn.testing import assert_same_params
from distlearn.train import Settings, train
from distlearn.world import EngineWorld, train_through_failures

MINUTES = float(os.environ.get("SOAK_MINUTES", 30))
EVERY = float(os.environ.get("SOAK_EVERY", 120))
SIZE, STEP_SECONDS = 4, 0.05
STEPS_SAVED = max(1, min(100, round(EVERY / STEP_SECONDS / 10)))  # often enough to get on between two kills
NOTICED, RESUMED = 5.0, 15.0
"""The longest that a kill may go unnoticed, and that training may stand still [s]."""

SETTINGS = Settings(hidden=(32,), dtype="float64", batch_size=60, n_train=1200, evaluate_every=0)


def slowly(comm, settings, **options):
    """Train with a pause after every step, so that minutes of training are not gigabytes of losses."""
    real = comm.report

    def report(step, total, **values):
        real(step, total, **values)
        time.sleep(STEP_SECONDS)

    comm.report = report
    return train(comm, settings, **options)


class Killer(threading.Thread):
    """Kills a random rank every `EVERY` seconds, once training has gone on since the last time."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.kills, self.over = world, [], threading.Event()
        self._struck, self._moved = None, False

    def progress(self, step, total, **values) -> None:
        """Note that training goes on."""
        self._moved = True

    def run(self) -> None:
        """Kill until it is over."""
        dice = random.Random(0)
        while not self.over.wait(EVERY):
            pids = self.world._ranks.pids
            if pids == self._struck or not self._moved:
                continue
            rank = dice.randrange(SIZE)
            self._struck, self._moved = pids, False
            with contextlib.suppress(ProcessLookupError):  # it has died by itself
                os.kill(pids[rank], signal.SIGKILL)
                self.kills.append((time.perf_counter(), rank))


def family() -> list[str]:
    """Command lines of the processes that this one has started, directly or not."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(process.cmdline())[:100])
    return [line for line in found if line]


def table(run, kills, began: float) -> bool:
    """Print the recoveries; return whether every one was quick enough."""
    heads = (("at [s]", 8), ("rank", 5), ("named", 6), ("noticed [s]", 12), ("resumed [s]", 12), ("steps lost", 11))
    print(*(f"{head:>{width}}" for head, width in (*heads, ("samples", 8))))
    good, noticed, resumed = True, [], []
    for (when, rank), restart in zip(kills, run.restarts, strict=True):
        at = when - began
        noticed.append(restart.noticed - at)
        resumed.append(restart.resumed - at)
        good &= noticed[-1] < NOTICED and resumed[-1] < RESUMED
        print(
            f"{at:8.0f} {rank:5d} {restart.rank!s:>6} {noticed[-1]:12.2f} {resumed[-1]:12.1f} "
            f"{restart.steps_lost:11d} {restart.samples_lost:8d}"
        )
    lost = sum(r.seconds_lost for r in run.restarts)
    if noticed:
        print(f"median {np.median(noticed):32.2f} {np.median(resumed):12.1f}")
        print(f"longest {max(noticed):31.2f} {max(resumed):12.1f}")
    right = sum(restart.rank == rank for (_, rank), restart in zip(kills, run.restarts, strict=True))
    print(f"{right} of {len(kills)} named rightly")  # all die within a millisecond: a crowded machine may look too late
    print(f"{len(kills)} kills in {run.seconds:.0f} s; {lost:.0f} s lost ({lost / run.seconds:.1%})")
    return good


def main() -> int:
    """Soak; return the exit code."""
    steps_an_epoch = -(-SETTINGS.n_train // SETTINGS.batch_size)
    settings = SETTINGS.but(epochs=max(1, round(MINUTES * 60 / (STEP_SECONDS + 0.01) / steps_an_epoch)))
    print(f"{SIZE} engines, {settings.epochs * steps_an_epoch} steps, a kill every {EVERY:g} s", flush=True)
    with tempfile.TemporaryDirectory() as folder, EngineWorld(SIZE, progress=False) as world:
        killer = Killer(world)
        world.progress = killer.progress
        began = time.perf_counter()
        killer.start()
        options = {"checkpoints": folder, "every": STEPS_SAVED, "restarts": 10_000}
        run = train_through_failures(world, slowly, settings, **options)
        killer.over.set()
        killer.join()
    kills = killer.kills[: len(run.restarts)]  # the last one may have come when training was over
    good = len(kills) == len(run.restarts) and table(run, kills, began)
    if len(kills) < len(run.restarts):
        print(f"{len(run.restarts)} restarts after {len(kills)} kills:", *run.restarts, sep="\n  ")
    want = SimWorld(1).run(train, settings.but(strategy="serial"))[0]
    try:
        assert_same_params(run.results[0].params, want.params)
        np.testing.assert_allclose(run.results[0].history.losses, want.history.losses, atol=1e-9)
        print("the model is that of an undisturbed run")
    except AssertionError as error:
        print(f"the model differs: {error}")
        good = False
    psutil.wait_procs(psutil.Process().children(recursive=True), timeout=5)
    if left := family():
        print("left behind:", *left, sep="\n  ")
        good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
