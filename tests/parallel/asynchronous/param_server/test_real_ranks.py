"""The parameter server on real ranks."""

import pickle

import numpy as np
import pytest

from distlearn.world import launch

from ...programs import assert_same_params
from .test_training import POLICIES, leads, serial


@pytest.mark.mpi
@pytest.mark.parametrize("more", [[], pytest.param(["strict"], marks=pytest.mark.nightly)])
def test_every_policy_under_mpi(tmp_path, more):
    command = [
        "python",
        "-m",
        "tests.parallel.asynchronous.param_server.on_ranks",
        tmp_path / "runs",
        *more,
    ]
    done = launch(5, command, timeout=120, capture=True)
    assert done.returncode == 0, done.stderr
    runs = pickle.loads((tmp_path / "runs").read_bytes())
    assert len(runs) == len(POLICIES)
    for policy, run in runs.items():
        assert len(run.gradients) == 40, policy
        assert (run.curve["version"] % 4 == 0).all()
        assert (run.applied["staleness"] == run.applied["version"] - 1 - run.applied["used"]).all()
    assert_same_params(runs["BSP"].params, serial(steps=10).params)
    assert max(leads(runs["SSP(2)"])) <= 3
    assert set(runs["backup(0.6)"].staleness) == {0}
    steps = np.bincount(runs["ASP"].applied["worker"])
    assert steps[0] < steps.max()  # worker 0 sleeps longer, and no other worker waits for it
    assert set(np.bincount(runs["BSP"].applied["worker"])) == {10}
