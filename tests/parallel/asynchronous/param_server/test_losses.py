"""A parameter server that loses workers: nobody waits for the dead, and training goes on."""

import numpy as np
import pytest

from distlearn.comm import Network, RankError
from distlearn.parallel.asynchronous.param_server import Speeds, asp, bsp, inverse, ssp
from distlearn.sim import Failure, Roofline, SimWorld

from .test_training import POLICIES, assert_made_of_its_gradients
from .test_training import program as train

PARTS = Network(1e-4, 1e8), Roofline(1e9)
STEPS = 9


def program(comm, policy, **options):
    """Train; the run on the server, None on all other ranks."""
    workers = comm.size - 1
    speeds = Speeds(workers, law="lognormal", shape=0.4, seed=5)
    return train(comm, policy, pace=lambda worker, step: speeds(worker % workers, step), **options)


def failing(size, *failures, detection=0.5, seed=0):
    return SimWorld(size, *PARTS, failures=failures, detection=detection, seed=seed)


def sound_seconds(size, *args, **options):
    world = SimWorld(size, *PARTS)
    world.run(program, *args, **options)
    return world.makespan


# -- workers
@pytest.mark.parametrize("kind", ["kill", "hang", "cut"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_dead_worker_is_dropped_and_training_goes_on(policy, kind):
    """Every update is made of the gradients that the record names, recomputed here; the dead one gives no more."""
    seconds = sound_seconds(6, policy)
    world = failing(6, Failure(3, 0.4 * seconds, kind))
    run = world.run(program, policy, batch=25, every=1, rate=inverse)[0]
    assert_made_of_its_gradients(run)
    gradients = run.gradients
    by_worker = np.bincount(gradients["worker"], minlength=5)
    assert 0 < by_worker[2] < by_worker.max()
    assert gradients["arrived"][gradients["worker"] == 2].max() < 0.4 * seconds + 0.01
    assert gradients["time"].max() > 0.4 * seconds + 0.5  # well after the loss was noticed
    assert len(gradients) == 5 * STEPS  # its steps were done by others


@pytest.mark.parametrize("policy", [bsp(), ssp(1)], ids=str)
def test_who_waits_waits_for_the_detection_time_and_not_for_ever(policy):
    seconds = sound_seconds(4, policy)
    world = failing(4, Failure(2, 0.5 * seconds))
    run = world.run(program, policy)[0]
    pause = np.diff(np.sort(run.gradients["time"])).max()
    assert 0.4 < pause < 0.5 + 0.5 * seconds
    assert {2} == {loss.rank for loss in world.losses}


def test_asynchronous_training_does_not_even_pause():
    seconds = sound_seconds(6, asp(), steps=30)
    world = failing(6, Failure(4, 0.3 * seconds), detection=seconds / 4)
    run = world.run(program, asp(), steps=30)[0]
    assert np.diff(np.sort(run.gradients["time"])).max() < seconds / 8


@pytest.mark.parametrize("policy", [asp(), bsp()], ids=str)
def test_training_that_has_lost_all_its_workers_is_not_taken_for_done(policy):
    seconds = sound_seconds(3, policy)
    both = Failure(1, 0.4 * seconds), Failure(2, 0.5 * seconds)
    with pytest.raises(RankError, match=r"rank 0: .*all 2 workers are lost, after [3-9] updates"):
        failing(3, *both).run(program, policy)


def test_a_worker_that_is_lost_when_it_was_told_to_stop_costs_no_step_more():
    """Its farewell is lost with it; nobody may get a step in its place, and training has ended well."""
    sound = SimWorld(4, *PARTS)
    sound.run(program, asp())
    ends = {w: max(m.arrived for m in sound.trace.messages if m.dest == w) for w in (1, 2, 3)}
    first = min(ends, key=ends.get)
    run = failing(4, Failure(first, ends[first] + 1e-7), detection=1e-6).run(program, asp())[0]
    assert len(run.gradients) == 3 * STEPS
    alone = SimWorld(2, *PARTS)
    alone.run(program, asp())
    told = max(m.arrived for m in alone.trace.messages if m.dest == 1)
    run = failing(2, Failure(1, told + 1e-7), detection=1e-6).run(program, asp())[0]
    assert len(run.gradients) == STEPS


@pytest.mark.parametrize("policy", [asp(), bsp()], ids=str)
def test_the_last_words_of_a_worker_may_come_after_the_news_of_its_loss(policy):
    """The detector is quicker than a message; then a gradient, or a farewell, comes from one that was let go."""
    sound = SimWorld(4, *PARTS)
    sound.run(program, policy)
    told = sorted({m.sent for m in sound.trace.messages if m.source == 2})
    for at in [*told[len(told) // 2 :: 5], told[-1]]:  # the last is the farewell
        world = failing(4, Failure(2, at + 1e-6), detection=1e-6)
        run = world.run(program, policy)[0]
        assert len(run.gradients) >= 3 * STEPS
        assert np.isfinite(run.losses).all()


def test_the_loss_of_the_server_ends_training_and_names_it():
    seconds = sound_seconds(3, bsp())
    with pytest.raises(RankError, match="rank 0 was killed"):
        failing(3, Failure(0, 0.5 * seconds)).run(program, bsp())
