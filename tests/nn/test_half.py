"""Half precision: what is summed or squared is so in single precision and rounded once."""

import copy
import math

import numpy as np
import pytest

from distlearn import nn
from distlearn.nn.attention import attend, attend_backward, finish, partial
from distlearn.optim import LARS, RULES, Optimizer, clip_by_norm, global_norm

from .cases import LAYERS as ALL_LAYERS
from .cases import label

HALF = {"rtol": 4e-3, "atol": 4e-3}

LAYERS = [
    (nn.Linear(3, 4, 0), (64, 80, 3)),
    (nn.Conv2d(2, 6, 3, 0, padding=1), (16, 28, 28, 2)),
    (nn.BatchNorm(3), (16, 28, 28, 3)),
    (nn.BatchNorm(3).eval(), (16, 28, 28, 3)),
    (nn.LayerNorm(6), (3000, 6)),
    (nn.LocalResponseNorm(5), (2, 4, 4, 7)),
    (nn.GlobalAvgPool(), (2, 56, 56, 3)),
    (nn.RNN(3, 4, 0), (64, 60, 3)),
    (nn.GRU(3, 4, 0), (64, 60, 3)),
]


def passes(layer, x, dy):
    """Output, gradient of the input, and the gradients of all parameters."""
    y, saved = layer.forward(x)
    dx = layer.backward(dy, saved)
    return [y, dx, *(p.grad for p in layer.params if not p.frozen)]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda v: str(v))
def test_thousands_of_terms_give_what_double_precision_gives(layer, shape):
    """In half precision a sum of ones ends at 2,048, and 300 squared is infinite."""
    rng = np.random.default_rng(0)
    x = rng.normal(3, 1, shape).astype("float16")
    if isinstance(layer, (nn.LayerNorm, nn.LocalResponseNorm)):
        x *= 100
    dy = rng.uniform(0, 1, layer.output_shape(shape)).astype("float16")
    half, double = copy.deepcopy(layer), copy.deepcopy(layer)
    for model, dtype in ((half, "float16"), (double, "float64")):
        nn.move(model, lambda a, dtype=dtype: a.astype("float16").astype(dtype))
    found = passes(half, x, dy.copy())
    for got, want in zip(found, passes(double, x.astype("float64"), dy.astype("float64")), strict=True):
        assert got.dtype == np.float16
        np.testing.assert_allclose(got / np.abs(want).max(), want / np.abs(want).max(), **HALF)


def test_what_is_too_large_is_infinite_without_a_warning():
    """pytest makes a RuntimeWarning from the library an error."""
    layer, x = nn.Linear(2, 3, "zeros", dtype="float16"), np.full((100, 2), 1000, "float16")
    _, saved = layer.forward(x)
    layer.backward(np.full((100, 3), 1000, "float16"), saved)
    assert np.isinf(layer.W.grad).all()
    assert np.isinf(layer.b.grad).all()


# -- everything, on random values of all magnitudes, against double precision ------------------------------------------

SATURATES = (nn.Tanh, nn.Sigmoid, nn.Softmax, nn.RNN, nn.GRU, nn.MultiHeadAttention)  # then rounding decides a slope


def halves(rng, shape, scale):
    return (scale * rng.normal(size=shape)).astype("float16")


def close(found, wanted, rtol=8e-3):
    """Within rounding, relative to the largest value that half precision has; what is beyond is infinite."""
    assert found.dtype == np.float16
    within = np.abs(wanted) < 6e4
    assert (np.isinf(found) | within | (np.abs(found) > 5.9e4)).all()
    found, wanted = np.where(within, found, 0).astype(float), np.where(within, wanted, 0)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=rtol * np.abs(wanted).max(initial=0) + 2e-6)


@pytest.mark.parametrize(("layer", "shape"), [case for case in ALL_LAYERS if 0 not in case[1]], ids=label)
def test_every_layer_is_within_rounding_of_double_precision(layer, shape):
    saturates = any(isinstance(part, SATURATES) for part in nn.walk(layer))
    symbols = any(isinstance(part, nn.Embedding) for part in nn.walk(layer))
    for seed, scale in enumerate((0.01, 0.3) if saturates else (0.01, 1, 30, 200)):
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 2, shape) if symbols else halves(rng, shape, scale)
        dy, results = halves(rng, layer.output_shape(shape), rng.choice([0.01, 1, 30])), []
        for dtype in ("float16", "float64"):
            model = copy.deepcopy(layer)
            nn.move(model, lambda a, dtype=dtype: a.astype("float16").astype(dtype))
            y, saved = model.forward(x if symbols else x.astype(dtype))
            dx = model.backward(dy.astype(dtype), saved)
            keys = [p.grad for p in model.params if not p.frozen and p.name != "1.b"]  # of keys in attention: 0
            results.append([y, *([] if dx is None else [dx]), *keys])
        for found, wanted in zip(*results, strict=True):
            close(found, wanted)


def test_an_activation_is_right_from_end_to_end():
    """The slope of GELU was NaN from 85 on, its output infinite from 32,768 on."""
    x = np.concatenate([np.linspace(-10, 10, 801), [84, 85, 300, 6e4, -84, -85, -300, -6e4]]).astype("float16")[None]
    for layer in (nn.GELU(), nn.Sigmoid(), nn.Tanh(), nn.ReLU()):
        found, wanted = (passes(layer, x.astype(t), np.ones(x.shape, t)) for t in ("float16", "float64"))
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got.astype(float), want, rtol=1e-3, atol=2e-3)
    with np.errstate(over="ignore"):
        assert passes(nn.GELU(), np.array([[1e15]], "float32"), np.ones((1, 1), "float32"))[1] == 1


@pytest.mark.parametrize("scale", [1, 30, 60])
def test_scores_of_attention_may_be_larger_than_half_precision(scale):
    """Scaled they fit, at 60 up to a fifth of its range; the products that are scaled do not."""
    rng = np.random.default_rng(0)
    q, k, v, dy = (halves(rng, (2, 2, 16, 64), s) for s in (scale, scale, 1, 1))
    results = []
    for dtype in ("float16", "float64"):
        y, saved = attend(*(a.astype(dtype) for a in (q, k, v)), causal=True)
        results.append([y, *attend_backward(dy.astype(dtype), saved)])
    close(results[0][0], results[1][0], rtol=2e-3)
    for found, wanted in zip(*results, strict=True):
        assert np.isfinite(found).all()
        if scale == 1:  # else the slope of a softmax that has decided is what rounding makes it
            close(found, wanted)


def test_many_keys_share_the_attention():
    """A sum of 70,000 in half precision is infinite, and what is divided by it 0."""
    q, k, v = (np.ones((1, 1, n, 2), "float16") for n in (1, 70_000, 70_000))
    assert attend(q, k, v)[0] == pytest.approx(1, abs=1e-3)
    assert finish(partial(q, k, v))[0] == pytest.approx(1, abs=1e-3)


def test_pools_softmax_and_losses_sum_in_single_precision():
    assert nn.Softmax().forward(np.zeros((1, 70_000), "float16"))[0][0, 0] == np.float16(1 / 70_000)
    slope = nn.GlobalAvgPool().backward(np.full((1, 1), 6e4, "float16"), (1, 300, 300, 1))
    assert slope[0, 0, 0, 0] == np.float16(6e4 / 90_000)
    loss, dy = nn.SoftmaxCrossEntropy()(np.zeros((1, 70_000), "float16"), np.array([0]))
    assert loss == pytest.approx(math.log(70_000))
    assert dy[0, 1] == np.float16(1 / 70_000)
    y = np.full((2, 3), 300, "float16")
    loss, dy = nn.MeanSquaredError()(y, -y, 100_000)
    assert (loss, dy.dtype) == (pytest.approx(600**2 / 50_000), np.float16)
    assert (dy == np.float16(1200 / 300_000)).all()
    _, dy = nn.MeanSquaredError()(y.astype("float32"), np.zeros((2, 3)))
    assert dy.dtype == np.float32  # as the outputs, whatever the targets are
    table = nn.Embedding(2, 1, 0, dtype="float16")
    table.backward(np.ones((4000, 1), "float16"), np.zeros(4000, int))
    assert table.W.grad[0, 0] == 4000


@pytest.mark.parametrize("name", RULES)
def test_every_rule_is_within_rounding_of_double_precision(name):
    rule = RULES[name](**{"eps": 1e-4} if "eps" in RULES[name].__dataclass_fields__ else {})
    for seed in range(5):
        rng = np.random.default_rng(seed)
        start, scale, lr = halves(rng, (4, 5), 1), 10 ** rng.uniform(-1, 2), 10 ** rng.uniform(-4, -1)
        params = [nn.Param(start.astype(dtype)) for dtype in ("float16", "float64")]
        optimizers = [Optimizer([p], rule, lr) for p in params]
        for _ in range(4):
            grad = halves(rng, (4, 5), scale)
            for p, optimizer in zip(params, optimizers, strict=True):
                p.grad[...] = grad
                optimizer.step()
        moved = abs(params[1].data - start).max()
        assert abs(params[0].data - params[1].data).max() < 4 * 2**-11 * abs(params[1].data).max() + 0.01 * moved


@pytest.mark.parametrize(("dtype", "value"), [("float16", 300), ("float16", 6e4), ("float16", 1e-5), ("float32", 1e20),
                                              ("float32", 1e-30), ("float64", 1e200), ("float64", 1e-200)])  # fmt: skip
def test_a_norm_is_right_where_squares_are_not(dtype, value):
    """A finite gradient was clipped to nothing, and all others with it."""
    a, b = (nn.Param(np.zeros(2, dtype)) for _ in "ab")
    a.grad[...] = [value, 0]
    b.grad[...] = [0, 0]
    assert global_norm([a, b]) == pytest.approx(float(a.grad[0]))
    b.grad[...] = [value, 0]
    wanted = float(a.grad[0]) * math.sqrt(2)
    assert clip_by_norm([a, b], wanted / 4) == pytest.approx(wanted)
    np.testing.assert_allclose(a.grad.astype(float), [wanted / 4 / math.sqrt(2), 0], rtol=1e-2)


def test_a_clipped_gradient_survives_a_small_factor():
    params = [nn.Param(np.zeros(10_000, "float16")) for _ in range(10)]
    for p in params:
        p.grad[...] = 6e4
    clip_by_norm(params, 0.1)
    assert global_norm(params) == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_gradient_that_is_not_finite_is_not_clipped_but_named(value):
    params = [nn.Param(np.zeros(2), name) for name in ("0.W", "1.W")]
    params[1].grad[0] = value
    with pytest.raises(FloatingPointError, match=f"a gradient is not finite, that of '1.W': their norm is {value}"):
        clip_by_norm(params, 1.0)


def test_lars_moves_in_half_precision():
    p = nn.Param(np.array([[300, 1]], "float16"))
    optimizer = Optimizer([p], LARS(weight_decay=0.0), lr=1.0)
    p.grad[...] = [[0, 300]]
    optimizer.step()
    assert p.data.tolist() == [[300, pytest.approx(0.7, abs=1e-3)]]
