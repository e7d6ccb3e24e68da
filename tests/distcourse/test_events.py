"""The event simulation gives the events of the simulated ranks, and scales to thousands of workers."""

import numpy as np
import pytest
from distcourse.events import simulate

from distlearn.parallel.asynchronous.param_server import (
    ASP,
    BSP,
    Speeds,
    asp,
    backup,
    bsp,
    softsync,
    ssp,
)
from distlearn.sim import SimWorld

from ..parallel.asynchronous.param_server.test_training import program

POLICIES = [asp(), ssp(0), ssp(1), ssp(3), softsync(2), bsp(), backup(0.7), backup(0.3)]
FIELDS = ("time", "worker", "step", "used", "version", "staleness")


@pytest.mark.parametrize("law", ["constant", "lognormal", "pareto"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_simulated_ranks_agree_on_every_event(policy, law):
    """Real messages between simulated ranks, real gradients: the same arrivals, versions and staleness, to the bit."""
    speeds = Speeds(7, law=law, slow={2: 4.0}, seed=3)
    run = SimWorld(8).run(program, policy, pace=speeds, batch=14, steps=12)[0]
    events = simulate(policy, speeds, 12)
    table = run.gradients[np.lexsort((run.gradients["worker"], run.gradients["arrived"]))]
    for name in FIELDS:
        column = table["arrived" if name == "time" else name]
        np.testing.assert_array_equal(column, getattr(events, name), err_msg=name)
    assert run.histogram().tolist() == events.histogram().tolist()
    assert (run.updates, run.dropped) == (events.updates, events.dropped)


def test_a_policy_of_ones_own_runs_too():
    class Patient(ASP):  # as SSP(2), by its own words
        name = "patient"

        def may_start(self, lead):
            return lead < 3

    class Forgiving(BSP):  # waits for two thirds, and takes gradients that are one version old
        name = "forgiving"

        def quorum(self, workers):
            return 2 * workers // 3

        def takes(self, staleness):
            return staleness < 2

    speeds = Speeds(9, law="pareto", seed=1)
    patient, two = simulate(Patient(), speeds, 20), simulate(ssp(2), speeds, 20)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(patient, name), getattr(two, name), err_msg=name)
    assert {0, 1} <= set(simulate(Forgiving(), speeds, 20).staleness)


def test_a_synchronous_step_takes_as_long_as_its_slowest_worker():
    speeds = Speeds(1_000, law="pareto", shape=2.5, seed=4)
    run, slowest = simulate(bsp(), speeds, 20), sum(speeds.step_times(step).max() for step in range(20))
    assert (run.seconds, run.throughput) == pytest.approx((slowest, 20 / slowest), rel=1e-12)


def test_steps_are_checked():
    with pytest.raises(ValueError, match="steps is 0"):
        simulate(asp(), Speeds(2), 0)
    with pytest.raises(TypeError, match="simulate: policy is 'bsp', expected an object"):
        simulate("bsp", Speeds(2), 3)
