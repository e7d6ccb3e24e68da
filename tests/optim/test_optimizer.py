"""Rules step by step against their formulas; what an optimizer holds can be stored."""

import pickle

import numpy as np
import pytest

from distlearn.nn import MLP, Param, SoftmaxCrossEntropy, move
from distlearn.optim import SGD, Adam, MixedPrecision, Momentum, Optimizer, WarmUp


def gradients(steps=100):
    return np.random.default_rng(3).normal(size=(steps, 4))


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_sgd(decay):
    w, p = np.ones(4), Param(np.ones(4))
    optimizer = Optimizer([p], SGD(weight_decay=decay), 0.1)
    for g in gradients():
        p.grad[...] = g
        optimizer.step()
        w = w - 0.1 * (g + decay * w)
        np.testing.assert_allclose(p.data, w, rtol=1e-12)
        np.testing.assert_array_equal(p.grad, g)


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_momentum(decay):
    w, v, p = np.ones(4), np.zeros(4), Param(np.ones(4))
    optimizer = Optimizer([p], Momentum(0.9, weight_decay=decay), 0.1)
    for g in gradients():
        p.grad[...] = g
        optimizer.step()
        v = 0.9 * v + g + decay * w
        w = w - 0.1 * v
        np.testing.assert_allclose(p.data, w, rtol=1e-12)


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


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_precision_stays(dtype):
    p = Param(np.ones(2, dtype))
    p.grad[...] = 1
    optimizer = Optimizer([p], Momentum(), 0.1)
    optimizer.step()
    assert p.data.dtype == optimizer.states[0].dtype == dtype


def test_bad_values_are_named():
    with pytest.raises(ValueError, match="momentum is 1"):
        Momentum(1.0)
    with pytest.raises(ValueError, match=r"lr is -0\.1"):
        Optimizer([Param(np.ones(1))], SGD(), -0.1)


@pytest.mark.parametrize("lr", [0.05, WarmUp(0.1, 4)], ids=["rate", "schedule"])
@pytest.mark.parametrize("kind", [Optimizer, MixedPrecision])
def test_stored_and_read_back_in_the_middle_training_goes_on_as_if_nothing_had_happened(kind, lr):
    dtype = "float16" if kind is MixedPrecision else "float32"
    model = move(MLP((6, 5, 3)), lambda a: a.astype(dtype))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 6)).astype(dtype), rng.integers(3, size=8)

    def train(model, optimizer):
        loss = optimizer.scaled(SoftmaxCrossEntropy()) if kind is MixedPrecision else SoftmaxCrossEntropy()
        for _ in range(3):
            optimizer.zero_grad()
            out, saved = model.forward(x)
            model.backward(loss(out, y)[1], saved)
            optimizer.step()
        return [p.data.copy() for p in model.params]

    optimizer = kind(model.params, Adam(), lr)
    before = train(model, optimizer)
    stored = pickle.dumps((model, optimizer))
    want = train(model, optimizer)
    for a, b, c in zip(train(*pickle.loads(stored)), want, before, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (b != c).any()
