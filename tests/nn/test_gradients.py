"""Every layer and loss, from one table: against central differences in float64, and on other devices."""

import copy

import numpy as np
import pytest

from distlearn import nn
from distlearn.backend import has_gpu, to_device
from distlearn.nn import MockDeviceArray
from distlearn.testing import check_layer, check_loss, gradient_check, numeric_gradient

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
    errors = check_layer(with_random_statistics(copy.deepcopy(layer)), x_of(*shape))
    no_dx = isinstance(layer, nn.Sequential) and not getattr(layer.layers[0], "input_gradient", True)
    assert [e.name for e in errors] == ([] if no_dx else ["dx"]) + [p.name for p in layer.params]


class Own(nn.Layer):
    """A right layer, which the broken ones differ from in one thing."""

    def __init__(self):
        self.W = nn.Param(x_of(6, 5), name="W")
        self.params = [self.W]

    def forward(self, x):
        return x @ self.W.data, x

    def backward(self, dy, x):
        self.W.grad += x.T @ dy
        return dy @ self.W.data.T

    def output_shape(self, shape):
        return (*shape[:-1], 5)

    def flops(self, shape):
        return 60 * shape[0]


class Sets(Own):
    def backward(self, dy, x):
        self.W.grad[...] = x.T @ dy
        return dy @ self.W.data.T


class Keeps(Own):
    def forward(self, x):
        self.x = x
        return x @ self.W.data, None

    def backward(self, dy, saved):
        return super().backward(dy, self.x)


class Unlisted(Own):
    def __init__(self):
        super().__init__()
        self.params = []


class Counting(Own):
    """Keeps the number of its passes: in a parameter of `kind`, counted in `method`; "" keeps it on self."""

    def __init__(self, kind, method):
        super().__init__()
        self.method, self.n, self.seen = method, 0, kind(np.zeros(1), "seen", frozen=True)
        self.params = [self.W, self.seen]

    def forward(self, x):
        self.seen.data += self.method == "forward"
        return super().forward(x)

    def backward(self, dy, x):
        self.seen.data += self.method == "backward"
        self.n += not self.method
        return super().backward(dy, x)


def test_a_layer_of_ones_own():
    for layer in (Own(), nn.Dropout(0.3), nn.Residual(nn.Sequential(Own(), nn.Linear(5, 6, 0, **F)))):
        check_layer(layer, x_of(4, 6))


def broken(**methods):
    return lambda: type("Broken", (Own,), methods)()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Sets, r"'gradients are added': p\.grad after two batches.*p\.grad \+="),
        (Keeps, "'no state on self'.*keep nothing on self"),
        (broken(forward=lambda self, x: (np.multiply(x, 2, out=x) @ self.W.data, x)), "'inputs are left alone'"),
        (
            broken(output_shape=nn.Layer.output_shape),
            r"'shapes': output_shape says \(4, 6\) for input \(4, 6\), forward gave \(4, 5\)",
        ),
        (
            broken(backward=lambda self, dy, x: Own.backward(self, dy, x).ravel()),
            r"'shapes': backward returned \(24,\) for an input \(4, 6\)",
        ),
        (broken(flops=nn.Layer.flops), "'costs': flops is 0.*define flops"),
        (broken(backward=lambda self, dy, x: 0.9 * Own.backward(self, dy, x)), "dx.*backward says .*, differences say"),
        (broken(forward=lambda self, x: (x @ self.W.data * np.ones(5), x)), "'dtypes': float32 became float64"),
        (broken(forward=lambda self, x: (np.asarray(x) @ self.W.data, x)), "'device arrays'.*xp = get_xp"),
        (Unlisted, "'all parameters in params': W is missing"),
        (lambda: Counting(nn.Statistic, "forward"), "'forward changes nothing': seen changed in forward"),
        (lambda: Counting(nn.Param, "backward"), "'statistics': seen changed in backward.*nn.Statistic"),
        (lambda: Counting(nn.Param, ""), r"'statistics': self\.n changed from 0 to 1"),
        (
            broken(forward=lambda self, x: vars(self).update(last=x.sum()) or Own.forward(self, x)),
            r"'statistics': self\.last changed from None to",
        ),
    ],
)
def test_a_broken_layer_is_told_which_rule_it_breaks(kind, message):
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        check_layer(kind(), x_of(4, 6))


def test_single_precision_is_no_fault_of_the_layer():
    with pytest.raises(TypeError, match=r"check_layer: W is float32, expected float64: Linear.* dtype='float64'"):
        check_layer(nn.Linear(6, 5, 0), x_of(4, 6))


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
]


@pytest.mark.parametrize(("loss", "shape", "targets"), LOSSES, ids=lambda v: type(v).__name__)
def test_losses(loss, shape, targets):
    check_loss(loss, x_of(*shape), targets)


def squared(y, t, n):
    return float(((y - t) ** 2).sum()) / n, 2 * (y - t) / n


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda y, t, n: squared(y, t, len(y)), "'divided by n'"),
        (lambda y, t, n: (squared(y, t, n)[0], (y - t) / n), "'gradient'"),
        (lambda y, t, n: squared(np.abs(y, out=y), t, n), "'inputs are left alone'"),
        (lambda y, t, n: squared(np.asarray(y), t, n), "'device arrays'.*get_xp"),
        (lambda y, t, n: squared(y * np.ones(3), t, n), "'dtypes'"),
        (lambda y, t, n: squared(y - y.mean(0), t, n), "'parts add up'"),
    ],
)
def test_a_broken_loss_is_told_which_rule_it_breaks(loss, message):
    check_loss(squared, x_of(4, 3), x_of(4, 3, seed=3))
    with pytest.raises(AssertionError, match=message):
        check_loss(loss, x_of(4, 3), x_of(4, 3, seed=3).astype("float32"))


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
