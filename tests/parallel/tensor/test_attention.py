"""Attention in tensor parallelism: some heads on each rank, equal to the serial layer."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.data import Batch
from distlearn.optim import Adam, Optimizer
from distlearn.parallel import Serial, TensorParallel, account, parallelize
from distlearn.parallel.tensor import HeadParallelAttention
from distlearn.sim import SimWorld
from distlearn.testing import assert_same_params

X = np.random.default_rng(0).integers(7, size=(5, 9))


def train(comm, make, kv_heads):
    model = nn.GPT(7, width=12, heads=6, n_blocks=2, kv_heads=kv_heads, dtype="float64")
    strategy = make(comm, model, nn.SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 0.01, clip_norm=0.5))
    losses = [strategy.step(Batch(X[i : i + 3, :-1], X[i : i + 3, 1:], 3)) for i in range(3)]
    return strategy.gather_params(), losses, strategy.predict(X[:2, :-1])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("kv_heads", [None, 3])
def test_it_equals_serial_training(size, kv_heads):
    """Six heads on four ranks are unequal parts; three heads of keys on four ranks stay on every rank."""
    want = SimWorld(1).run(train, lambda comm, *args: Serial(*args, comm.clock), kv_heads)[0]
    results = SimWorld(size).run(train, TensorParallel, kv_heads)
    assert_same_params(results[0][0], want[0], tol=1e-10)
    for _, losses, output in results:
        np.testing.assert_allclose(losses, want[1], rtol=1e-10)
        np.testing.assert_allclose(output, want[2], atol=1e-10)


def test_it_sends_what_it_says():
    shape = (2, 8, 12)

    def program(comm):
        layer = nn.MultiHeadAttention(12, 6, range(4))
        model = parallelize(nn.Sequential(layer), comm)
        y, saved = model.forward(np.zeros(shape, np.float32))
        model.backward(y, saved)
        return type(model.layers[0])

    world = SimWorld(2, collectives="formula")
    assert world.run(program)[0] is HeadParallelAttention
    told = account(nn.Sequential(nn.MultiHeadAttention(12, 6, range(4))), shape, 2)
    assert told.rows[0].how == "heads over ranks, outputs summed"
    assert [t.nbytes for t in told.forward + told.backward] == [2 * 8 * 12 * 4] * 2
    sent = [s.nbytes for s in world.trace.select(rank=0, name="all_reduce")]
    assert sent == [2 * 8 * 12 * 4] * 2


def test_a_rank_has_its_share_of_the_weights():
    def program(comm):
        return sum(p.size for p in HeadParallelAttention(comm, nn.MultiHeadAttention(12, 6, range(4))).params)

    whole = sum(p.size for p in nn.MultiHeadAttention(12, 6, range(4)).params)
    for n in SimWorld(3).run(program):
        assert n == (whole - 12) // 3 + 12  # but for the output's bias, which all have
