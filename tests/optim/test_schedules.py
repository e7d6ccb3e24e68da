"""Learning-rate schedules and gradient clipping."""

import math

import numpy as np
import pytest

from distlearn.nn import Param
from distlearn.optim import SGD, Cosine, Optimizer, WarmUp, clip_by_norm, scaled_lr
from distlearn.optim.schedules import as_schedule


def test_cosine_and_its_ends():
    want = 0.4 * (1 + np.cos(np.pi * np.arange(26) / 25)) / 2
    schedule = Cosine(0.4, 25)
    np.testing.assert_allclose([schedule(t) for t in range(26)], want, atol=1e-12)
    assert schedule(0) == 0.4
    assert schedule(25) == schedule(1000) == pytest.approx(0)
    assert Cosine(1.0, 10)(5) == pytest.approx(0.5)


def test_warm_up_reaches_and_follows_its_plan():
    inner = Cosine(0.8, 100)
    schedule = WarmUp(inner, 10)
    assert schedule(0) == pytest.approx(0.08)
    assert [schedule(t) for t in (9, 10, 57)] == [inner(9), inner(10), inner(57)]
    np.testing.assert_allclose([WarmUp(0.4, 6, 0.1)(t) for t in range(5)], 0.04 + 0.36 * np.arange(1, 6) / 6)
    assert WarmUp(0.5, 0)(0) == 0.5


def test_linear_scaling():
    assert scaled_lr(0.1, 8192, 256) == pytest.approx(3.2)
    assert scaled_lr(0.1, 64, 256) == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Cosine(1, 0), "Cosine: steps is 0"),
        (lambda: WarmUp(1, -1), "WarmUp: steps is -1"),
        (lambda: Cosine(0.1, math.inf), "Cosine: steps is inf"),
        (lambda: WarmUp(0.1, math.nan), "WarmUp: steps is nan"),
        (lambda: WarmUp(math.inf, 3), "WarmUp: lr is inf, .* and finite"),
        (lambda: scaled_lr(-1, 10), "scaled_lr: lr is -1"),
        (lambda: scaled_lr(0.1, 0), "batch_size is 0"),
        (lambda: scaled_lr(0.1, math.inf), "batch_size is inf"),
        (lambda: Optimizer([], SGD(), 0.1, clip_norm="1"), "clip_norm is '1', expected a number above 0"),
        (lambda: clip_by_norm([], 0), "max_norm is 0"),
        (lambda: Optimizer([], SGD(), 0.1, clip_norm=-1), "clip_norm is -1"),
    ],
)
def test_errors_name_the_value(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def params(*gradients):
    made = [Param(np.zeros_like(g)) for g in gradients]
    for p, g in zip(made, gradients, strict=True):
        p.grad[...] = g
    return made


def test_clip_by_norm_shortens_all_gradients_alike():
    a, b = params(np.array([3.0, 0.0]), np.array([[4.0]]))
    assert clip_by_norm([a, b], 1.0) == pytest.approx(5.0)
    np.testing.assert_allclose(a.grad, [0.6, 0.0])
    np.testing.assert_allclose(b.grad, [[0.8]])
    assert clip_by_norm([a, b], 2.0) == pytest.approx(1.0)
    np.testing.assert_allclose(b.grad, [[0.8]])


def test_a_number_is_a_constant_plan_whoever_takes_it():
    assert as_schedule(0.5, "x")(7) == 0.5
    schedule = Cosine(1.0, 3)
    assert as_schedule(schedule, "x") is schedule
    for wrong in (-0.1, math.nan):
        with pytest.raises(ValueError, match=f"Somebody: lr is {wrong}, expected a number of 0 or more"):
            as_schedule(wrong, "Somebody")


def test_what_is_no_rate_is_named():
    with pytest.raises(TypeError, match=r"Somebody: lr is Optimizer\(.*, expected a number, or a function of the step"):
        as_schedule(Optimizer([Param(np.ones(1))], SGD(), 0.1), "Somebody")
