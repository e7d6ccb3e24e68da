"""Policies, their state and the rates: who waits for whom, and what staleness is."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.parallel.asynchronous.param_server import (
    ASP,
    PolicyError,
    PolicyState,
    Speeds,
    asp,
    backup,
    bsp,
    constant,
    inverse,
    softsync,
    ssp,
)


# -- each policy, by hand
def test_backup_drops_the_late_one_and_lets_it_go_on():
    state = PolicyState(backup(0.5), 4)
    state.arrive(0, 0)
    assert state.arrive(1, 0).released == (0, 1)
    late = state.arrive(2, 0)
    assert (late.taken, late.staleness, late.released, state.dropped) == (False, 1, (2,), 1)
    assert state.arrive(2, 1).taken


def test_softsync_collects_without_waiting():
    state = PolicyState(softsync(2), 4)
    assert state.arrive(0, 0).released == (0,)
    assert state.version == 0
    decision = state.arrive(0, 0)  # the same worker again, at the same version
    assert [(h.worker, h.step) for h in decision.merged] == [(0, 0), (0, 1)]
    assert decision.released == (0,)


@pytest.mark.parametrize(
    ("policy", "workers", "quorum"),
    [(asp(), 10, 1), (ssp(3), 10, 1), (bsp(), 10, 10), (backup(0.7), 10, 7), (backup(0.65), 10, 7), (backup(1), 3, 3),
     (backup(0.01), 10, 1), (softsync(1), 10, 10), (softsync(3), 10, 3), (softsync(20), 10, 1)],
)  # fmt: skip
def test_quorum(policy, workers, quorum):
    assert policy.quorum(workers) == quorum


@pytest.mark.parametrize("make", [lambda: ssp(-1), lambda: ssp(1.5), lambda: backup(0), lambda: backup(1.1),
                                  lambda: backup("a"), lambda: softsync(0)])  # fmt: skip
def test_policies_refuse_nonsense(make):
    with pytest.raises(ValueError, match=r"(bound|share|splits) is"):
        make()


# -- the state of a policy, for any speeds
ANY_POLICY = st.one_of(
    st.just(asp()),
    st.just(bsp()),
    st.builds(ssp, st.integers(0, 4)),
    st.builds(backup, st.floats(0.05, 1)),
    st.builds(softsync, st.integers(1, 6)),
)


@given(policy=ANY_POLICY, workers=st.integers(1, 7), data=st.data())
@settings(max_examples=120, deadline=None)
def test_whatever_the_order_of_arrivals(policy, workers, data):
    """A random one of the computing workers ends its step, or leaves: nothing is lost, nobody waits forever."""
    state = PolicyState(policy, workers)
    used, given = dict.fromkeys(range(workers), 0), 0
    merged = []
    while used:
        worker = data.draw(st.sampled_from(sorted(used)))
        leaves = data.draw(st.integers(0, 30)) == 0 or given >= 60
        version = used.pop(worker)
        if leaves:
            decision = state.leave(worker)
        else:
            given += 1
            before = state.version
            decision = state.arrive(worker, version)
            assert decision.staleness == before - version
        merged += decision.merged
        assert state.version == before + bool(decision.merged) if not leaves else True
        for released in decision.released:
            lead = state.clocks[released] - min(state.clocks[w] for w in state.active)
            assert policy.may_start(lead)
            assert released in state.active
            assert released not in used
            used[released] = state.version
        if isinstance(policy, type(ssp(0))) and state.active:
            computing = [state.clocks[w] for w in used]
            assert max(computing) - min(state.clocks[w] for w in state.active) <= policy.bound
        if state.active:
            assert used, "somebody computes, always"
            assert state.slowest == min(state.clocks[w] for w in state.active)
    assert len(merged) + state.dropped == given == sum(state.clocks)
    assert len({(h.worker, h.step) for h in merged}) == len(merged)


def test_who_leaves_is_not_waited_for():
    state = PolicyState(bsp(), 3)
    state.arrive(0, 0), state.arrive(1, 0)
    decision = state.leave(2)
    assert len(decision.merged) == 2
    assert decision.released == (0, 1)
    ahead = PolicyState(ssp(0), 2)
    assert ahead.arrive(0, 0).released == ()
    assert ahead.leave(1).released == (0,)


def test_the_state_refuses_what_cannot_be():
    state = PolicyState(bsp(), 2)
    with pytest.raises(ValueError, match="used version 1, but the server is at 0"):
        state.arrive(0, 1)
    state.arrive(0, 0)
    with pytest.raises(ValueError, match="worker 0 sent a gradient while it must wait"):
        state.arrive(0, 0)
    state.leave(1)
    with pytest.raises(ValueError, match="worker 1 has left already"):
        state.leave(1)
    with pytest.raises(ValueError, match="workers is 0"):
        PolicyState(asp(), 0)


def test_a_policy_that_stops_everybody_is_named():
    class Never(ASP):
        name = "never"

        def may_start(self, lead):
            return False

    with pytest.raises(PolicyError, match="policy never releases no worker: all 1 workers wait"):
        PolicyState(Never(), 1).arrive(0, 0)


# -- rates
@pytest.mark.parametrize("rate", [constant, inverse])
def test_a_fresh_gradient_counts_in_full(rate):
    assert rate(0, 0) == rate(0, 7) == 1.0
    factors = [rate(staleness, 10) for staleness in range(20)]
    assert all(a >= b > 0 for a, b in itertools.pairwise(factors))


def test_the_inverse_rate_is_the_published_one():
    assert [inverse(t, 0) for t in (1, 2, 5)] == [1, 1 / 2, 1 / 5]


# -- speeds
@pytest.mark.parametrize("law", ["constant", "lognormal", "pareto"])
def test_speeds_have_their_mean_and_no_memory(law):
    speeds = Speeds(2000, seconds=3.0, law=law, shape={"pareto": 3.0}.get(law), slow={7: 4.0}, seed=1)
    again = Speeds(2000, seconds=3.0, law=law, shape={"pareto": 3.0}.get(law), slow={7: 4.0}, seed=1)
    table = np.array([speeds.step_times(step) for step in range(30)])
    assert again(5, 9) == speeds.step_times(9)[5] == table[9, 5]
    assert np.delete(table, 7, axis=1).mean() == pytest.approx(3.0, rel=0.02)
    assert table[:, 7].mean() > 8
    other = Speeds(2000, seconds=3.0, law=law, seed=2).step_times(0)
    assert np.array_equal(other[:7], table[0, :7]) == (law == "constant")


@pytest.mark.parametrize("options", [{"law": "gauss"}, {"law": "pareto", "shape": 1.0}, {"slow": {9: 2.0}},
                                     {"slow": {0: 0.0}}, {"seconds": 0.0}, {"workers": 0}])  # fmt: skip
def test_speeds_refuse_nonsense(options):
    with pytest.raises(ValueError, match="Speeds:"):
        Speeds(**({"workers": 4} | options))
