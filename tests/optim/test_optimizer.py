"""What an optimizer sees and leaves alone; what it holds can be stored."""

import pickle

import numpy as np
import pytest

from distlearn.nn import MLP, Param, SoftmaxCrossEntropy, move
from distlearn.optim import SGD, Adam, MixedPrecision, Optimizer, WarmUp

from ..nn.cases import learn


def test_a_learning_rate_schedule_sees_the_step():
    p, seen = Param(np.zeros(1)), []
    optimizer = Optimizer([p], SGD(), lambda step: seen.append(step) or 0.1)
    for _ in range(3):
        optimizer.step()
    assert seen == [0, 1, 2]


def test_frozen_parameters_stay():
    p, q = Param(np.ones(2), frozen=True), Param(np.ones(2))
    p.grad[...] = q.grad[...] = 1
    optimizer = Optimizer([p, q], SGD(), 0.5)
    optimizer.step()
    assert (p.data == 1).all()
    assert (q.data == 0.5).all()
    optimizer.zero_grad()
    assert (q.grad == 0).all()


@pytest.mark.parametrize("lr", [0.05, WarmUp(0.1, 4)], ids=["rate", "schedule"])
@pytest.mark.parametrize("kind", [Optimizer, MixedPrecision])
def test_stored_and_read_back_in_the_middle_training_goes_on_as_if_nothing_had_happened(kind, lr):
    dtype = "float16" if kind is MixedPrecision else "float32"
    model = move(MLP((6, 5, 3)), lambda a: a.astype(dtype))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 6)).astype(dtype), rng.integers(3, size=8)

    def train(model, optimizer):
        learn(model, SoftmaxCrossEntropy(), optimizer, [(x, y)] * 3)
        return [p.data.copy() for p in model.params]

    optimizer = kind(model.params, Adam(), lr)
    before = train(model, optimizer)
    stored = pickle.dumps((model, optimizer))
    want = train(model, optimizer)
    for a, b, c in zip(train(*pickle.loads(stored)), want, before, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (b != c).any()
