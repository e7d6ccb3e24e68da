"""A convolution that computes the pooling behind it gives what the layers give one by one."""

import copy

import numpy as np
import pytest

from distlearn import nn
from distlearn.nn import StrictArray, ops
from distlearn.nn.fused import cells
from distlearn.trace import Trace, WallClock


def whole_numbers(*shape, low=-2, high=3, seed=0):
    """Small whole numbers: sums of them are exact in any order, and many are equal."""
    return np.random.default_rng(seed).integers(low, high, size=shape).astype("float64")


def model(c_in, k, size, pool, *, relu=True, **options):
    """A convolution, ReLU and pooling, with weights and biases that are whole numbers."""
    conv = nn.Conv2d(c_in, k, size, 0, dtype="float64", **options)
    for i, p in enumerate(conv.params):
        p.data[...] = whole_numbers(*p.data.shape, seed=i + 1)
    return nn.Sequential(conv, *[nn.ReLU()] * relu, pool)


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
    # few channels: all outputs of a pooling window at once
    ((3, 8, 8, 1), (1, 4, 3, nn.MaxPool(2)), {"padding": 1}),
    ((2, 12, 10, 1), (1, 3, 5, nn.MaxPool(2)), {"padding": 2}),
    ((2, 10, 8, 1), (1, 2, 5, nn.MaxPool(2)), {}),
    ((2, 8, 12, 2), (2, 3, (2, 3), nn.MaxPool((1, 2))), {"padding": (0, 1)}),
    ((2, 11, 9, 1), (1, 2, 3, nn.MaxPool(3)), {}),
    ((2, 6, 9, 3), (3, 2, (1, 2), nn.MaxPool((2, 1))), {}),
    ((2, 8, 8, 1), (1, 2, 3, nn.MaxPool(2)), {"padding": 1, "bias": False}),
    ((2, 4, 4, 1), (1, 2, 3, nn.MaxPool(2)), {"padding": 3}),
    # all others: the pooling layer's own way
    ((2, 8, 8, 16), (16, 4, 3, nn.MaxPool(2)), {"padding": 1}),
    ((2, 9, 9, 1), (1, 3, 3, nn.MaxPool(2)), {"padding": 1}),
    ((2, 9, 9, 1), (1, 3, 3, nn.MaxPool(3, 2, ceil=True)), {"padding": 1}),
    ((2, 8, 8, 1), (1, 3, 3, nn.MaxPool(3, 1, padding=1)), {"padding": 1}),
    ((2, 9, 9, 1), (1, 3, 3, nn.MaxPool(2)), {"stride": 2, "padding": 1}),
    ((2, 8, 8, 1), (1, 3, 3, nn.MaxPool(2)), {"dilation": 2, "padding": 2}),
    ((2, 8, 8, 4), (4, 6, 3, nn.MaxPool(2)), {"groups": 2, "padding": 1}),
    ((2, 8, 8, 1), (1, 3, 3, nn.MaxPool(1)), {"padding": 1}),
    ((2, 8, 8, 2), (2, 3, 3, nn.MaxPool(2)), {"padding": 1, "algorithm": "im2col"}),
]


@pytest.mark.parametrize("device", [np.asarray, StrictArray])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("shape", "layers", "options"), CASES, ids=str)
def test_taken_pooling_is_the_same_to_the_last_bit(shape, layers, options, relu, device, monkeypatch):
    """Also where values are equal: the gradient goes to the same one of them."""
    there, x = model(*layers, relu=relu, **options), whole_numbers(*shape)
    here = copy.deepcopy(there)
    dy = whole_numbers(*there.output_shape(shape), seed=9)
    want_y, want_dx = one_by_one(here, x, dy.copy())
    nn.move(there, lambda a: device(a.copy()))
    get = np.asarray if device is np.asarray else StrictArray.get
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


def test_which_convolutions_see_little():
    def pays(c_in, size, pool, shape=(1, 8, 8, 4), **options):
        return cells.pays(nn.Conv2d(c_in, 4, size, 0, **options), pool, shape)

    assert pays(1, 3, nn.MaxPool(2))
    assert pays(2, 3, nn.MaxPool(2))  # 4 x 4 x 2 values
    assert pays(1, 5, nn.MaxPool(2))
    assert not pays(1, 7, nn.MaxPool(3), (1, 9, 9, 4))  # 9 x 9 values
    assert not pays(3, 3, nn.MaxPool(2))
    assert not pays(1, 3, nn.MaxPool(2), (1, 9, 8, 4))
    assert not pays(1, 3, nn.MaxPool(3, 2), (1, 9, 9, 4))
    assert not pays(1, 3, nn.MaxPool(2, padding=1))
    assert not pays(1, 3, nn.MaxPool(2), stride=2)
    assert not pays(1, 3, nn.MaxPool(2), dtype="float16")
    assert not pays(2, 3, nn.MaxPool(2), groups=2)


def test_the_convolutions_output_is_not_kept():
    """What it saves is the image, the pooled image, and a byte for every comparison."""
    taken = nn.Sequential(nn.Conv2d(1, 16, 3, 0, padding=1), nn.ReLU(), nn.MaxPool(2))
    x = np.zeros((4, 28, 28, 1), "float32")
    _, saved = taken.forward(x)
    pooled = 4 * 14 * 14 * 16
    assert nn.nbytes(saved) < 1.15 * (4 * pooled + 3 * pooled + 4 * 4 * 30 * 30)


def test_spans_of_all_three_layers_say_what_each_computes():
    layers, x, clock = nn.build("lenet"), np.zeros((2, 784), "float32"), WallClock(trace=(trace := Trace()))
    y, saved = layers.forward(x, clock=clock)
    layers.backward(np.ones_like(y), saved, clock=clock)
    spans = {s.name: s for s in trace.spans}
    for layer, shape in layers.parts(x.shape):
        if type(layer) is nn.ReLU and len(shape) == 4:  # it runs behind the pooling
            shape = layers.layers[layers.layers.index(layer) + 1].output_shape(shape)
        assert spans[f"forward[{layer.name}]"].flops == layer.flops(shape)
        assert spans[f"backward[{layer.name}]"].flops == layer.backward_flops(shape)


def test_an_empty_batch():
    layers = nn.Sequential(nn.Conv2d(1, 4, 3, 0, padding=1), nn.ReLU(), nn.MaxPool(2))
    y, saved = layers.forward(np.zeros((0, 8, 8, 1), "float32"))
    assert y.shape == (0, 4, 4, 4)
    assert layers.backward(y, saved).shape == (0, 8, 8, 1)
    assert (layers.params[0].grad == 0).all()


def test_a_pass_that_was_replaced_is_of_its_layer_alone():
    layers = nn.Sequential(nn.Conv2d(1, 4, 3, 0, padding=1), nn.ReLU(), nn.MaxPool(2))
    conv, shapes = layers.layers[0], []
    forward = conv.forward
    conv.forward = lambda x: (shapes.append(x.shape), forward(x))[1]
    y, saved = layers.forward(np.ones((2, 8, 8, 1), "float32"))
    assert (y.shape, shapes) == ((2, 4, 4, 4), [(2, 8, 8, 1)])
    assert layers.backward(y, saved).shape == (2, 8, 8, 1)
