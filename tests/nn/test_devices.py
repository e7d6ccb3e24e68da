"""What stands in for a GPU's arrays, and masks that are drawn on a device."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.backend import get_xp, to_device
from distlearn.nn import MockDeviceArray

GPU = pytest.param(lambda a: to_device(a, "gpu"), marks=pytest.mark.gpu, id="gpu")


@pytest.mark.parametrize("device", [np.copy, MockDeviceArray, GPU])
def test_dropout(device):
    """The same seed drops the same values, another pass others; backward drops what forward dropped."""
    x = device(np.ones((200, 50), "float32"))
    get = np.asarray if device is np.copy else lambda a: a.get()
    layers = [nn.Dropout(0.25, seed) for seed in (3, 3, 4)]
    masks = []
    for layer in [*layers, layers[0]]:
        y, saved = layer.forward(x)
        np.testing.assert_array_equal(get(layer.backward(x.copy(), saved)), get(y))
        masks.append(get(y))
    np.testing.assert_array_equal(masks[0], masks[1])
    assert not any(np.array_equal(masks[0], other) for other in masks[2:])
    assert masks[0].mean() == pytest.approx(1, abs=0.02)
    assert set(np.unique(masks[0])) == {0, np.float32(1 / 0.75)}


class TestStrictArray:
    """The stand-in refuses what a GPU's array refuses."""

    @pytest.mark.parametrize(
        "mix",
        [
            lambda s, a: s + a,
            lambda s, a: a + s,
            lambda s, a: a @ s,
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
        assert get_xp(s) is get_xp(s.sum()) is get_xp(np.add(s, s))  # as CuPy's arrays, which NumPy's functions take
        assert (s > 3).dtype == bool

    def test_a_chain_runs_through_views_and_writes(self):
        def program(x):
            y = x * 1  # 1
            y[0] += y[1]  # 2
            part = y[1:]  # a view of the same
            return part + 1  # 3

        assert nn.count_operations(program, np.ones((2, 2))).depth == 3
