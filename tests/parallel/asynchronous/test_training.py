"""Policies train the same network on the same samples: they differ in waiting and staleness alone."""

import numpy as np
import pytest

from distlearn.parallel.asynchronous.param_server import Speeds, asp, backup, bsp, ssp

from ...benchmarks.real import digits_task, run_policy

TASK = digits_task(hidden=(12,), batch=8)
SOME = (bsp(), backup(0.75), ssp(0), ssp(4), asp())


@pytest.mark.parametrize("seed", range(2))
def test_policies_differ_in_waiting_and_staleness_alone(seed):
    speeds = Speeds(4, slow={0: 4.0}, seed=seed)
    runs = {str(policy): run_policy(TASK, policy, speeds, steps=30, seed=seed) for policy in SOME}
    assert list(runs) == ["BSP", "backup(0.75)", "SSP(0)", "SSP(4)", "ASP"]
    assert {len(run.gradients) for run in runs.values()} == {120}
    bulk, lockstep, bounded, free = (runs[name] for name in ("BSP", "SSP(0)", "SSP(4)", "ASP"))
    # k times the rate for the mean of k gradients: SSP(0) adds up the very same steps
    assert np.abs(bulk.params["0.W"] - lockstep.params["0.W"]).max() < 1e-5
    assert free.seconds < 0.5 * bulk.seconds  # one of four workers takes four times as long
    assert free.throughput > 2 * bounded.throughput > 2 * lockstep.throughput > 2 * bulk.throughput
    assert free.curve["loss"][-1] < 0.85 * free.curve["loss"][0]
