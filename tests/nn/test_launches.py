"""On a GPU layers, losses and optimizers launch the library's kernels; they give what the array operations give."""

import copy
import itertools

import numpy as np
import pytest

from distlearn import nn
from distlearn.backend import can_launch, has_gpu, to_device, to_numpy
from distlearn.cuda.kernels import bias_relu
from distlearn.nn import MockDeviceArray
from distlearn.nn.loss import softmax_cross_entropy_rows
from distlearn.optim import LARS, SGD, Adam, AdamW, Momentum, Nesterov, Optimizer
from tests.emulated import NEEDS_COMPILER, launched

from .cases import learn

__all__ = ["launched"]  # a fixture

EMULATED = pytest.param(MockDeviceArray, id="emulated", marks=NEEDS_COMPILER)
CARD = pytest.param(
    lambda a: to_device(a, "gpu"),
    id="gpu",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="needs an NVIDIA GPU")],
)
DEVICES = pytest.mark.parametrize("device", [EMULATED, CARD])
KERNELS = {"bias_relu", "bias_relu4", "bias_grad<false>", "softmax_xent_warp<long long>"}
CLOSE = {"rtol": 2e-5, "atol": 2e-6}


def host(x):
    return x.get() if isinstance(x, MockDeviceArray) else to_numpy(x)


def moved(model, device):
    """A copy of a model on a device, fused: then it launches kernels."""
    return nn.move(nn.fuse(copy.deepcopy(model)), lambda a: device(a.copy()))


def mlp(dtype="float32"):
    """Odd widths, so that rows are no multiple of 4, and one that is."""
    sizes = (11, 7, 8, 5)
    layers = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.Linear(a, b, i, dtype=dtype), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cnn(dtype="float32"):
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, 0, padding=1, dtype=dtype), nn.ReLU(), nn.MaxPool(2),
        nn.Conv2d(3, 4, 3, 1, dtype=dtype), nn.ReLU(),
        nn.Flatten(), nn.Linear(16, 5, 2, dtype=dtype),
    )  # fmt: skip


def train(model, rule, x, labels, steps=3):
    return learn(model, nn.SoftmaxCrossEntropy(), Optimizer(model.params, rule, 0.05), [(x, labels)] * steps)


def batch(shape, dtype="float32"):
    rng = np.random.default_rng(0)
    return rng.normal(size=shape).astype(dtype), rng.integers(5, size=shape[0])


@DEVICES
@pytest.mark.parametrize(
    ("make", "shape", "rule", "kernels"),
    [
        (mlp, (9, 11), Momentum(), {"bias_grad<true>", "sgd_momentum<float>", *KERNELS}),
        (
            cnn,
            (3, 8, 8, 1),
            Adam(),
            {"adam<float>", "bias_grad<true>", "windows", "add_windows", "max_pool", "max_pool_back", *KERNELS},
        ),
        (mlp, (9, 11), SGD(), {"bias_grad<true>", "saxpy4", *KERNELS}),
    ],
)
def test_training_is_the_same(device, make, shape, rule, kernels, launched):
    model, (x, labels) = make(), batch(shape)
    there = moved(model, device)
    before = [p.data.copy() for p in model.params]
    np.testing.assert_allclose(train(there, rule, device(x), device(labels)), train(model, rule, x, labels), rtol=1e-5)
    for p, q, old in zip(there.params, model.params, before, strict=True):
        np.testing.assert_allclose(host(p.data), q.data, **CLOSE)
        np.testing.assert_allclose(host(p.grad), q.grad, **CLOSE)
        assert (q.data != old).any()
    if device is MockDeviceArray:
        assert set(launched()) == kernels


@NEEDS_COMPILER
def test_double_precision_falls_back(launched):
    """Layers and loss have kernels for single precision only; updates have both."""
    model, (x, labels) = mlp("float64"), batch((6, 11), "float64")
    there = moved(model, MockDeviceArray)
    losses = train(there, Adam(), MockDeviceArray(x), MockDeviceArray(labels))
    np.testing.assert_allclose(losses, train(model, Adam(), x, labels), rtol=1e-12)
    for p, q in zip(there.params, model.params, strict=True):
        np.testing.assert_allclose(p.data.get(), q.data, rtol=1e-11, atol=1e-13)
    assert set(launched()) == {"adam<double>"}


@NEEDS_COMPILER
@pytest.mark.parametrize("rule", [SGD(0.1), Momentum(0.9, 0.1), Nesterov(), Adam(weight_decay=0.1), AdamW()], ids=str)
@pytest.mark.parametrize("n", [1, 30, 1024])
def test_ten_steps_of_a_rule(rule, n, launched):
    rng = np.random.default_rng(n)
    w, grads = rng.normal(size=n).astype("float32"), rng.normal(size=(10, n)).astype("float32")
    here, there = nn.Param(w.copy()), nn.Param(MockDeviceArray(w.copy()))
    optimizers = [Optimizer([p], rule, lambda step: 0.1 / (step + 1)) for p in (here, there)]
    for g in grads:
        here.grad[...], there.grad[...] = g, MockDeviceArray(g)
        for optimizer in optimizers:
            optimizer.step()
        np.testing.assert_array_equal(there.grad.get(), g)
    np.testing.assert_allclose(there.data.get(), here.data, rtol=1e-5, atol=1e-5)
    assert len(launched()) == (0 if isinstance(rule, Nesterov) else 10)


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ((nn.Conv2d(3, 5, 3, 0, padding=1), nn.ReLU(), nn.MaxPool(2)), (2, 9, 8, 3)),
        ((nn.Conv2d(4, 6, (2, 3), 0, stride=(2, 1)), nn.MaxPool(3, 2, padding=1), nn.ReLU()), (2, 11, 9, 4)),
        ((nn.Conv2d(2, 3, 1, 0, stride=2), nn.ReLU()), (1, 5, 7, 2)),
        ((nn.Conv2d(1, 4, 5, 0, padding=2), nn.MaxPool(2, ceil=True)), (3, 7, 7, 1)),
        ((nn.ReLU(), nn.MaxPool((3, 2), (2, 2), ceil=True)), (2, 8, 7, 3)),
        ((nn.Conv2d(16, 32, 3, 0, padding=1), nn.ReLU()), (2, 8, 8, 16)),  # winograd on a CPU
        ((nn.Conv2d(4, 4, 3, 0, groups=2), nn.ReLU()), (2, 6, 6, 4)),
    ],
    ids=lambda layers: ", ".join(map(repr, layers)) if isinstance(layers[0], nn.Layer) else "",
)
def test_images(layers, shape, launched):
    """Convolution and pooling, both ways, as on a CPU."""
    model, rng = nn.Sequential(*copy.deepcopy(layers)), np.random.default_rng(4)
    there, x = moved(model, MockDeviceArray), rng.normal(size=shape).astype("float32")
    (y, saved), (z, kept) = model.forward(x), there.forward(MockDeviceArray(x))
    np.testing.assert_allclose(z.get(), y, rtol=1e-5, atol=1e-5)
    dy = rng.normal(size=y.shape).astype("float32")
    dx, dz = model.backward(dy.copy(), saved), there.backward(MockDeviceArray(dy.copy()), kept)
    np.testing.assert_allclose(dz.get(), dx, rtol=1e-4, atol=1e-5)
    for p, q in zip(there.params, model.params, strict=True):
        np.testing.assert_allclose(p.grad.get(), q.grad, rtol=1e-4, atol=1e-4)
    grouped = getattr(model.layers[0], "groups", 1) > 1
    assert {"windows", "add_windows"} <= set(launched()) or grouped or not model.params


@NEEDS_COMPILER
@pytest.mark.parametrize("block", [False, True])
def test_a_gated_recurrent_unit(block, launched):
    """From a state and in blocks of steps as well, which is how long sequences run."""
    layer, rng = nn.GRU(5, 7, 0), np.random.default_rng(3)
    x, dy, state, dlast = (rng.normal(size=s).astype("float32") for s in ((3, 6, 5), (3, 6, 7), (3, 7), (3, 7)))
    there = nn.move(copy.deepcopy(layer), lambda a: MockDeviceArray(a.copy()))
    there.c.data[...] = MockDeviceArray(state[0])
    layer.c.data[...] = state[0]
    given = (state, dlast) if block else (None, None)
    y, saved = layer.forward_from(x, given[0])
    dx, dstate = layer.backward_from(dy.copy(), saved, given[1])
    on = [None if a is None else MockDeviceArray(a) for a in given]
    z, kept = there.forward_from(MockDeviceArray(x), on[0])
    dz, dthere = there.backward_from(MockDeviceArray(dy.copy()), kept, on[1])
    for got, want in ((z, y), (dz, dx), *([(dthere, dstate)] if block else [])):
        np.testing.assert_allclose(got.get(), want, rtol=1e-5, atol=1e-6)
    for p, q in zip(there.params, layer.params, strict=True):
        np.testing.assert_allclose(p.grad.get(), q.grad, rtol=1e-5, atol=1e-5)
    assert launched() == ["gru_step"] * 6 + ["gru_step_back"] * 6


@NEEDS_COMPILER
@pytest.mark.parametrize("rows", [255, 257, 1000])
def test_the_bias_of_many_rows(rows, launched):
    rng = np.random.default_rng(rows)
    y, dy, b = rng.normal(size=(rows, 5)), rng.normal(size=(rows, 5)), nn.Param(MockDeviceArray(np.zeros(5, "f4")))
    y, dy = y.astype("float32"), dy.astype("float32")
    there = MockDeviceArray(dy.copy())
    for times in (1, 2):
        nn.ops.bias_grad(there, b, MockDeviceArray(y))
        np.testing.assert_allclose(b.grad.get(), times * (dy * (y > 0)).sum(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(there.get(), dy * (y > 0))
    assert set(launched()) == {"bias_grad<true>"} | ({"bias_grad<false>"} if rows > 256 else set())


@NEEDS_COMPILER
@pytest.mark.parametrize("rule", [LARS(), AdamW(), Nesterov(), SGD(0.1)], ids=str)
def test_parameters_in_one_piece_are_updated_as_by_themselves(rule, launched):
    """LARS looks at the norm of each parameter."""
    rng, both = np.random.default_rng(0), []
    values = [rng.normal(size=size).astype("float32") for size in ((3, 5), (7,), (2, 2))]
    for device in (np.array, lambda a: MockDeviceArray(a.copy())):
        params = [nn.Param(device(v)) for v in values]
        optimizer = Optimizer(params, rule, 0.1)
        for _ in range(3):
            for p in params:
                p.grad[...] = p.data * p.data
            optimizer.step()
        both.append([host(p.data) for p in params])
    for here, there in zip(*both, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-6)


@NEEDS_COMPILER
def test_one_launch_updates_all_parameters_until_a_strategy_moves_them(launched):
    params = [nn.Param(MockDeviceArray(np.ones(n, "float32"))) for n in (3, 8, 5)]
    optimizer = Optimizer(params, Momentum(), 0.1)
    for p in params:
        p.grad[...] = MockDeviceArray(np.ones(p.size, "float32"))
    optimizer.step()
    assert launched() == ["sgd_momentum<float>"]
    params[1].grad = MockDeviceArray(np.full(8, 2, "float32"))  # as a bucket does
    optimizer.step()
    assert launched() == ["sgd_momentum<float>"] * 4
    for p, want in zip(params, (0.71, 0.61, 0.71), strict=True):
        np.testing.assert_allclose(p.data.get(), want, rtol=1e-6)


@NEEDS_COMPILER
def test_frozen_and_tied_parameters(launched):
    """A dense layer used twice with a ReLU behind each use, and one that is frozen."""

    def build(device):
        model = nn.Sequential(nn.Linear(6, 6, 0), nn.ReLU(), nn.Linear(6, 6, 1), nn.ReLU())
        model = nn.Sequential(*model.layers, model.layers[0], nn.ReLU(), nn.Linear(6, 5, 2))
        for p in model.layers[2].params:
            p.frozen = True
        return moved(model, device)

    here, there = build(np.asarray), build(MockDeviceArray)
    x, labels = batch((7, 6))
    frozen = here.params[2].data.copy()
    np.testing.assert_allclose(
        train(there, Momentum(), MockDeviceArray(x), MockDeviceArray(labels)),
        train(here, Momentum(), x, labels),
        rtol=1e-5,
    )
    for p, q in zip(there.params, here.params, strict=True):
        np.testing.assert_allclose(p.data.get(), q.data, **CLOSE)
    np.testing.assert_array_equal(there.params[2].data.get(), frozen)
    assert launched().count("bias_relu") == 3 * 3


@NEEDS_COMPILER
def test_views_into_a_bucket(launched):
    """Weights and gradients that lie anywhere in a flat array, where a float4 may not begin."""
    rng = np.random.default_rng(0)
    for offset in range(5):
        flat = rng.normal(size=64).astype("float32")
        there, grad = MockDeviceArray(flat.copy()), MockDeviceArray(np.ones(64, "float32"))
        part = slice(offset, offset + 32)
        SGD().update(there[part], grad[part], None, 0.5, 0)
        want = np.maximum(flat[part] - 0.5 + 1, 0)
        flat[part] -= 0.5
        for whole, device in ((there, MockDeviceArray), (flat, np.asarray)):
            rows = whole[part].reshape(8, 4)
            bias_relu(rows, device(np.ones(4, "float32")), rows)
            np.testing.assert_allclose(host(whole)[part], want, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(there.get(), flat, rtol=1e-6)
    assert set(launched()) == {"bias_relu", "bias_relu4", "saxpy", "saxpy4"}


def test_which_arrays_can_be_launched_on(launched):
    x = MockDeviceArray(np.zeros((4, 6), "float32"))
    assert can_launch(x)
    assert can_launch(x, MockDeviceArray(np.zeros(6, "float32")))
    assert not can_launch(np.zeros(3, "float32")), "on a CPU"
    assert not can_launch(x, np.zeros(6, "float32")), "one on a CPU"
    assert not can_launch(x[:, 1:]), "with gaps"
    assert not can_launch(x.T), "turned"
    assert not can_launch(x[:0]), "empty"
    assert not can_launch(x.astype("float64"))
    assert not can_launch(x, x.astype("float64"), dtypes=("float32", "float64")), "mixed"
    assert can_launch(x.astype("float64"), dtypes=("float32", "float64"))


def test_without_kernels_nothing_is_launched():
    assert not can_launch(MockDeviceArray(np.zeros(3, "float32")))


@NEEDS_COMPILER
def test_a_wide_input_with_gaps(launched):
    """The input of a layer may be a view; what the kernel works on is the layer's own product."""
    layer = nn.Sequential(nn.Linear(6, 4, 0), nn.ReLU())
    there = moved(layer, MockDeviceArray)
    x = np.random.default_rng(0).normal(size=(5, 2, 12)).astype("float32")
    y, saved = layer.forward(x[..., ::2])
    z, kept = there.forward(MockDeviceArray(x)[..., ::2])
    np.testing.assert_allclose(z.get(), y, **CLOSE)
    dx, dz = layer.backward(np.ones_like(y), saved), there.backward(MockDeviceArray(np.ones_like(y)), kept)
    np.testing.assert_allclose(dz.get(), dx, **CLOSE)
    assert launched() == ["bias_relu4", "bias_grad<true>"]
    assert there.forward(MockDeviceArray(x)[:0, :, ::2])[0].shape == (0, 2, 4)


@NEEDS_COMPILER
def test_not_a_number_stays_visible(launched):
    layer = moved(nn.Sequential(nn.Linear(3, 4, 0), nn.ReLU()), MockDeviceArray)
    x = np.ones((2, 3), "float32")
    x[1, 0] = np.nan
    y = layer.forward(MockDeviceArray(x))[0].get()
    assert launched() == ["bias_relu4"]
    assert np.isfinite(y[0]).all()
    assert np.isnan(y[1]).all()


@NEEDS_COMPILER
@pytest.mark.parametrize(("shape", "n"), [((4, 3), None), ((4, 3), 9), ((2, 3, 40), None), ((1, 1), None)])
@pytest.mark.parametrize("kind", ["int64", "uint8", "int32"])
def test_loss(shape, n, kind, launched):
    rng = np.random.default_rng(3)
    z, labels = 5 * rng.normal(size=shape).astype("float32"), rng.integers(shape[-1], size=shape[:-1]).astype(kind)
    loss = nn.SoftmaxCrossEntropy()
    want, dz = loss(z, labels, n)
    found, dy = loss(MockDeviceArray(z), MockDeviceArray(labels), n)
    assert found == pytest.approx(want, rel=1e-6, abs=1e-7)
    assert (dy.shape, dy.dtype) == (dz.shape, dz.dtype)
    np.testing.assert_allclose(dy.get(), dz, rtol=1e-5, atol=1e-7)
    words = {"int64": "long long", "uint8": "unsigned char", "int32": "int"}
    assert launched() == [f"softmax_xent_warp<{words[kind]}>"]


@NEEDS_COMPILER
@pytest.mark.parametrize("label", [-1, 3, 2**32, -(2**32) + 1])
def test_a_label_that_is_no_class(label, launched):
    z, labels = np.zeros((2, 3), "float32"), np.array([1, label])
    with pytest.raises(ValueError, match=f"labels run from .*{label}.*, expected class indices from 0 to 2"):
        nn.SoftmaxCrossEntropy()(MockDeviceArray(z), MockDeviceArray(labels))
    losses, dz = softmax_cross_entropy_rows(MockDeviceArray(z), MockDeviceArray(labels), 2)
    assert np.isnan(losses.get()).tolist() == [False, True]
    assert np.isfinite(dz.get()).all()


@NEEDS_COMPILER
def test_a_loss_that_is_not_a_number_is_returned(launched):
    z = np.full((2, 3), np.nan, "float32")
    assert np.isnan(nn.SoftmaxCrossEntropy()(MockDeviceArray(z), MockDeviceArray(np.array([0, 1])))[0])
