"""Elastic averaging and Hogwild: their formulas, by hand, and what sharing costs."""

import errno
import os
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.data import Batches
from distlearn.nn import SoftmaxCrossEntropy
from distlearn.optim import SGD, Nesterov
from distlearn.parallel.asynchronous.easgd import EASGD
from distlearn.parallel.asynchronous.hogwild import Hogwild, share_array, sparsity
from distlearn.parallel.asynchronous.param_server import Speeds
from distlearn.sim import SimWorld
from distlearn.testing import assert_same_params
from distlearn.world import launch

from .param_server.test_training import DATA, gradient_at, model_of, serial


def elastic(comm, period=3, alpha=None, rule=None, steps=9, every=1, slow=None, lr=0.3):
    speeds = Speeds(max(1, comm.size - 1), law="lognormal", shape=0.3, slow=slow, seed=2)
    options = {"period": period, "alpha": alpha, "pace": speeds, "every": every}
    part = EASGD(comm, model_of(), SoftmaxCrossEntropy(), rule or SGD(), lr, **options)
    run = part.train(DATA, batch_size=20, steps=steps, seed=3)
    return SimpleNamespace(run=run, own=part.flat.data.copy())


def flat(model):
    return np.concatenate([p.data.ravel() for p in model.params])


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_easgd_with_one_worker_by_hand(momentum):
    results = SimWorld(2).run(elastic, alpha=0.4, rule=Nesterov(momentum))
    x, v = flat(model_of()), 0.0
    centre, batches = x.copy(), list(Batches(DATA.x_train, DATA.y_train, 20, seed=3).epoch(0))
    batches += list(Batches(DATA.x_train, DATA.y_train, 20, seed=3).epoch(1))
    batches += list(Batches(DATA.x_train, DATA.y_train, 20, seed=3).epoch(2))
    for step in range(9):
        g = gradient_at(x, batches[step])
        v = momentum * v + g
        x = x - 0.3 * (g + momentum * v)
        if (step + 1) % 3 == 0:
            d = 0.4 * (x - centre)
            x, centre = x - d, centre + d
    np.testing.assert_allclose(results[1].own, x, atol=1e-12)
    np.testing.assert_allclose(flat_params(results[0].run), centre, atol=1e-12)


def flat_params(run):
    return np.concatenate([value.ravel() for value in run.params.values()])


def test_easgd_of_several():
    run, again = (SimWorld(5).run(elastic, steps=12, slow={0: 4.0})[0].run for _ in range(2))
    assert run.gradients.tobytes() == again.gradients.tobytes()
    assert run.curve.tobytes() == again.curve.tobytes()
    assert (run.updates, run.dropped, len(run.curve)) == (16, 0, 17)
    assert run.curve["loss"][-1] < run.curve["loss"][0]
    counts = np.bincount(run.gradients["worker"])
    assert counts.argmin() == 0
    assert 2 < run.staleness.mean() < 3.5


@pytest.mark.parametrize(("size", "options", "message"), [
    (1, {}, "1 rank, expected"), (3, {"period": 0}, "period is 0"), (3, {"alpha": 1.5}, "alpha is 1.5"),
    (3, {"steps": None}, "give steps"), (3, {"lr": -0.1}, r"EASGD: lr is -0\.1"),
])  # fmt: skip
def test_easgd_refuses(size, options, message):
    with pytest.raises(RankError, match=message):
        SimWorld(size).run(elastic, **options)


def wild(comm, sparse=False, steps=6, lr=0.3, every=2, slow=None):
    speeds = Speeds(comm.size, law="lognormal", shape=0.3, slow=slow, seed=2)
    part = Hogwild(comm, model_of(), SoftmaxCrossEntropy(), lr, sparse=sparse, pace=speeds, every=every)
    return part.train(DATA, batch_size=20, steps=steps, seed=3)


@pytest.mark.parametrize("sparse", [False, True])
def test_hogwild_alone_is_serial(sparse):
    run = SimWorld(1).run(wild, sparse)[0]
    assert_same_params(run.params, serial(steps=6).params, tol=1e-15)
    assert run.histogram().tolist() == [6]
    assert run.curve["version"].tolist() == [0, 2, 4, 6]


def test_hogwild_of_several():
    run = SimWorld(4).run(wild, slow={1: 5.0}, steps=8)[0]
    assert 32 <= run.updates <= 35  # each may be in the middle of a step when the last is counted
    assert run.curve["loss"][-1] < run.curve["loss"][0]
    assert run.staleness.max() > 5
    other = SimWorld(4).run(wild, sparse=True, slow={1: 5.0}, steps=8)[0]
    assert_same_params(other.params, run.params, tol=1e-15)  # here no gradient has a zero
    with np.errstate(all="ignore"):
        assert SimWorld(3).run(wild, lr=1e308)[0].diverged


def test_the_curve_of_hogwild_is_that_of_the_whole_run():
    """Rank 0 takes it, and may be the last to begin or the slowest: the others have trained before and after."""

    def late(comm, seconds, slow):
        part = Hogwild(comm, model_of(), SoftmaxCrossEntropy(), 0.3, pace=Speeds(3, slow=slow), every=2)
        comm.clock.sleep(seconds * (comm.rank == 0))
        return part.train(DATA, batch_size=20, steps=4, seed=3)

    run, want = (SimWorld(3).run(late, seconds, None)[0] for seconds in (50.0, 0.0))
    assert run.gradients["used"].tolist() == want.gradients["used"].tolist()
    assert run.curve["loss"].tolist() == want.curve["loss"].tolist()
    np.testing.assert_allclose(run.curve["time"], want.curve["time"], atol=1e-12)
    run = SimWorld(3).run(late, 0.0, {0: 9.0})[0]
    assert run.curve["version"].tolist() == [0, run.updates]
    assert run.curve["time"][-1] == run.seconds
    assert run.curve["loss"][-1] < run.curve["loss"][0]


def test_shared_memory_is_shared_and_leaves_nothing():
    def program(comm):
        x = share_array(comm, 4, np.float64)
        assert (x == 0).all()
        comm.barrier()
        x[comm.rank] = comm.rank + 1
        comm.barrier()
        return x.tolist()

    before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    assert SimWorld(4).run(program) == [[1, 2, 3, 4]] * 4
    if before:
        assert not {n for n in set(os.listdir("/dev/shm")) - before if "hogwild" in n}


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="here room cannot be reserved")
def test_shared_memory_for_which_there_is_no_room(monkeypatch, tmp_path):
    """Writing into memory that is not there would kill the process: a bus error."""
    real, full = os.posix_fallocate, []

    def fallocate(handle, start, nbytes):
        if len(full) < many:
            full.append(os.readlink(f"/proc/self/fd/{handle}"))
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle, start, nbytes)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    many = 1
    assert SimWorld(2).run(lambda comm: share_array(comm, 4, np.float64).tolist()) == [[0, 0, 0, 0]] * 2
    many = 9
    with pytest.raises(RankError, match=f"no room for 32 bytes that all ranks share in .*{tmp_path}"):
        SimWorld(2).run(lambda comm: share_array(comm, 4, np.float64))
    assert not [path for path in full if os.path.exists(path)]
    assert not list(tmp_path.iterdir())


SCRIPT = """
import json, numpy as np
from distlearn.parallel.asynchronous.hogwild import share_array
from distlearn.world import MPIWorld
from tests.parallel.asynchronous import test_easgd_hogwild as tests
from tests.parallel.asynchronous.param_server.on_ranks import Quick
tests.Speeds = Quick

def task(comm):
    x = share_array(comm, 3, np.int64)
    x[comm.rank] = comm.rank + 7
    comm.barrier()
    dense, sparse = (tests.wild(comm, kind, steps=10, lr=0.1) for kind in (False, True))  # at 0.3 a late write can hurt
    spring = tests.elastic(comm).run
    if comm.rank == 0:
        return x.tolist(), *([r.updates, r.curve["loss"][0], r.curve["loss"][-1]] for r in (dense, sparse, spring))

world = MPIWorld(progress=False, strict=True, timeout=100)
found = world.run(task)[0]
if world.rank == 0:
    print(json.dumps(found))
"""


@pytest.mark.mpi
def test_on_processes():
    import json

    done = launch(3, ["python", "-c", SCRIPT], timeout=60, capture=True)
    assert done.returncode == 0, done.stderr
    shared, *runs = json.loads(done.stdout)
    assert shared == [7, 8, 9]
    for (updates, first, last), least in zip(runs, (30, 30, 6), strict=True):
        assert least <= updates <= least + 2
        assert last < first


def test_sparsity_is_that_of_the_paper():
    touches = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 0, 1]], bool)
    assert sparsity(touches) == (2, 0.5, 0.5)
