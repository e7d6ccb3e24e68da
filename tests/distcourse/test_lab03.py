"""Bits lost, points, networks with another convolution, and times by shape."""

import math

import numpy as np
import pytest
from distcourse import lab03 as convolving

import distlearn as dl
from distlearn.nn.conv import direct
from distlearn.nn.conv.geometry import Geometry

GROWING, SIGNS, INVERSES = [0, 1, 2, 3, 4, 5, 6], [0, 1, -1, 2, -2, 3, -3], [0, 1, -1, 2, -2, 0.5, -0.5]


def convolve(x, W):
    return direct.forward(x, W, Geometry(W.shape[:2]))[0]


def test_a_rounded_result_has_lost_nothing_and_a_wrong_one_all():
    exact = np.random.default_rng(1).normal(size=1000)
    for dtype, bits in (("float32", 24), ("float16", 11)):
        assert -1.5 < convolving.bits_lost(exact.astype(dtype), exact) < 0.2
        assert convolving.bits_lost(np.zeros(1000, dtype), exact) == pytest.approx(bits)
        assert convolving.bits_lost(exact.astype(dtype) * np.nan, exact) == math.inf
    assert convolving.bits_lost((exact * (1 + 2**-8)).astype("float32"), exact) == pytest.approx(16, abs=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_points_with_signs_and_inverses_lose_least(seed):
    lost = {d: [convolving.loss_of_points(p, 6, d, seed) for p in (GROWING, SIGNS, INVERSES)] for d in ("f4", "f2")}
    for bits, (growing, signs, inverses) in zip((24, 11), lost.values(), strict=True):
        assert inverses + 3 < signs < bits < growing
    small = [convolving.loss_of_points(range(m + 1), m, "float16", seed) for m in (2, 4)]
    assert small[0] < 5 < 11 < small[1]


def test_points_are_ranked_among_known_ones():
    ranked = convolving.rank_points([0, 1, -1, 2.5, -2.5, 0.4, -0.4])
    names = list(ranked)
    assert names[0] == "0, ±1, ±2, ±1/2"
    assert names[-1] == "0, ±1, ±2, ±3"
    assert 0 < names.index("yours") < 4
    assert list(ranked.values()) == sorted(ranked.values())


def test_a_swapped_convolution_trains_as_the_layer_does():
    x, y = np.random.default_rng(0).random((8, 36), dtype="f"), np.arange(8) % 3
    layers = dl.nn.Reshape(6, 6, 1), dl.nn.Conv2d(1, 4, 3, padding=1), dl.nn.Flatten(), dl.nn.Linear(144, 3)
    model = dl.nn.Sequential(*layers)
    losses = []
    for net in (model, convolving.use_convolution(model, convolve)):
        trainer = dl.Serial(
            None, net, dl.nn.SoftmaxCrossEntropy(), dl.optim.Optimizer(net.params, dl.optim.SGD(), 0.02)
        )
        losses.append([trainer.step(dl.data.Batch(x, y, 8)) for _ in range(4)])
    np.testing.assert_allclose(*losses, rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_bits_are_drawn_for_each_precision():
    losses = {"growing": {("float32", 2): 3.0, ("float16", 2): 4.0, ("float16", 4): math.inf}}
    axes = convolving.plot_bits(losses, title="Two precisions")
    assert len(axes) == 2
    curve, beyond = axes[1].lines[1:]
    assert math.isnan(curve.get_ydata()[1])  # an overflow is no number of bits: the line to the top is another
    assert beyond.get_ydata()[1] > 11
