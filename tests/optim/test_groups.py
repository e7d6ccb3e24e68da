"""Parameter groups, and what a part of a model's parameters takes over from the optimizer of all of them."""

import numpy as np
import pytest

from distlearn.nn import MLP, Param
from distlearn.optim import LARS, SGD, Adam, Cosine, Momentum, Optimizer


def three():
    return [Param(np.full(2, 1.0), name) for name in "abc"]


def test_a_group_has_its_own_rate_and_weight_decay():
    a, b, c = params = three()
    optimizer = Optimizer([{"params": [a], "lr": 0.5}, {"params": [b, c], "weight_decay": 0.1}], SGD(), 0.25)
    for p in params:
        p.grad[...] = 1
    optimizer.step()
    assert a.data[0] == 1 - 0.5
    assert b.data[0] == c.data[0] == 1 - 0.25 * (1 + 0.1)
    assert optimizer.params == params


def test_a_group_has_its_own_rule_and_schedule():
    a, b, _ = three()
    groups = [{"params": a, "rule": Adam(), "lr": Cosine(0.5, 2)}, {"params": [b]}]
    optimizer = Optimizer(groups, Momentum(), 0.25)
    assert [type(state) for state in optimizer.states] == [tuple, np.ndarray]
    for _ in range(2):
        a.grad[...] = b.grad[...] = 1
        optimizer.step()
    assert a.data[0] == pytest.approx(1 - 0.5 - 0.25)
    assert b.data[0] == pytest.approx(1 - 0.25 * (1 + 1.9))


def test_gradients_of_all_groups_are_clipped_as_one_vector():
    a, b, _ = three()
    optimizer = Optimizer([{"params": [a]}, {"params": [b], "lr": 0.5}], SGD(), 1.0, clip_norm=1.0)
    a.grad[...], b.grad[...] = 3, 4
    optimizer.step()
    norm = (2 * 9 + 2 * 16) ** 0.5
    np.testing.assert_allclose([a.data[0], b.data[0]], [1 - 3 / norm, 1 - 0.5 * 4 / norm])


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        (lambda a, b, c: [{"lr": 0.1}], ValueError, "group 0 has no 'params'"),
        (lambda a, b, c: [{"params": [a]}, {"params": [b], "momentun": 0.5}], ValueError, "group 1 has 'momentun'"),
        (lambda a, b, c: [{"params": [a]}, {"params": [b], "momentum": 0.5}], ValueError, "SGD has 'weight_decay'"),
        (lambda a, b, c: [{"params": [a], "weight_decay": -1}], ValueError, "weight_decay is -1"),
        (lambda a, b, c: [{"params": [a], "lr": -1}], ValueError, "group 0: lr is -1"),
        (lambda a, b, c: [{"params": [a, b]}, {"params": [b, c]}], ValueError, "'b' is in the list twice"),
        (lambda a, b, c: [a, {"params": [b]}], TypeError, "either parameters or groups"),
        (lambda a, b, c: [a.data], TypeError, "expected a Param, got a ndarray"),
        (lambda a, b, c: [{"params": [a], "clip_norm": 1}], ValueError, "group 0 has 'clip_norm'"),
    ],
)
def test_what_is_wrong_with_a_group_is_named(groups, error, message):
    with pytest.raises(error, match=message):
        Optimizer(groups(*three()), SGD(), 0.1)


def test_an_optimizer_of_some_parameters_keeps_class_groups_and_memory():
    class Mine(Optimizer):
        scope = "element"

    a, b, c = three()
    whole = Mine([{"params": [a, b], "lr": 0.5}, {"params": [c]}], Momentum(), 0.1, clip_norm=2.0)
    for p in (a, b, c):
        p.grad[...] = 1
    whole.step()
    part = whole.rebind([[b], [c]])
    assert type(part) is Mine
    assert part.params == [b, c]
    assert part.states[0] is whole.states[1]
    assert part.states[1] is whole.states[2]
    assert (part.steps, part.clip_norm, part.groups[0].lr(0)) == (1, 2.0, 0.5)
    assert whole.params == [a, b, c]


def test_what_a_step_must_see_at_once():
    class Unknown(Optimizer):
        def step(self):
            super().step()

    class Known(Unknown):
        scope = "element"

    params = MLP((3, 2)).params
    assert Optimizer(params, Momentum(), 0.1).needed_scope == "element"
    assert Optimizer([{"params": params[:1], "rule": LARS()}, {"params": params[1:]}], SGD(), 0.1).needed_scope == (
        "parameter"
    )
    assert Unknown(params, SGD(), 0.1).needed_scope == "model"
    assert Known(params, SGD(), 0.1).needed_scope == "element"
    assert Known(params, LARS(), 0.1).needed_scope == "parameter"
