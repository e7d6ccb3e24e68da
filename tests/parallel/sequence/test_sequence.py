"""Sequence parallelism equals serial training on any number of ranks, which have equally much to do."""

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.comm.network import Network
from distlearn.data import Batch
from distlearn.nn import GPT, GRU, Linear, MultiHeadAttention, Residual, Sequential
from distlearn.optim import Adam
from distlearn.parallel import DataParallel, SequenceParallel
from distlearn.parallel.checkpoint.state import capture, restore
from distlearn.parallel.sequence import RingAttention, places, positions
from distlearn.parallel.sharding import gather_parts, take_part
from distlearn.sim import Roofline, SimWorld

from ..programs import assert_same_params, parts

LENGTH = 24
RNG = np.random.default_rng(0)
X = RNG.integers(11, size=(6, LENGTH + 1))


def gpt():
    return GPT(11, width=24, heads=12, n_blocks=2, dtype="float64")


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("causal", [True, False])
def test_a_layer_alone_equals_the_serial_one(size, causal):
    rng = np.random.default_rng(1)
    x, dy = rng.normal(size=(2, 2, 16, 8))

    def layer():
        return MultiHeadAttention(8, 4, range(4), dtype="float64", causal=causal)

    def program(comm):
        mine, parts = RingAttention.of(layer(), comm), places(16, size)
        part, slope = (take_part(a, 1, parts[comm.rank]) for a in (x, dy))
        y, saved = mine.forward(part)
        dx = mine.backward(slope, saved)
        grads = [comm.all_reduce(p.grad) for p in mine.params]
        return gather_parts(comm, y, 1, parts), gather_parts(comm, dx, 1, parts), grads

    alone = layer()
    y, saved = alone.forward(x)
    dx = alone.backward(dy.copy(), saved)
    for got_y, got_dx, grads in SimWorld(size).run(program):
        np.testing.assert_allclose(got_y, y, atol=1e-12)
        np.testing.assert_allclose(got_dx, dx, atol=1e-12)
        for got, p in zip(grads, alone.params, strict=True):
            np.testing.assert_allclose(got, p.grad, atol=1e-12)


def test_every_rank_has_the_same_work():
    world = SimWorld(8, Network(alpha=1e-6, beta=100e9), Roofline(peak=1e12))

    def program(comm):
        layer = RingAttention.of(MultiHeadAttention(16, 2, range(4), dtype="float64"), comm)
        y, saved = layer.forward(np.zeros((1, 128, 16)))
        layer.backward(y, saved)

    world.run(program)
    seconds = [world.trace.total(rank=rank, name="attention") for rank in range(8)]
    assert seconds[0] > 0
    np.testing.assert_allclose(seconds, seconds[0], rtol=1e-9)


def test_messages_and_bytes_are_the_docstrings():
    size, n, batch, heads, d = 4, 6, 2, 4, 4
    world = SimWorld(size)

    def program(comm, back):
        layer = RingAttention.of(MultiHeadAttention(16, heads, range(4)), comm)
        y, saved = layer.forward(np.zeros((batch, n, 16), np.float32))
        if back:
            layer.backward(y, saved)

    keys = 2 * batch * heads * n * d * 4
    world.run(program, False)
    assert [m.nbytes for m in world.trace.messages if m.source == 0] == [keys] * (size - 1)
    world.run(program, True)
    assert [m.nbytes for m in world.trace.messages if m.source == 0] == [keys] * (3 * size - 2)


def train(comm, make, steps, state=None):
    """Take steps on whole batches; return the last loss, the parameters and the state."""
    strategy = make(comm, *parts(gpt(), Adam(), 0.01))
    if state is not None:
        restore(strategy, *state)
    for i in steps:
        rows = slice(2 * i + strategy.rank, 2 * i + strategy.rank + 1) if strategy.size > 1 else slice(2 * i, 2 * i + 2)
        loss = strategy.step(Batch(X[rows, :-1], X[rows, 1:], 2))
    return loss, strategy.gather_params(), capture(strategy)


def test_data_parallelism_continues_from_its_state():
    state = SimWorld(3).run(train, SequenceParallel, [0])[0][-1]
    want = SimWorld(1).run(train, DataParallel, [0, 1])[0]
    loss, params, _ = SimWorld(2).run(train, DataParallel, [1], state)[0]
    assert loss == pytest.approx(want[0], rel=1e-10)
    assert_same_params(params, want[1], tol=1e-10)


def test_what_cannot_be_sharded_is_named():
    model = Sequential(Residual(Sequential(Linear(4, 4, 0))), GRU(4, 4, 0))
    with pytest.raises(RankError, match=r"has some positions alone: expected attention, .*, Tanh; got GRU"):
        SimWorld(2).run(lambda comm: SequenceParallel(comm, *parts(model, Adam(), 0.01)) and None)


def test_a_length_that_cannot_be_cut_is_named():
    with pytest.raises(ValueError, match="the length is 10, expected a multiple of 8"):
        positions(10, 0, 4)
