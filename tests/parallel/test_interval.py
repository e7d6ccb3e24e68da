"""How often to save: the formulas, and a simulation that knows nothing of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.parallel import (
    daly_interval,
    expected_time,
    simulate_run,
    study_intervals,
    system_mtbf,
    young_interval,
)

DAY, HOUR = 86400.0, 3600.0


def test_the_formulas_give_the_numbers_of_a_hand_calculation():
    assert young_interval(300.0, 24 * HOUR) == pytest.approx(math.sqrt(2 * 300 * 86400))
    x = 300 / (2 * 86400)
    by_hand = math.sqrt(2 * 300 * 86400) * (1 + math.sqrt(x) / 3 + x / 9) - 300
    assert daly_interval(300.0, 24 * HOUR) == pytest.approx(by_hand)
    assert daly_interval(300.0, 100.0) == 100.0  # a checkpoint takes longer than a failure lets it
    assert system_mtbf(10 * DAY, 20) == DAY / 2


@given(cost=st.floats(1, 600), mtbf=st.floats(2000, 1e6), restart=st.floats(0, 1000))
@settings(max_examples=50, deadline=None)
def test_daly_is_within_a_thousandth_of_the_best_of_his_formula_and_better_than_young(cost, mtbf, restart):
    times = np.geomspace(cost / 10, 20 * mtbf, 4000)
    best = expected_time(DAY, times, cost, restart, mtbf).min()
    daly = expected_time(DAY, daly_interval(cost, mtbf), cost, restart, mtbf)
    young = expected_time(DAY, young_interval(cost, mtbf), cost, restart, mtbf)
    assert best * (1 - 1e-6) <= daly <= best * 1.001
    assert daly <= young * (1 + 1e-5)


def test_without_failures_a_run_takes_its_work_and_its_checkpoints():
    seconds = simulate_run(1000.0, 100.0, 7.0, 50.0, 1e12, runs=3)
    np.testing.assert_allclose(seconds, 1000 + 10 * 7)
    np.testing.assert_allclose(simulate_run(250.0, 100.0, 7.0, 50.0, 1e12, runs=1), 250 + 3 * 7)


@pytest.mark.parametrize("nodes", [1, 40])
@pytest.mark.parametrize("interval", [200.0, 1000.0, 4000.0])
def test_the_simulated_mean_is_the_formulas(nodes, interval):
    mtbf, cost, restart = 5000.0, 60.0, 200.0
    seconds = simulate_run(40_000.0, interval, cost, restart, mtbf * nodes, nodes=nodes, runs=400, seed=1)
    expected = expected_time(40_000.0, interval, cost, restart, mtbf)
    error = seconds.std() / math.sqrt(len(seconds))
    assert abs(seconds.mean() - expected) < 4 * error
    assert error < 0.02 * expected


def test_two_simulations_are_the_same_and_other_seeds_are_not():
    first, again = (simulate_run(1e5, 900.0, 30.0, 60.0, 7000.0, runs=5, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, simulate_run(1e5, 900.0, 30.0, 60.0, 7000.0, runs=5, seed=4))


@pytest.mark.parametrize(("cost", "node_mtbf", "nodes"), [(60.0, 30 * DAY, 100), (300.0, 365 * DAY, 1000)])
def test_the_simulated_best_interval_is_the_predicted_one(cost, node_mtbf, nodes):
    """The minimum is flat, so the place of the lowest point is known less well than its height."""
    study = study_intervals(5 * DAY, cost, 2 * cost, node_mtbf, nodes=nodes, runs=120, span=8, points=13)
    assert study.best == pytest.approx(study.daly, rel=0.2)
    assert study.young == pytest.approx(study.daly, rel=0.1)
    means = study.seconds.mean(axis=1)
    at_daly = study.predict(study.daly)
    assert means.min() == pytest.approx(at_daly, rel=0.01)
    assert means[0] > 1.1 * means.min() < means[-1] / 1.1
    np.testing.assert_allclose(means, study.predict(study.intervals), rtol=0.05)


def test_failures_that_come_in_clusters_cost_less_than_the_formula_says():
    """With Weibull shape 0.7 long quiet times lie between clusters; the formula is made for pure chance."""
    options = {"nodes": 1, "runs": 400, "seed": 2}
    clustered = simulate_run(20 * DAY, 2000.0, 100.0, 300.0, 20_000.0, shape=0.7, **options).mean()
    random = simulate_run(20 * DAY, 2000.0, 100.0, 300.0, 20_000.0, shape=1.0, **options).mean()
    assert clustered < random


@pytest.mark.parametrize("wrong", [{"cost": 0.0}, {"mtbf": -1.0}])
def test_times_that_are_none_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} is .*, expected a time above 0 s"):
        young_interval(**({"cost": 1.0, "mtbf": 1.0} | wrong))


def test_what_is_wrong_with_a_simulated_run_is_named():
    right = {"work": 100.0, "interval": 10.0, "cost": 1.0, "restart": 0.0, "node_mtbf": 50.0, "runs": 2}
    assert simulate_run(**right).shape == (2,)
    for wrong, said in (
        ({"nodes": 0}, "nodes is 0, expected a whole number of 1 or more"),
        ({"shape": 0.0}, "shape is 0.0, expected a number above 0"),
        ({"restart": -1.0}, "restart is -1.0, expected a time of 0 s or more"),
        ({"runs": 0}, "runs is 0, expected a whole number of 1 or more"),
    ):
        with pytest.raises(ValueError, match=f"simulate_run: {said}"):
            simulate_run(**right | wrong)
    with pytest.raises(ValueError, match=r"expected_time: interval is 0\.0, expected a time above 0 s"):
        expected_time(100.0, [5.0, 0.0], 1.0, 0.0, 50.0)


def test_a_run_shorter_than_every_interval_is_refused():
    with pytest.raises(ValueError, match="work is 10 s, less than the shortest interval"):
        study_intervals(10, 1.0, 1.0, 1e9)
