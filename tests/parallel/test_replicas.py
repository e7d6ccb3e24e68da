"""Ranks that drifted apart are found and named, whatever drifted; ranks that did not are left in peace."""

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.data import Batch
from distlearn.nn import MLP, BatchNorm, Linear, Param, Sequential
from distlearn.optim import Adam, Momentum
from distlearn.parallel import DataParallel, ReplicaError, check_replicas
from distlearn.parallel.data.replicas import checksum
from distlearn.sim import SimWorld

from .programs import X, Y, parts


def caught(size, program):
    """Run; return the ReplicaError that every rank raised."""

    def wrapped(comm):
        try:
            program(comm)
        except ReplicaError as error:
            return error
        return None

    first, *others = SimWorld(size).run(wrapped)
    assert all(str(e) == str(first) for e in others)  # every rank raises the same error
    return first


def params_of(rank, *drifts):
    """Four parameters; `drifts` are (rank, number of the parameter, value to add to one element)."""
    params = [Param(np.arange(6.0).reshape(2, 3), "0.W"), Param(np.ones(3), "0.b")]
    params += [Param(np.full(4, 7, "float32"), "1.W"), Param(np.zeros(0), "1.b")]
    for where, i, value in drifts:
        if rank == where:
            params[i].data.reshape(-1)[1] += value
    return params


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_equal_replicas_cost_eight_bytes_a_rank(size):
    world = SimWorld(size)
    world.run(lambda comm: check_replicas(comm, params_of(comm.rank)))
    spans = world.trace.select(lane="comm", rank=0)
    assert [(s.name, s.nbytes) for s in spans] == [("all_gather", 8 * size)] * (size > 1)


@pytest.mark.parametrize(
    ("size", "drifts", "message"),
    [
        (4, [(2, 1, 1e-15)], "rank 2 drifted from the others in 0.b"),
        (6, [(0, 0, 1.0), (3, 0, -2.5), (4, 2, 0.5)], "ranks 0, 3, 4 drifted from the others in 0.W, 1.W"),
        (3, [(1, 0, np.nan), (2, 1, 4.0)], "ranks 1, 2 drifted from the others in 0.W, 0.b"),
        (3, [(rank, 0, np.nan) for rank in range(3)], "None"),
        (2, [(0, 0, 1.0)], "; no majority agrees, so those named may be the ones that are right"),
    ],
)
def test_who_drifted_is_named(size, drifts, message):
    error = caught(size, lambda comm: check_replicas(comm, params_of(comm.rank, *drifts)))
    assert str(error).endswith(message)
    if error is not None and error.majority:
        assert error.drifts == [(rank, params_of(0)[i].name) for rank, i, _ in drifts]


@pytest.mark.parametrize(
    ("rule", "part", "name"),
    [
        (Momentum(), lambda strategy: strategy.optimizer.states[0], "optimizer/0.W/0"),
        (Adam(), lambda strategy: strategy.optimizer.states[0][1], "optimizer/0.W/1"),
        (Adam(), lambda strategy: strategy.model.params[4].data, "param/1.running_mean"),
    ],
)
def test_the_optimizers_memory_and_running_statistics_are_checked_too(rule, part, name):
    """Found although the weights still agree: of the step in which the memory drifts, before they follow."""

    def program(comm):
        strategy = DataParallel(comm, *parts(Sequential(Linear(7, 5, 0), BatchNorm(5)), rule))
        if comm.rank == 2:
            part(strategy)[..., 2] = 5.0
        strategy.check()

    assert caught(3, program).drifts == [(2, name)]


def test_a_checksum_is_of_the_values_bits_wherever_they_lie():
    x = np.arange(12.0).reshape(3, 4)
    assert checksum(np.zeros(1)) != checksum(-np.zeros(1))
    assert checksum(x.T) == checksum(np.ascontiguousarray(x.T))


def train(comm, harm, check_every):
    """Train data-parallel; `harm(strategy)` is done to rank 1 after the first step."""
    strategy = DataParallel(comm, *parts(MLP((7, 6, 4), seed=0, dtype="float64"), Momentum()), check_every=check_every)
    rows = np.array_split(np.arange(20), comm.size)[comm.rank]
    for step in range(3):
        strategy.step(Batch(X[rows], Y[rows], 20))
        if comm.rank == 1 and step == 0:
            harm(strategy)


def test_training_checks_itself_every_so_many_steps():
    def harm(strategy):
        strategy.model.params[2].data[0, 0] += 1e-9

    SimWorld(3).run(train, harm, check_every=4)  # three steps: not yet
    SimWorld(3).run(train, harm, check_every=None)
    for check_every in (1, 3):
        with pytest.raises(RankError, match=r"rank 1 drifted from the others in param/[02]\.") as found:
            SimWorld(3).run(train, harm, check_every=check_every)
        assert isinstance(found.value.original, ReplicaError)
        assert found.value.original.majority
