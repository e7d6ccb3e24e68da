"""Data parallelism equals serial training, however the batch is sharded, and costs what its docstring says."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlearn.comm import Network
from distlearn.data import Batch
from distlearn.nn import MLP, BatchNorm, Linear, Param, Sequential
from distlearn.optim import Momentum
from distlearn.parallel import DataParallel, NaiveDataParallel, make_buckets, record_memory
from distlearn.sim import Roofline, SimWorld

from .programs import X, Y, assert_same_params, messages_of_steps, model_of, parts, run


def test_one_all_reduce_per_bucket_and_step():
    world = SimWorld(2)
    buckets = len(world.run(run, partial(DataParallel, cap_bytes=300), steps=3)[0].strategy.reducer.buckets)
    spans = world.trace.select(rank=0, name="all_reduce")
    values = sum(p.size for p in model_of("plain").params) + 2  # loss and rows ride along
    assert buckets > 1
    assert len(spans) == 3 * buckets
    assert sum(s.nbytes for s in spans) == 3 * 8 * values


def test_overlap_hides_communication():
    """On a network about as slow as backward, less than half of the communication is left exposed."""

    def exposed(overlap):
        world = SimWorld(4, Network(1e-6, 2e9), Roofline(1e9))
        began = max(world.run(wide, overlap))
        return world.trace.window(began).exposed(0), world.makespan

    (with_overlap, fast), (without, slow) = exposed(True), exposed(False)
    assert with_overlap < without / 2
    assert fast < slow


def wide(comm, overlap):
    strategy = DataParallel(comm, *parts(MLP((64,) * 8 + (4,), seed=0)), cap_bytes=1, overlap=overlap)
    began = comm.clock.now()
    strategy.step(Batch(np.ones((64, 64), "float32"), np.zeros(64, int), 64 * comm.size))
    return began


def test_buckets_hold_views_in_reverse_order():
    params = [Param(np.ones((2, 3)), "a"), Param(np.ones(4), "b"), Param(np.ones(5), "c")]
    params.append(Param(np.ones(1, "float32"), "d"))
    buckets = make_buckets(params, cap_bytes=80, extra=1)
    assert [[p.name for p in b.params] for b in buckets] == [["d"], ["c", "b"], ["a"]]
    assert [b.flat.size for b in buckets] == [1, 9, 7]
    params[1].grad[...] = 3
    assert buckets[1].flat.tolist() == [0] * 5 + [3] * 4
    buckets[1].clear()
    buckets[1].flush()
    assert (buckets[1].flat == 0).all()
    assert (params[1].grad == 0).all()
    assert buckets[1].pending == 2


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=20), cap=st.integers(1, 600))
def test_buckets_hold_every_parameter_once_and_respect_the_cap(sizes, cap):
    params = [Param(np.zeros(n), str(i)) for i, n in enumerate(sizes)]
    buckets = make_buckets(params, cap)
    assert [p for b in buckets for p in b.params] == params[::-1]
    for b in buckets:
        assert b.flat.nbytes <= cap or len(b.params) == 1


# -- models and optimizers that are not as usual -----------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [DataParallel, NaiveDataParallel])
def test_a_rank_without_samples_takes_part_in_batch_norm(strategy):
    """The last batch of an epoch may be smaller than the number of ranks."""

    def program(comm):
        model = Sequential(BatchNorm(7, dtype="float64"), Linear(7, 4, 1, dtype="float64"))
        strategy_ = strategy(comm, *parts(model, Momentum()))
        part = slice(0, 6) if comm.rank == 0 else slice(6, 6)
        losses = [strategy_.step(Batch(X[part], Y[part], 6)) for _ in range(3)]
        return {p.name: p.data for p in model.params}, losses

    (want, losses), *_ = SimWorld(1).run(program)
    for params, got in SimWorld(3).run(program):
        np.testing.assert_allclose(got, losses, atol=1e-12)
        assert_same_params(
            {k: v for k, v in params.items() if "running" not in k}, {k: want[k] for k in want if "running" not in k}
        )


# -- naive -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5])
def test_naive_sends_one_all_reduce_per_parameter_and_one_for_the_loss(size):
    params = model_of("plain").params
    values = sum(p.size for p in params) + 2  # loss and rows
    sent = messages_of_steps(size, NaiveDataParallel, 2)
    assert tuple(sent) == (2 * (len(params) + 1) * 2 * (size - 1), 2 * 2 * (size - 1) * 8 * values)


# -- accumulation ----------------------------------------------------------------------------------------------------


def test_activations_take_the_memory_of_one_micro_batch():
    """What a forward pass saved is gone before the next begins."""

    def saved(accumulate):
        record = record_memory(
            lambda comm, model: DataParallel(comm, *parts(model), accumulate=accumulate),
            MLP((64, 64, 64, 10), seed=0),
            Batch(np.ones((48, 64), "f4"), np.zeros(48, int), 48),
        )
        return max(s.total for s in record[0] if "ward[" in s.at) - record[0][0].total

    assert 0 < saved(4) <= saved(1) / 4 * 1.01


def test_messages_are_those_of_one_batch_and_start_in_the_last_piece():
    def trace(accumulate):
        world = SimWorld(2, Network(1e-5, 1e9), Roofline(1e9))
        world.run(lambda comm: run(comm, partial(DataParallel, accumulate=accumulate, cap_bytes=300), steps=1).losses)
        return world.trace

    one, four = trace(1), trace(4)
    reduces = four.select(rank=0, name="all_reduce")
    assert [s.nbytes for s in reduces] == [s.nbytes for s in one.select(rank=0, name="all_reduce")]
    last_forward = max(s.end for s in four.select(rank=0, name="forward"))
    assert len(four.select(rank=0, name="forward")) == 4 * len(one.select(rank=0, name="forward"))
    assert min(s.start for s in reduces) > last_forward
