"""How often to save: the formulas; what knows nothing of them is in test_incidents."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.parallel import daly_interval, expected_time, system_mtbf, young_interval

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


@pytest.mark.parametrize("wrong", [{"cost": 0.0}, {"mtbf": -1.0}])
def test_times_that_are_none_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} is .*, expected a time above 0 s"):
        young_interval(**({"cost": 1.0, "mtbf": 1.0} | wrong))


def test_an_interval_of_no_time_is_refused():
    with pytest.raises(ValueError, match=r"expected_time: interval is 0\.0, expected a time above 0 s"):
        expected_time(100.0, [5.0, 0.0], 1.0, 0.0, 50.0)
    with pytest.raises(ValueError, match=r"expected_time: restart is -1\.0, expected a time of 0 s or more"):
        expected_time(100.0, 5.0, 1.0, -1.0, 50.0)
