"""Every layer and loss, from one table: against central differences in float64, and on other devices."""

import copy

import numpy as np
import pytest

from distlearn import nn
from distlearn.backend import has_gpu, to_device
from distlearn.nn import MockDeviceArray
from distlearn.testing import gradient_check, numeric_gradient

from .cases import LAYERS, F, label

DEVICES = ["strict", "gpu"] if has_gpu() else ["strict"]


def x_of(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


def with_random_statistics(layer):
    """Biases, scales and statistics away from 0 and 1, so that nothing cancels by chance."""
    rng = np.random.default_rng(2)
    for p in layer.params:
        if p.name.split(".")[-1] in ("b", "c", "beta", "gamma", "running_mean", "running_var"):
            p.data[...] = rng.uniform(0.5, 1.5, p.data.shape)
    return layer


def moved(device, *arrays):
    """Copies of arrays on a device: arrays that refuse implicit conversion to NumPy as CuPy's do, or a GPU."""
    convert = MockDeviceArray if device == "strict" else lambda a: to_device(a, "gpu")
    return [convert(np.array(a)) for a in arrays]


def one_pass(layer, x, dy):
    """Output, gradient of the input if there is one, gradients of the parameters."""
    for p in layer.params:
        p.grad[...] = 0
    y, saved = layer.forward(x)
    dx = layer.backward(dy, saved)
    return [y, *([] if dx is None else [dx]), *(p.grad.copy() for p in layer.params)]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=label)
def test_layer(layer, shape):
    """The promised shape; the input as it was; gradients right, and added, not set; the same on other devices."""
    x = x_of(*shape)
    kept = x.copy()
    y, saved = layer.forward(x)
    assert y.shape == layer.output_shape(shape)
    np.testing.assert_array_equal(x, kept)
    assert min(layer.flops(shape), layer.bytes_moved(shape, 8)) >= 0
    layer = copy.deepcopy(layer)
    dy = np.random.default_rng(2).normal(size=y.shape)
    for device in [] if isinstance(layer, nn.Dropout) else DEVICES:  # masks drawn on a device are other masks
        there = copy.deepcopy(layer)
        for part in nn.walk(there):
            for p in vars(part).values():  # also what `params` leaves out
                if isinstance(p, nn.Param):
                    p.data, p.grad = moved(device, p.data, p.grad)
        found, wanted = one_pass(there, *moved(device, x, dy)), one_pass(copy.deepcopy(layer), x, dy.copy())
        for got, want in zip(found, wanted, strict=True):
            assert not isinstance(got, np.ndarray)
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got.get(), want, rtol=1e-10, atol=1e-10)
    one_pass(layer, x, np.ones_like(y))
    once = [p.grad.copy() for p in layer.params]
    y, saved = layer.forward(x)
    layer.backward(np.ones_like(y), saved)
    for p, g in zip(layer.params, once, strict=True):
        np.testing.assert_allclose(p.grad, 2 * g, rtol=1e-12, atol=1e-12)
    errors = gradient_check(with_random_statistics(layer), x)
    no_dx = isinstance(layer, nn.Sequential) and not getattr(layer.layers[0], "input_gradient", True)
    assert [e.name for e in errors] == ([] if no_dx else ["dx"]) + [p.name for p in layer.params]


def test_a_layer_that_promises_another_shape_is_named():
    class Half(nn.Layer):
        def forward(self, x):
            return x[:, ::2], x.shape

    with pytest.raises(AssertionError, match=r"output_shape says \(2, 4\) for input \(2, 4\), forward gave \(2, 2\)"):
        gradient_check(Half(), x_of(2, 4))


def test_embedding():
    layer, x = nn.Embedding(5, 3, 0, **F), np.array([[0, 2, 2], [4, 0, 2]])
    errors = gradient_check(layer, x)
    assert [e.name for e in errors] == ["W"]
    for device in DEVICES:
        there = nn.move(copy.deepcopy(layer), lambda a: moved(device, a)[0])  # noqa: B023
        for got, want in zip(
            one_pass(there, *moved(device, x, x_of(2, 3, 3))), one_pass(layer, x, x_of(2, 3, 3)), strict=True
        ):
            np.testing.assert_allclose(got.get(), want, rtol=1e-12)
    with pytest.raises(ValueError, match=r"Embedding\(.*\): symbols run from -1 to 2, expected 0 to 4"):
        layer.forward(np.array([-1, 2]))
    with pytest.raises(TypeError, match="expected symbols as integers"):
        layer.forward(np.array([1.0]))


LOSSES = [
    (nn.SoftmaxCrossEntropy(), (4, 3), np.array([0, 2, 1, 1])),
    (nn.SoftmaxCrossEntropy(), (2, 3, 4), np.array([[0, 2, 1], [3, 1, 1]])),
    (nn.MeanSquaredError(), (4, 3), x_of(4, 3, seed=3)),
    (nn.MeanSquaredError(), (2, 3, 2), x_of(2, 3, 2, seed=3)),
    (nn.ContrastiveLoss(2.5), (5, 2, 3), np.array([1, 0, 0, 1, 0])),
]


@pytest.mark.parametrize("n", [None, 12])
@pytest.mark.parametrize(("loss", "shape", "targets"), LOSSES, ids=lambda v: type(v).__name__)
def test_losses(loss, shape, targets, n):
    y = x_of(*shape)
    _, dy = loss(y, targets, n)
    np.testing.assert_allclose(dy, numeric_gradient(lambda: loss(y, targets, n)[0], y), atol=1e-8)
    for device in DEVICES:
        there, dz = loss(*moved(device, y, targets), n)
        assert there == pytest.approx(loss(y, targets, n)[0], rel=1e-12)
        np.testing.assert_allclose(dz.get(), dy, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("loss", "shape", "targets"), LOSSES, ids=lambda v: type(v).__name__)
def test_a_batch_in_parts_gives_the_whole_loss_and_gradient(loss, shape, targets):
    """What makes uneven shards right: every part divides by the size of the whole batch."""
    y, n = x_of(*shape), shape[0]
    whole, dy = loss(y, targets)
    parts = [loss(y[s], targets[s], n) for s in (slice(0, 1), slice(1, None))]
    assert sum(part for part, _ in parts) == pytest.approx(whole, rel=1e-12)
    np.testing.assert_allclose(np.concatenate([d for _, d in parts]), dy, rtol=1e-12, atol=1e-15)


def test_differences_of_an_array_with_gaps():
    """A transposed array, or every second column: its elements are changed where they lie."""
    whole = x_of(4, 6)
    for x in (whole.T, whole[:, ::2]):
        np.testing.assert_allclose(numeric_gradient(lambda x=x: float((x**3).sum()), x), 3 * x**2, atol=1e-7)


def test_single_precision_is_refused_and_not_called_wrong():
    x = x_of(2, 3).astype("float32")
    with pytest.raises(TypeError, match="x is float32, expected float64"):
        gradient_check(nn.Linear(3, 2, 0), x)
    with pytest.raises(TypeError, match="x is int64"):
        numeric_gradient(lambda: 0.0, np.arange(3))


@pytest.mark.parametrize("scale", [1, 100, 1000])
def test_large_inputs_are_checked_as_sharply(scale):
    """The rounding of a sum of 200 outputs, over a step of 1e-6, was 1e-6 here."""
    for seed in range(5):
        x = scale * np.random.default_rng(seed).normal(size=(10, 20))
        assert gradient_check(nn.GELU(), x, seed=seed)[0].error < 1e-9
