"""Training on real engines that are killed, stopped and hung on the way: the right model every time."""

import os
import signal
import time

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.parallel.checkpoint.store import Checkpoint, CheckpointStore
from distlearn.sim import SimWorld
from distlearn.train import Settings, train
from distlearn.world import EngineWorld, Restart, train_through_failures
from distlearn.world.elastic import _Log

from ..parallel.programs import assert_same_params
from .conftest import living

pytestmark = [pytest.mark.engines, pytest.mark.timeout(240)]
SIZE, STEP_SECONDS, EVERY = 4, 0.015, 10
PATIENCE = 2.0
"""Longer than any pause of a machine that does other things, too; reports come ten times a second."""
SETTINGS = Settings(hidden=(10,), dtype="float64", batch_size=30, n_train=300, evaluate_every=0)


def slowly(comm, settings, *, stuck=None, **options):
    """Train with a pause after every step; a rank may fall asleep forever at a step, if a file says so."""
    real = comm.report
    slept = None if stuck is None else f"{stuck[2]}-{comm.rank}"

    def report(step, total, **values):
        real(step, total, **values)
        if stuck and comm.rank == stuck[0] and step == stuck[1] and not os.path.exists(slept):
            open(slept, "w", encoding="utf-8").close()
            time.sleep(1000)
        time.sleep(STEP_SECONDS)

    comm.report = report
    return train(comm, settings, **options)


@pytest.fixture(scope="module")
def world():
    with EngineWorld(SIZE, progress=False, timeout=100) as made:
        yield made


class Disasters:
    """Lets something happen to a rank as soon as a step is reported: (step, rank, what)."""

    def __init__(self, world, plan):
        self.world, self.plan = world, list(plan)
        self._struck = None

    def __call__(self, step, total, **values):
        pids = self.world._ranks.pids
        if not self.plan or step < self.plan[0][0] or pids == self._struck:  # one disaster for each set of engines
            return
        self._struck = pids
        _, rank, what = self.plan.pop(0)
        os.kill(pids[rank], signal.SIGSTOP if what == "stop" else signal.SIGKILL)


def go(world, folder, plan, epochs, **options):
    """Train through disasters; return the run."""
    disasters = Disasters(world, plan)
    world.progress = disasters
    try:
        run = train_through_failures(
            world, slowly, SETTINGS.but(epochs=epochs), checkpoints=folder, every=EVERY, **{"restarts": 12, **options}
        )
    finally:
        world.progress = False
    assert not disasters.plan
    return run


def check(run, epochs, disasters):
    """The model and every loss are those of an undisturbed run."""
    want = SimWorld(1).run(train, SETTINGS.but(epochs=epochs, strategy="serial"))[0]
    assert len(run.restarts) == disasters
    assert_same_params(run.results[0].params, want.params)
    np.testing.assert_allclose(run.results[0].history.losses, want.history.losses, atol=1e-12)
    assert run.results[0].history.recoveries is run.restarts
    for restart in run.restarts:
        assert restart.noticed < restart.resumed < run.seconds
        assert restart.step % EVERY == 0


def test_what_was_lost_is_counted_from_the_checkpoint_that_was_used(tmp_path):
    """Reports are missed, the newest checkpoint may be torn, and ranks may fail again before the first step."""
    shown = []
    store = CheckpointStore(tmp_path)
    for saved in (10, 20):
        store.save(Checkpoint(saved))
    os.truncate(store.path(20), 99)
    log = _Log(store, lambda *report, **values: shown.append(report))
    for step in (1, 5, 12, 25):
        log(step, 50, samples=30 * step)
    now = log.now()
    first, second = Restart(1, "killed", 4, now), Restart(2, "killed again", 4, now + 1)
    log.failed(first)
    log.failed(second)
    log(13, 50, samples=390)  # 20 was torn, and the reports of 11 and 12 were missed
    log(26, 50, samples=780)
    assert (first.reached, first.step, first.steps_lost) == (25, 25, 0)
    assert (second.reached, second.step, second.steps_lost) == (25, 10, 15)
    assert "from step 10 (at least 15 steps lost)" in str(second)  # reports of later steps may have been missed
    assert second.seconds_down == second.resumed - second.noticed
    assert log.done == 26
    assert len(shown) == 6


@pytest.mark.nightly
def test_on_fewer_and_fewer_ranks(world, tmp_path):
    """Three kills, from 4 ranks down to 1; then the world is what it was."""
    try:
        run = go(world, tmp_path, [(12, 2, "kill"), (31, 0, "kill"), (47, 1, "kill")], 6, fewer=True)
    finally:
        world.resize(SIZE)
    check(run, 6, 3)
    assert [r.size for r in run.restarts] == [3, 2, 1]
    assert len(run.results) == 1
    assert world.run(lambda comm: comm.size) == [SIZE] * SIZE


@pytest.mark.nightly
def test_a_stopped_process_is_named(world, tmp_path):
    run = go(world, tmp_path, [(14, 2, "stop")], 4, progress_timeout=PATIENCE)
    check(run, 4, 1)
    assert [r.rank for r in run.restarts] == [2]
    assert all("is stopped" in r.reason for r in run.restarts)


@pytest.mark.nightly
def test_a_rank_that_sleeps_forever_while_the_others_wait_is_named(world, tmp_path):
    stuck = (3, 11, str(tmp_path / "slept"))
    run = go(world, tmp_path, [], 4, progress_timeout=PATIENCE, stuck=stuck)
    check(run, 4, 1)
    assert run.restarts[0].rank == 3
    assert "in report; there was no progress for 2 s" in run.restarts[0].reason


def test_a_programs_own_error_is_not_tried_again(world, tmp_path):
    def wrong(comm, **options):
        raise ValueError("my mistake")

    with pytest.raises(RankError, match="my mistake"):
        train_through_failures(world, wrong, checkpoints=tmp_path)


def test_too_many_failures_surface(world, tmp_path):
    pids = world.pids
    with pytest.raises(RankError, match=r"rank 0: its process .* was killed"):
        go(world, tmp_path, [(3, 0, "kill")], 3, restarts=0)
    time.sleep(0.2)
    assert not living(pids)
