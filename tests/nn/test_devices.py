"""The same code on arrays that refuse implicit conversion to NumPy, as CuPy's do, and on a GPU where there is one."""

import copy

import numpy as np
import pytest

from distlearn import nn
from distlearn.backend import get_xp, has_gpu, to_device
from distlearn.nn import MockDeviceArray

from .cases import LAYERS, label


def on(device, layer, x):
    """Copies of a layer and its input on a device."""
    convert = MockDeviceArray if device == "strict" else lambda a: to_device(a, "gpu")
    layer = copy.deepcopy(layer)
    for part in nn.walk(layer):
        for p in vars(part).values():  # also what `params` leaves out
            if isinstance(p, nn.Param):
                p.data, p.grad = convert(p.data.copy()), convert(p.grad.copy())
    return layer, convert(x.copy())


DEVICES = ["strict", pytest.param("gpu", marks=[pytest.mark.gpu, pytest.mark.skipif(not has_gpu(), reason="no GPU")])]


def run(layer, x, r):
    """One forward and backward pass; everything that comes out."""
    for p in layer.params:
        p.grad[...] = 0
    y, saved = layer.forward(x)
    dx = layer.backward(r.copy(), saved)
    return [y, *([] if dx is None else [dx]), *(p.grad for p in layer.params)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=label)
def test_layers(layer, shape, device):
    if isinstance(layer, nn.Dropout):
        pytest.skip("masks drawn on a device are other masks; see test_dropout")
    layer = copy.deepcopy(layer)
    x = np.random.default_rng(1).normal(size=shape)
    r = np.random.default_rng(2).normal(size=layer.output_shape(shape))
    there, moved = on(device, layer, x)
    for got, want in zip(run(there, moved, on(device, layer, r)[1]), run(layer, x, r), strict=True):
        assert type(got) is type(moved)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.get(), want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("device", DEVICES)
def test_embedding(device):
    layer, x = nn.Embedding(5, 3, dtype="float64"), np.array([[0, 2, 2], [4, 0, 2]])
    there, moved = on(device, layer, x)
    y, saved = layer.forward(x)
    z, kept = there.forward(moved)
    np.testing.assert_array_equal(z.get(), y)
    layer.backward(y.copy(), saved)
    there.backward(z.copy(), kept)
    np.testing.assert_allclose(there.W.grad.get(), layer.W.grad, rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_dropout(device):
    x = np.ones((200, 50), "float32")
    masks = []
    for _ in range(2):
        there, moved = on(device, nn.Dropout(0.25, 3), x)
        y, saved = there.forward(moved)
        dx = there.backward(moved.copy(), saved)
        np.testing.assert_array_equal(dx.get(), y.get())
        masks.append(y.get())
    np.testing.assert_array_equal(*masks)
    assert masks[0].mean() == pytest.approx(1, abs=0.02)
    assert set(np.unique(masks[0])) == {0, np.float32(1 / 0.75)}


LOSSES = [
    (nn.SoftmaxCrossEntropy(), (4, 3), np.array([0, 2, 1, 1])),
    (nn.SoftmaxCrossEntropy(), (2, 3, 4), np.array([[0, 2, 1], [3, 1, 1]])),
    (nn.MeanSquaredError(), (4, 3), np.ones((4, 3))),
    (nn.ContrastiveLoss(2.5), (3, 2, 4), np.array([1, 0, 1])),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("loss", "shape", "targets"), LOSSES, ids=lambda v: type(v).__name__)
def test_losses(loss, shape, targets, device):
    y = np.random.default_rng(1).normal(size=shape)
    value, dy = loss(y, targets)
    there, moved = loss(on(device, nn.Identity(), y)[1], on(device, nn.Identity(), targets)[1])
    assert there == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(moved.get(), dy, rtol=1e-12, atol=1e-14)


class TestStrictArray:
    """The stand-in refuses what a GPU's array refuses."""

    @pytest.mark.parametrize(
        "mix",
        [
            lambda s, a: s + a,
            lambda s, a: a + s,
            lambda s, a: a @ s,
            lambda s, a: np.add(s, s),
            lambda s, a: np.asarray(s),
            lambda s, a: s.__setitem__(slice(None), a),
            lambda s, a: a.__setitem__(slice(None), s),
            lambda s, a: s.__iadd__(a),
            lambda s, a: get_xp(s).maximum(s, a),
            lambda s, a: get_xp(s).concatenate([s, a]),
            lambda s, a: s[np.array([0])],
        ],
    )
    def test_mixing_with_numpy_raises(self, mix):
        with pytest.raises(TypeError):
            mix(MockDeviceArray(np.ones((2, 2))), np.ones((2, 2)))

    def test_it_computes_as_numpy_does(self):
        s = MockDeviceArray(np.arange(6.0).reshape(2, 3))
        assert float((s.T @ s)[1, 2]) == 1 * 2 + 4 * 5
        s[0] *= 2
        np.testing.assert_array_equal(s.get(), [[0, 2, 4], [3, 4, 5]])
        assert get_xp(s) is get_xp(s.sum())
        assert (s > 3).dtype == bool

    def test_a_chain_runs_through_views_and_writes(self):
        def program(x):
            y = x * 1  # 1
            y[0] += y[1]  # 2
            part = y[1:]  # a view of the same
            return part + 1  # 3

        assert nn.count_operations(program, np.ones((2, 2))).depth == 3
