"""Half precision: what is summed or squared is so in single precision and rounded once."""

import copy

import numpy as np
import pytest

from distlearn import nn

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
