"""The parameter server on real ranks, and without any communicator."""

import os
import pickle
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from distlearn.comm import CommError, RankError
from distlearn.nn import SoftmaxCrossEntropy
from distlearn.optim import SGD
from distlearn.parallel.asynchronous.param_server import Speeds, asp, backup, bsp, ssp
from distlearn.parallel.asynchronous.param_server.futures import train_on_futures
from distlearn.testing import assert_same_params
from distlearn.world import EngineWorld, launch

from .test_training import DATA, POLICIES, leads, model_of, serial


@pytest.mark.mpi
@pytest.mark.parametrize(("servers", "more"), [(1, []), (2, ["strict"])])
def test_every_policy_under_mpi(tmp_path, servers, more):
    command = [
        "python",
        "-m",
        "tests.parallel.asynchronous.param_server.on_ranks",
        tmp_path / "runs",
        str(servers),
        *more,
    ]
    done = launch(5, command, timeout=120, capture=True)
    assert done.returncode == 0, done.stderr
    runs = pickle.loads((tmp_path / "runs").read_bytes())
    assert len(runs) == len(POLICIES)
    for policy, run in runs.items():
        assert len(run.gradients) == 10 * (5 - servers), policy
        assert (run.curve["version"] % 4 == 0).all()
        assert (run.applied["staleness"] == run.applied["version"] - 1 - run.applied["used"]).all()
    assert_same_params(runs["BSP"].params, serial(steps=10).params)
    assert max(leads(runs["SSP(2)"])) <= 3
    assert set(runs["backup(0.6)"].staleness) == {0}
    steps = np.bincount(runs["ASP"].applied["worker"])
    assert steps[0] < steps.max()  # worker 0 sleeps longer, and no other worker waits for it
    assert set(np.bincount(runs["BSP"].applied["worker"])) == {10}


# -- calls instead of ranks


def setup():
    return model_of(), SoftmaxCrossEntropy(), DATA


class Pools:
    """Workers that are threads."""

    def __init__(self, n):
        self.pools = [ThreadPoolExecutor(1) for _ in range(n)]

    def __call__(self, worker, fn, *args):
        return self.pools[worker].submit(fn, *args)


def on_threads(policy, workers=4, steps=6, submit=None, **options):
    return train_on_futures(
        submit or Pools(workers), workers, setup, SGD(), 0.3, policy, batch_size=20, steps=steps, seed=3, **options
    )


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_bsp_on_futures_equals_serial(workers):
    run = on_threads(bsp(), workers, every=2)
    assert_same_params(run.params, serial(steps=6).params)
    assert run.curve["version"].tolist() == [0, 2, 4, 6]


def test_one_future_is_serial_bit_for_bit():
    run, want = on_threads(asp(), 1), serial(steps=6)
    assert all(run.params[name].tobytes() == value.tobytes() for name, value in want.params.items())


def test_policies_on_futures():
    slow, slower = (Speeds(4, seconds=0.01, slow={1: factor}, seed=1) for factor in (5.0, 25.0))
    seen = []
    quick = on_threads(asp(), pace=slower, report=lambda step, total, **values: seen.append((step, total)))
    assert len(quick.gradients) == quick.updates == 24
    assert np.bincount(quick.gradients["worker"]).argmin() == 1
    assert seen[-1] == (24, 24)
    assert max(leads(on_threads(ssp(1), pace=slow))) <= 2
    late = on_threads(backup(0.75), pace=slow)
    assert late.dropped > 0
    assert set(late.staleness) == {0}


def submit_failure():
    future = Future()
    future.set_exception(ConnectionError("gone"))
    return future


def test_a_lost_worker_is_dropped_and_a_wrong_one_named():
    class Dying(Pools):
        def __call__(self, worker, fn, *args):
            if worker == 2 and args[2] == 3:
                fn = lambda *args: (_ for _ in ()).throw(ConnectionError("gone"))  # noqa: E731
            return super().__call__(worker, fn, *args)

    run = on_threads(bsp(), submit=Dying(4), lost=lambda error: isinstance(error, ConnectionError))
    assert run.notes["lost"] == [2]
    assert np.bincount(run.applied["version"])[1:].tolist() == [4, 4, 4, 3, 3, 3, 2]  # of 24, one was lost
    with pytest.raises(CommError, match="all 4 workers are lost, after 0 updates"):
        on_threads(bsp(), submit=lambda *args: submit_failure(), lost=lambda error: True)
    with pytest.raises(RankError, match="rank 2: ConnectionError: gone"):
        on_threads(bsp(), submit=Dying(4))
    with pytest.raises(ValueError, match="give steps, seconds"):
        on_threads(asp(), steps=None)


@pytest.mark.engines
def test_engines_without_mpi():
    """The client is the server: no engine reaches another. A killed engine costs its own work alone."""
    with EngineWorld(3, mpi=False, progress=False, timeout=60) as world:
        client = world.client  # asked again after a death, the world would start new engines
        ids = client.ids

        def submit(worker, fn, *args):
            return client[ids[worker]].apply_async(fn, *args)

        world.view.use_cloudpickle()
        options = {"batch_size": 20, "seed": 3}
        run = train_on_futures(submit, 3, setup, SGD(), 0.3, bsp(), steps=5, **options)
        assert_same_params(run.params, serial(steps=5).params)

        def pace(worker, step):
            if (worker, step) == (1, 2):
                os._exit(9)
            return 0.01

        def died(error):
            return getattr(error, "ename", "") == "EngineError"

        run = train_on_futures(submit, 3, setup, SGD(), 0.3, asp(), steps=8, pace=pace, lost=died, **options)
        assert run.notes["lost"] == [1]
        assert np.bincount(run.gradients["worker"]).tolist()[1] == 2
        assert run.updates >= 22
