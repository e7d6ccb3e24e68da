"""Ranks that drifted apart are found and named, whatever drifted; ranks that did not are left in peace."""

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.data import Batch
from distlearn.nn import MLP, BatchNorm, Linear, Param, ReLU, Sequential
from distlearn.optim import Adam, Momentum
from distlearn.parallel import DataParallel, ReplicaError, check_replicas
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


@pytest.mark.parametrize("value", [1e-15, -3.0, 1e300])
def test_one_rank_that_drifted_is_named(value):
    error = caught(4, lambda comm: check_replicas(comm, params_of(comm.rank, (2, 1, value))))
    assert error.majority
    assert error.drifts == [(2, "0.b")]
    assert str(error) == "rank 2 drifted from the others in 0.b"


def test_several_drifts_are_named_by_parameter_and_rank():
    drifts = [(0, 0, 1.0), (3, 0, -2.5), (4, 2, 0.5)]
    error = caught(6, lambda comm: check_replicas(comm, params_of(comm.rank, *drifts)))
    assert error.drifts == [(0, "0.W"), (3, "0.W"), (4, "1.W")]
    assert "ranks 0, 3, 4 drifted from the others in 0.W, 1.W" in str(error)


def test_not_a_number_is_found():
    error = caught(3, lambda comm: check_replicas(comm, params_of(comm.rank, (1, 0, np.nan), (2, 1, 4.0))))
    assert error.drifts == [(1, "0.W"), (2, "0.b")]


def test_all_not_a_number_alike_is_no_drift():
    assert (
        caught(3, lambda comm: check_replicas(comm, params_of(comm.rank, *[(r, 0, np.nan) for r in range(3)]))) is None
    )


def test_of_two_ranks_it_is_open_who_drifted():
    error = caught(2, lambda comm: check_replicas(comm, params_of(comm.rank, (0, 0, 1.0))))
    assert not error.majority
    assert "no majority agrees" in str(error)


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


@pytest.mark.parametrize(("rule", "name"), [(Momentum(), "optimizer/0.W/0"), (Adam(), "optimizer/0.W/1")])
def test_the_optimizers_memory_is_checked_too(rule, name):
    """Found although the weights still agree: of the step in which the memory drifts, before they follow."""

    def program(comm):
        strategy = DataParallel(comm, *parts(MLP((7, 4), seed=0, dtype="float64"), rule))
        if comm.rank == 2:
            state = strategy.optimizer.states[0]
            (state if rule == Momentum() else state[1])[3, 2] = 5.0
        strategy.check()

    error = caught(3, program)
    assert error.drifts == [(2, name)]


def test_running_statistics_are_compared():
    def program(comm):
        model = Sequential(
            Linear(7, 5, 0, dtype="float64"), BatchNorm(5, dtype="float64"), ReLU(), Linear(5, 4, 1, dtype="float64")
        )
        strategy = DataParallel(comm, *parts(model, Momentum()), check_every=1)
        rows = np.array_split(np.arange(20), comm.size)[comm.rank]
        strategy.step(Batch(X[rows], Y[rows], 20))
        model.params[4].data += comm.rank
        strategy.check()

    with pytest.raises(RankError, match=r"drifted .* in .*1\.running_mean"):
        SimWorld(2).run(program)


def test_the_checksum_sees_any_bit():
    from distlearn.parallel.data.replicas import checksum

    x = np.random.default_rng(0).normal(size=1000).astype("float32")
    sums = {checksum(x)}
    for i in range(0, 1000, 100):
        y = x.copy()
        y.view(np.uint32)[i] ^= 1 << (i // 100 * 3)
        sums.add(checksum(y))
    assert len(sums) == 11
    assert checksum(np.zeros(1)) != checksum(-np.zeros(1))
    assert checksum(x.reshape(10, 100).T) == checksum(np.ascontiguousarray(x.reshape(10, 100).T))
