"""Published records of interruptions, and replays of them against Daly's formula."""

import numpy as np
import pytest

from distlearn.parallel.checkpoint.incidents import DAY, INCIDENTS, Incidents, replay
from distlearn.parallel.checkpoint.interval import daly_interval, expected_time


def test_records_are_as_printed():
    llama = INCIDENTS["llama-3"]
    assert sum(llama.causes.values()) == 419
    assert len(llama.causes) == 18
    assert llama.mtbf / 3600 == pytest.approx(3.09, abs=0.01)
    assert llama.causes["Faulty GPU"] / 419 == pytest.approx(0.353, abs=5e-4)  # the paper prints 30.1 %
    assert INCIDENTS["rsc-1"].on(1024).mtbf / 3600 == pytest.approx(28.9, abs=0.1)
    assert INCIDENTS["rsc-1"].on(131_072).mtbf / 3600 == pytest.approx(0.23, abs=5e-3)


@pytest.mark.parametrize(
    ("name", "gpus", "cost", "restart"),
    [("llama-3", 16_384, 3, 600), ("llama-3", 16_384, 120, 300), ("rsc-1", 131_072, 10, 120), ("98k", 98_000, 5, 60)],
)
def test_replays_take_what_daly_predicts(name, gpus, cost, restart):
    record = INCIDENTS[name].on(gpus) if name == "rsc-1" else INCIDENTS[name]
    interval = daly_interval(cost, record.mtbf)
    runs = [replay(record, interval=interval, cost=cost, restart=restart, seed=s) for s in range(5)]
    for run in runs:
        assert sum(run[:4]) == pytest.approx(record.days * DAY)
        assert sum(run.by_cause.values()) == pytest.approx(run.lost + run.restarting)
    predicted = 1 / expected_time(1.0, interval, cost, restart, record.mtbf)
    assert np.mean([run.effective for run in runs]) == pytest.approx(predicted, abs=0.01)


def test_a_run_step_by_step():
    class Fixed(Incidents):
        def draw(self, rng):
            return np.array([25.0, 27.0]), ["disk", "fire"]

    run = replay(Fixed(8, 40.0, 100 / DAY, ""), interval=8.0, cost=2.0, restart=5.0)
    # 0 to 25: two cycles, 5 s undone; 25 to 27: restart cut off; 27 to 32: restart; 32 to 100: six cycles, 8 s of work
    assert run[:4] == (pytest.approx(8 * 8 + 8), pytest.approx(8 * 2), 5.0, 7.0)
    assert run.by_cause == {"disk": 7.0, "fire": 5.0}
    with pytest.raises(ValueError, match="interval is 0"):
        replay(INCIDENTS["98k"], interval=0, cost=1, restart=1)
