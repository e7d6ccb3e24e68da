"""A fused model computes what its layers compute one by one, with the same parameters under the same names."""

import copy

import numpy as np
import pytest

from distlearn import nn
from distlearn.nn import MockDeviceArray, ops
from distlearn.nn.fused import Fused, is_fused
from distlearn.nn.fused.layers import FusedConv2d
from distlearn.trace import Trace, WallClock


def whole_numbers(*shape, low=-2, high=3, seed=0):
    """Small whole numbers: sums of them are exact in any order, and many are equal."""
    return np.random.default_rng(seed).integers(low, high, size=shape).astype("float64")


def model(c_in, k, size, pool, **options):
    """A convolution, ReLU and pooling, with weights and biases that are whole numbers."""
    conv = nn.Conv2d(c_in, k, size, 0, dtype="float64", **options)
    for i, p in enumerate(conv.params):
        p.data[...] = whole_numbers(*p.data.shape, seed=i + 1)
    return nn.Sequential(conv, nn.ReLU(), pool)


def one_by_one(sequential, x, dy):
    """Output and gradient of the input, every layer by itself and in the order in which they are written."""
    saved = []
    for layer in sequential.layers:
        x, s = layer.forward(x)
        saved.append(s)
    for layer, s in zip(reversed(sequential.layers), reversed(saved), strict=True):
        dy = layer.backward(dy, s)
    return x, dy


CASES = [
    ((3, 8, 8, 1), (1, 4, 3, nn.MaxPool(2)), {"padding": 1}),
    ((2, 12, 10, 1), (1, 3, 5, nn.MaxPool(2)), {"padding": 2}),
    ((2, 10, 8, 1), (1, 2, 5, nn.MaxPool(2)), {}),
    ((2, 8, 12, 2), (2, 3, (2, 3), nn.MaxPool((1, 2))), {"padding": (0, 1)}),
    ((2, 11, 9, 1), (1, 2, 3, nn.MaxPool(3)), {}),
    ((2, 6, 9, 3), (3, 2, (1, 2), nn.MaxPool((2, 1))), {}),
    ((2, 4, 4, 1), (1, 2, 3, nn.MaxPool(2)), {"padding": 3}),
    ((2, 8, 8, 16), (16, 4, 3, nn.MaxPool(2)), {"padding": 1}),
    ((2, 9, 9, 1), (1, 3, 3, nn.MaxPool(2)), {"padding": 1}),
    ((2, 9, 9, 1), (1, 3, 3, nn.MaxPool(3, 2, ceil=True)), {"padding": 1}),
    ((2, 8, 8, 1), (1, 3, 3, nn.MaxPool(3, 1, padding=1)), {"padding": 1}),
    ((2, 9, 9, 1), (1, 3, 3, nn.MaxPool(2)), {"stride": 2, "padding": 1}),
    ((2, 8, 8, 4), (4, 6, 3, nn.MaxPool(2)), {"groups": 2, "padding": 1}),
    ((2, 8, 8, 1), (1, 3, 3, nn.MaxPool(1)), {"padding": 1}),
    ((2, 8, 8, 2), (2, 3, 3, nn.MaxPool(2)), {"padding": 1, "algorithm": "im2col"}),
]


@pytest.mark.parametrize("device", [np.asarray, MockDeviceArray])
@pytest.mark.parametrize(("shape", "layers", "options"), CASES, ids=str)
def test_fused_pooling_is_the_same_to_the_last_bit(shape, layers, options, device, monkeypatch):
    """Also where values are equal: the gradient goes to the same one of them."""
    there, x = model(*layers, **options), whole_numbers(*shape)
    here = copy.deepcopy(there)
    dy = whole_numbers(*there.output_shape(shape), seed=9)
    want_y, want_dx = one_by_one(here, x, dy.copy())
    there = nn.fuse(nn.move(there, lambda a: device(a.copy())))
    assert type(there.fused_layers()[0]) is FusedConv2d
    get = np.asarray if device is np.asarray else MockDeviceArray.get
    for _ in range(2):
        for p in there.params:
            p.grad[...] = 0
        y, saved = there.forward(device(x))
        dx = there.backward(device(dy.copy()), saved)
        np.testing.assert_array_equal(get(y), want_y)
        np.testing.assert_array_equal(get(dx), want_dx)
        for p, q in zip(there.params, here.params, strict=True):
            np.testing.assert_array_equal(get(p.grad), q.grad)
        monkeypatch.setattr(ops, "CACHE_BYTES", 1)  # now one sample at a time
        monkeypatch.setattr(ops, "DEVICE_BYTES", 1)
    assert (want_dx != 0).any()


PUBLISHED = ("mlp", "lenet", "cnn", "alexnet28", "googlenet28", "squeezenet28", "siamese", "gru")


def samples(name, n=3):
    rng = np.random.default_rng(0)
    return rng.integers(128, size=(n, 5)) if name == "gru" else rng.normal(size=(n, *nn.MODELS[name].sample))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_networks_are_the_same(name):
    """Outputs, gradients, names and order of parameters; the plain model is left as it was."""
    plain, other = (nn.build(name, dtype="float64") for _ in range(2))
    fused, x, shown = nn.fuse(other), samples(name), repr(plain)
    assert [p.name for p in fused.params] == [p.name for p in plain.params]
    assert all(p is q for p, q in zip(fused.params, other.params, strict=True))
    y, saved = plain.forward(x)  # masks of Dropout come from generators with the same seeds
    z, kept = fused.forward(x)
    np.testing.assert_allclose(z, y, rtol=1e-12, atol=1e-12)
    order, fused_order = [], []
    plain.backward(np.ones_like(y), saved, on_grad=order.append)
    fused.backward(np.ones_like(z), kept, on_grad=fused_order.append)
    assert [p.name for p in order] == [p.name for p in fused_order]
    for p, q in zip(plain.params, fused.params, strict=True):
        assert p.grad.any()
        np.testing.assert_allclose(q.grad, p.grad, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(fused.eval().forward(x)[0], plain.eval().forward(x)[0], rtol=1e-12, atol=1e-12)
    assert repr(other) == repr(fused) == shown
    assert is_fused(fused) == (name != "gru")
    assert not is_fused(other)


def test_which_layers_become_one():
    def kinds(*layers):
        return [type(layer).__name__ for layer in nn.fuse(nn.Sequential(*layers)).fused_layers()]

    class Own(nn.ReLU):
        """A subclass, which may do anything."""

    class Twice(nn.Linear):
        """Another."""

    conv, relu, pool = nn.Conv2d(1, 1, 3), nn.ReLU(), nn.MaxPool(2)
    assert kinds(conv, relu, pool, relu) == ["FusedConv2d", "ReLU"]
    assert kinds(conv, relu) == kinds(conv) == ["FusedConv2d"]
    assert kinds(conv, pool, relu) == ["FusedConv2d", "MaxPool", "ReLU"]
    assert kinds(conv, nn.Tanh(), relu) == ["FusedConv2d", "Tanh", "ReLU"]
    assert kinds(conv, Own(), pool) == ["FusedConv2d", "Own", "MaxPool"]
    assert kinds(nn.Linear(2, 2), relu, nn.Linear(2, 2), nn.Tanh()) == ["FusedLinear", "Linear", "Tanh"]
    assert kinds(relu, Twice(2, 2), relu) == ["ReLU", "Twice", "ReLU"]
    with pytest.raises(TypeError, match="fuse: expected a model, got list"):
        nn.fuse([conv])


def test_layers_inside_layers_are_fused_too():
    inside = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.ReLU())
    model = nn.Sequential(nn.Residual(nn.Recompute(inside)), nn.Parallel(nn.Sequential(*inside.layers), nn.Identity()))
    rows = [part.fused_layers() for part in nn.walk(nn.fuse(model)) if isinstance(part, nn.Sequential)]
    assert [type(layer).__name__ for row in rows for layer in row if isinstance(layer, Fused)] == ["FusedConv2d"] * 2


def test_what_runs_follows_the_layers():
    """A strategy cuts a fused model, or replaces some of its layers."""
    model = nn.fuse(nn.build("lenet"))
    x = np.random.default_rng(0).normal(size=(2, 784)).astype("float32")
    model.forward(x)
    part = copy.copy(model)
    part.layers = model.layers[:3]
    assert [type(layer).__name__ for layer in part.fused_layers()] == ["Reshape", "FusedConv2d"]
    model.layers[2] = nn.Tanh()
    assert [type(layer).__name__ for layer in model.fused_layers()[:4]] == ["Reshape", "FusedConv2d", "Tanh", "MaxPool"]


def test_spans_say_what_is_computed():
    """Plain: a span for every layer and direction. Fused: one for layers that are one, with the sum of their work."""
    for make in (lambda model: model, nn.fuse):
        layers, x, clock = make(nn.build("lenet")), np.zeros((2, 784), "float32"), WallClock(trace=(trace := Trace()))
        y, saved = layers.forward(x, clock=clock)
        layers.backward(np.ones_like(y), saved, clock=clock)
        spans = {s.name: s for s in trace.spans}
        assert len(spans) == 2 * len(layers.fused_layers())
        shape = x.shape
        for layer in layers.fused_layers():
            assert spans[f"forward[{layer.name}]"].flops == layer.flops(shape)
            assert spans[f"backward[{layer.name}]"].flops == layer.backward_flops(shape)
            shape = layer.output_shape(shape)
        assert sum(s.flops for s in trace.spans) == layers.flops(x.shape) + layers.backward_flops(x.shape)
    assert "forward[1.Conv2d+ReLU+MaxPool]" in spans


def test_reports_and_copies_take_fused_models():
    model, x = nn.fuse(nn.build("lenet")), np.ones((2, 784), "float32")
    assert model.flops(x.shape) == nn.build("lenet").flops(x.shape)
    (profile,) = nn.profile_sweep(model, (784,), 2, repeats=1)
    assert [t.name for t in profile.layers] == [layer.name for layer in model.layers]
    assert list(nn.to_torch_state(model, (784,))) == list(nn.to_torch_state(nn.build("lenet"), (784,)))
    copied = copy.deepcopy(model)
    copied.params[0].data[...] += 1
    assert (copied.forward(x)[0] != model.forward(x)[0]).any()
