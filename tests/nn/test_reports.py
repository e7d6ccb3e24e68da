"""Bytes of what a layer saves, and profiles."""

import sys

import numpy as np
import psutil
import pytest

from distlearn import nn


def test_shared_and_overlapping_memory_counts_once():
    x = np.zeros((8, 10))
    assert nn.nbytes([x, (x, {"again": x}), np.zeros(3)]) == 640 + 24
    assert nn.nbytes([x, x[2:], x.T, x[::-1], x.reshape(-1)]) == 640
    assert nn.nbytes([x[:4], x[2:6]]) == 6 * 80
    assert nn.nbytes([nn.MockDeviceArray(x), nn.MockDeviceArray(x)]) == 640
    assert nn.nbytes([]) == nn.nbytes(np.zeros((0, 3))) == nn.nbytes((1, (2, 3), None)) == 0
    _, saved = nn.MLP((10, 20, 5), dtype="float64").forward(x)
    assert nn.nbytes(saved) == 8 * (80 + 160)  # x and the hidden layer's output, which ReLU and Linear share


def test_profile_times_every_layer_and_leaves_gradients():
    model = nn.build("lenet")
    model.params[0].grad[...] = 7
    (found,) = nn.profile_sweep(model, (784,), 8, repeats=2)
    assert (model.params[0].grad == 7).all()
    assert [t.name for t in found.layers] == [layer.name for layer in model.layers]
    assert found.layers[2].flops == 3 * 8 * 28 * 28 * 6
    assert sum(found.shares().values()) == pytest.approx(1)
    conv = found.layers[4]
    assert conv.flops == model.layers[4].flops((8, 14, 14, 6)) + model.layers[4].backward_flops((8, 14, 14, 6))
    assert conv.flop_rate == conv.flops / (conv.forward + conv.backward)
    assert found.samples_per_second == 8 / found.seconds
    assert "samples/s" in str(found)


@pytest.mark.skipif(sys.platform != "linux", reason="counts pages as Linux does")
def test_weights_that_nobody_has_written_are_measured_in_memory_of_their_own():
    """Not in one page of zeros, which stays in a cache: a dense layer took half of its bound."""
    layer, process = nn.Linear(4096, 4096, "zeros"), psutil.Process()
    before = process.memory_info().rss
    nn.profile_sweep(layer, (4096,), 1, repeats=1)
    assert process.memory_info().rss - before > 100 << 20  # 64 MiB of weights, and as many of gradients


def test_sweep_by_name_and_by_model():
    by_name = nn.profile_sweep("cnn", batches=(1, 4), repeats=1)
    assert [p.batch for p in by_name] == [1, 4]
    model = nn.Sequential(nn.Linear(6, 3))
    assert nn.profile_sweep(model, (6,), (2,), repeats=1)[0].layers[0].flops == 3 * 2 * 2 * 6 * 3
    with pytest.raises(ValueError, match="sample is None"):
        nn.profile_sweep(model)
    assert [p.batch for p in nn.profile_sweep(model, (6,), 3, repeats=1)] == [3]
    for batches in ((), (4, 0), (2.5,), "all"):
        with pytest.raises(ValueError, match=r"batches are .*, expected one or more batch sizes of 1 or more"):
            nn.profile_sweep("mlp", batches=batches)
        with pytest.raises(ValueError, match="skinny_products: batches are "):
            nn.skinny_products(batches, 4, 4)


def test_sweep_measures_layers_by_themselves_on_inputs_of_the_right_shape():
    """As many passes as asked for, one more to warm up, and one of two samples that tells the memory."""
    shapes = []

    class Watched(nn.ReLU):
        def forward(self, x):
            shapes.append(x.shape)
            return super().forward(x)

    model = nn.Sequential(nn.Embedding(5, 3), nn.GRU(3, 4), nn.BatchNorm(4), Watched())
    model.params[0].grad[...] = 7
    before = [p.data.copy() for p in model.params]
    nn.profile_sweep(model, (6,), (8,), repeats=2)
    assert shapes == [(8, 6, 4)] * 3
    assert (model.params[0].grad == 7).all()
    assert all((p.data == b).all() for p, b in zip(model.params, before, strict=True))


def test_a_layer_that_is_used_twice_has_two_rows():
    linear, relu, pool = nn.Linear(2, 2), nn.ReLU(), nn.MaxPool(1)
    model = nn.Sequential(linear, relu, pool, linear, relu, pool)
    (found,) = nn.profile_sweep(model, (3, 3, 2), 2, repeats=1)
    assert [t.name for t in found.layers] == [layer.name for layer in model.layers]


def test_sweep_runs_on_the_device_of_the_model():
    model = nn.move(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool(2)), nn.MockDeviceArray)
    (found,) = nn.profile_sweep(model, (6, 6, 1), (4,), repeats=1)
    assert [t.name for t in found.layers] == ["0.Conv2d", "1.ReLU", "2.MaxPool"]


def test_a_sweep_keeps_what_was_measured_when_it_is_interrupted():
    class Interrupted(nn.ReLU):
        def forward(self, x):
            if len(x) == 4:
                raise KeyboardInterrupt
            return super().forward(x)

    model = nn.Sequential(nn.Linear(6, 3), Interrupted())
    with pytest.warns(UserWarning, match="measured up to a batch of 2"):
        assert [p.batch for p in nn.profile_sweep(model, (6,), (1, 2, 4))] == [1, 2]
    with pytest.raises(KeyboardInterrupt):
        nn.profile_sweep(model, (6,), (4, 8))


def test_skinny_products_count_their_work():
    one, many = nn.skinny_products((1, 32), 64, 96, repeats=1)
    assert one.flop_rate * one.seconds == pytest.approx(2 * 64 * 96)
    assert many.intensity > 10 * one.intensity
