"""What an optimizer sees and leaves alone; what it holds can be stored."""

import pickle

import numpy as np
import pytest

from distlearn.data import load
from distlearn.nn import MLP, Param, SoftmaxCrossEntropy, move
from distlearn.optim import LARS, SGD, Adam, Momentum, Optimizer, WarmUp

from ..nn.cases import in_pieces, learn


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
def test_stored_and_read_back_in_the_middle_training_goes_on_as_if_nothing_had_happened(lr):
    model = MLP((6, 5, 3))
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 6)).astype("float32"), rng.integers(3, size=8)

    def train(model, optimizer):
        learn(model, SoftmaxCrossEntropy(), optimizer, [(x, y)] * 3)
        return [p.data.copy() for p in model.params]

    optimizer = Optimizer(model.params, Adam(), lr)
    before = train(model, optimizer)
    stored = pickle.dumps((model, optimizer))
    want = train(model, optimizer)
    for a, b, c in zip(train(*pickle.loads(stored)), want, before, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (b != c).any()


def test_an_eps_that_half_precision_rounds_to_0_is_refused():
    data = load("digits", dtype="float16")
    x, y = data.x_train.reshape(len(data.x_train), -1), data.y_train

    def accuracy(rule):
        model = move(MLP((data.n_features, 32, data.n_classes), seed=1), lambda a: a.astype("float16"))
        learn(model, SoftmaxCrossEntropy(), Optimizer(model.params, rule, 0.003), [*in_pieces(x, y, 150)] * 3)
        return (model.forward(x)[0].argmax(axis=1) == y).mean()

    with pytest.raises(ValueError, match=r"Adam: eps is 1e-08, which is 0 in float16, .* a larger eps, such as 1e-4"):
        accuracy(Adam())
    assert accuracy(Adam(eps=1e-4)) > 0.85


def three():
    return [Param(np.full(2, 1.0), name) for name in "abc"]


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (lambda a, b, c: [a, b, a], ValueError, "'a' is in the list twice"),
        (lambda a, b, c: [a.data], TypeError, "expected a Param, got a ndarray"),
        (lambda a, b, c: [], ValueError, "nothing would be trained: the list is empty"),
        (lambda a, b, c: MLP((3, 2)), TypeError, "params is a Sequential, expected what it has: model.params"),
    ],
)
def test_what_is_wrong_with_parameters_is_named(params, error, message):
    with pytest.raises(error, match=message):
        Optimizer(params(*three()), SGD(), 0.1)


def test_gradients_are_clipped_as_one_vector():
    a, b, _ = three()
    optimizer = Optimizer([a, b], SGD(), 1.0, clip_norm=1.0)
    a.grad[...], b.grad[...] = 3, 4
    optimizer.step()
    norm = (2 * 9 + 2 * 16) ** 0.5
    np.testing.assert_allclose([a.data[0], b.data[0]], [1 - 3 / norm, 1 - 4 / norm])


class Unknown(Optimizer):
    def step(self):
        super().step()


class Known(Unknown):
    scope = "element"


def test_an_optimizer_of_some_parameters_keeps_class_and_memory():
    a, b, c = three()
    whole = Known([a, b, c], Momentum(), 0.1, clip_norm=2.0)
    for p in (a, b, c):
        p.grad[...] = 1
    whole.step()
    part = whole.rebind([b, c])
    assert type(part) is Known
    assert part.params == [b, c]
    assert part.states[0] is whole.states[1]
    assert (part.steps, part.clip_norm) == (1, 2.0)
    assert whole.params == [a, b, c]


def test_what_a_step_must_see_at_once():
    params = MLP((3, 2)).params
    assert Optimizer(params, Momentum(), 0.1).needed_scope == "element"
    assert Unknown(params, SGD(), 0.1).needed_scope == "model"
    assert Known(params, SGD(), 0.1).needed_scope == "element"
    assert Known(params, LARS(), 0.1).needed_scope == "parameter"
