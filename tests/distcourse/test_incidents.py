"""Published records of interruptions, and replays of them against Daly's formula."""

import math

import numpy as np
import pytest
from distcourse.incidents import DAY, INCIDENTS, Incidents, replay

from distlearn.parallel import young_interval


def daly_interval(cost, mtbf):
    """J. T. Daly (2006), A higher order estimate of the optimum checkpoint interval for restart dumps, equation 37."""
    x = cost / (2 * mtbf)
    return young_interval(cost, mtbf) * (1 + math.sqrt(x) / 3 + x / 9) - cost


def expected_time(work, interval, cost, restart, mtbf):
    """Daly (2006), equation 20: exact for exponential failures, also during a checkpoint and a restart."""
    return mtbf * math.exp(restart / mtbf) * np.expm1((interval + cost) / mtbf) * work / interval


@pytest.mark.parametrize("wrong", [{"cost": 0.0}, {"mtbf": -1.0}])
def test_times_that_are_none_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} is .*, expected a number above 0"):
        young_interval(**({"cost": 1.0, "mtbf": 1.0} | wrong))


def test_records_are_as_printed():
    llama = INCIDENTS["llama-3"]
    assert sum(llama.causes.values()) == 419
    assert len(llama.causes) == 18
    assert llama.mtbf / 3600 == pytest.approx(3.09, abs=0.01)
    assert llama.causes["Faulty GPU"] / 419 == pytest.approx(0.353, abs=5e-4)  # the paper prints 30.1 %
    assert INCIDENTS["rsc-1"].on(1024).mtbf / 3600 == pytest.approx(28.9, abs=0.1)
    assert INCIDENTS["rsc-1"].on(131_072).mtbf / 3600 == pytest.approx(0.23, abs=5e-3)


@pytest.mark.parametrize(("cost", "mtbf"), [(60.0, 0.3 * DAY), (300.0, 0.36 * DAY)])
def test_the_best_replayed_interval_is_the_predicted_one(cost, mtbf):
    """The minimum is flat: around it replays lie on the formula, and far from it they take a tenth longer."""
    record, daly = Incidents(1, mtbf, 200.0, "drawn"), daly_interval(cost, mtbf)
    assert young_interval(cost, mtbf) == pytest.approx(daly, rel=0.1)
    intervals = daly * np.geomspace(1 / 8, 8, 13)
    took = [1 / np.mean([replay(record, interval=t, cost=cost, restart=2 * cost, seed=s).effective for s in range(20)])
            for t in intervals]  # fmt: skip
    np.testing.assert_allclose(took, expected_time(1.0, intervals, cost, 2 * cost, mtbf), rtol=0.02)
    assert took[0] > 1.03 * min(took) < took[-1] / 1.03
    assert daly / 2 < intervals[np.argmin(took)] < 2 * daly


def test_a_run_step_by_step():
    class Fixed(Incidents):
        def draw(self, rng):
            return np.array([25.0, 27.0])

    run = replay(Fixed(8, 40.0, 100 / DAY, ""), interval=8.0, cost=2.0, restart=5.0)
    # 0 to 25: two cycles, 5 s undone; 25 to 27: restart cut off; 27 to 32: restart; 32 to 100: six cycles, 8 s of work
    assert run == (pytest.approx(8 * 8 + 8), pytest.approx(8 * 2), 5.0, 7.0)
