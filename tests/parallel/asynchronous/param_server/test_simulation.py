"""The event simulation gives the events of `PolicyState` and of the simulated ranks, and scales to ten thousand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.nn import SoftmaxCrossEntropy
from distlearn.optim import SGD
from distlearn.parallel.asynchronous.param_server import (
    ASP,
    BSP,
    ParameterServer,
    Speeds,
    asp,
    backup,
    bsp,
    play,
    simulate,
    softsync,
    ssp,
)
from distlearn.sim import SimWorld

from .test_training import DATA, model_of

POLICIES = [asp(), ssp(0), ssp(1), ssp(3), softsync(2), bsp(), backup(0.7), backup(0.3)]
FIELDS = ("time", "worker", "step", "used", "version", "staleness")


def assert_same_events(a, b):
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@given(
    policy=st.sampled_from(POLICIES),
    workers=st.integers(1, 14),
    steps=st.integers(1, 25),
    law=st.sampled_from(["constant", "lognormal", "pareto"]),
    slow=st.dictionaries(st.integers(0, 13), st.sampled_from([0.1, 2.0, 4.0]), max_size=3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=80, deadline=None)
def test_arrays_and_single_arrivals_agree_on_every_event(policy, workers, steps, law, slow, seed):
    """Constant speeds make ties everywhere: then lower workers come first, as on simulated ranks."""
    speeds = Speeds(workers, law=law, slow={w: f for w, f in slow.items() if w < workers}, seed=seed)
    fast = simulate(policy, speeds, steps)
    assert_same_events(fast, play(policy, speeds, steps))
    assert len(fast) == steps * workers


@pytest.mark.parametrize("law", ["constant", "lognormal", "pareto"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_simulated_ranks_agree_on_every_event(policy, law):
    """Real messages between simulated ranks, real gradients: the same arrivals, versions and staleness, to the bit."""
    speeds = Speeds(7, law=law, slow={2: 4.0}, seed=3)

    def train(comm):
        server = ParameterServer(comm, model_of(), SoftmaxCrossEntropy(), SGD(), 0.1, policy, pace=speeds)
        return server.train(DATA, batch_size=14, steps=12)

    run = SimWorld(8).run(train)[0]
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

    class Both(Forgiving):  # neither kind that runs on arrays
        name = "both"

        def may_start(self, lead):
            return lead < 5

    speeds = Speeds(9, law="pareto", seed=1)
    assert_same_events(simulate(Patient(), speeds, 20), simulate(ssp(2), speeds, 20))
    for policy in (Forgiving(), Both()):
        assert_same_events(simulate(policy, speeds, 20), play(policy, speeds, 20))
    assert {0, 1} <= set(simulate(Forgiving(), speeds, 20).staleness)


def test_ten_thousand_workers():
    """What queueing says: ASP's mean staleness is n - 1; BSP is as slow as the slowest of all; SSP lies between."""
    speeds = Speeds(10_000, law="pareto", shape=2.5, seed=4)
    runs = {str(p): simulate(p, speeds, 20) for p in (bsp(), ssp(4), asp(), backup(0.95))}
    assert runs["ASP"].histogram() @ np.arange(len(runs["ASP"].histogram())) / 200_000 == pytest.approx(9_999, rel=0.1)
    assert runs["BSP"].seconds > runs["SSP(4)"].seconds > runs["ASP"].seconds  # for equally many gradients
    slowest = speeds.table(20).max(axis=1).sum()
    assert runs["BSP"].seconds == pytest.approx(slowest, rel=1e-12)
    assert runs["backup(0.95)"].throughput > 4 * runs["BSP"].throughput
    assert "200000 updates" in repr(runs["ASP"])


def test_steps_are_checked():
    with pytest.raises(ValueError, match="steps is 0"):
        simulate(asp(), Speeds(2), 0)
    with pytest.raises(TypeError, match="simulate: policy is 'bsp', expected an object"):
        simulate("bsp", Speeds(2), 3)
