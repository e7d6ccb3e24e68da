"""Models: exact counts against the published ones, and that they learn."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.data import load
from distlearn.optim import Adam, Optimizer

from .cases import in_pieces, learn

SMALL = ["mlp", "lenet", "cnn", "alexnet28", "googlenet28", "squeezenet28"]


def layers_of(name, kind):
    """Parameters and multiply-adds of the layers of one kind, in order, for one sample."""
    model, rows = nn.build(name, seed=None), []

    def visit(layer, shape):
        if isinstance(layer, kind):
            rows.append((nn.parameter_count(layer), layer.flops(shape) // 2))
        for part, inner in layer.parts(shape):
            visit(part, inner)

    visit(model, (1, *nn.MODELS[name].sample))
    return rows


@pytest.mark.parametrize(
    ("name", "count"),
    [("mlp", 235_146), ("lenet", 61_706), ("alexnet", 60_965_224), ("googlenet", 6_998_552), ("squeezenet", 1_248_424)],
)
def test_published_parameter_counts(name, count):
    model = nn.build(name, seed=None)
    assert nn.parameter_count(model) == count


def test_alexnet_layer_by_layer():
    """Parameters and multiply-adds per image, as the usual tables give them for the paper's two-tower network."""
    assert layers_of("alexnet", (nn.Conv2d, nn.Linear)) == [
        (34_944, 105_415_200),
        (307_456, 223_948_800),
        (885_120, 149_520_384),
        (663_936, 112_140_288),
        (442_624, 74_760_192),
        (37_752_832, 37_748_736),
        (16_781_312, 16_777_216),
        (4_097_000, 4_096_000),
    ]
    dense = sum(params for params, _ in layers_of("alexnet", nn.Linear))
    assert dense == 58_631_144  # "about 55 M weights" in three dense layers


def test_googlenet_against_the_paper():
    """Table 1 of Szegedy et al.: thousands (1,024) of weights and millions of multiply-adds of every module."""
    published = {
        "3a": (159, 128),
        "3b": (380, 304),
        "4a": (364, 73),
        "4b": (437, 88),
        "4c": (463, 100),
        "4d": (580, 119),
        "4e": (840, 170),
        "5a": (1072, 54),
        "5b": (1388, 71),
    }
    model, found = nn.build("googlenet", seed=None), {}
    for layer, shape in model.parts((1, 224, 224, 3)):
        if layer.name.startswith("inception"):
            convolutions = []
            stack = [(layer, shape)]
            while stack:
                part, inner = stack.pop()
                stack += part.parts(inner)
                if isinstance(part, nn.Conv2d):
                    convolutions.append((part.W.size, part.flops(inner) / 2))
            found[layer.name.split()[1]] = np.sum(convolutions, axis=0)
    assert list(found) == list(published)
    for name, (weights, madds) in published.items():
        if name != "4c":  # printed as 463, which its own operations (100 M = 510 k weights x 14 x 14) contradict
            assert found[name][0] / 1024 == pytest.approx(weights, rel=0.06), name
        assert found[name][1] / 1e6 == pytest.approx(madds, rel=0.06), name
    assert model.output_shape((2, 224, 224, 3)) == (2, 1000)


@pytest.mark.parametrize("name", [*SMALL, "siamese", "gru"])
def test_weights_depend_on_seed_and_layer_alone(name):
    a, b, c = nn.build(name, seed=1), nn.build(name, seed=1, dtype="float64"), nn.build(name, seed=2)
    matrices = 0
    for p, q, r in zip(a.params, b.params, c.params, strict=True):
        np.testing.assert_allclose(p.data, q.data, rtol=1e-6)
        assert p.data.dtype == np.float32
        if p.data.ndim > 1:
            matrices += 1
            assert not np.array_equal(p.data, r.data)
    assert matrices
    first = [p.data.ravel()[:4] for p in a.params if p.data.ndim > 1]
    assert len({tuple(np.round(v / np.abs(v).max(), 4)) for v in first}) == len(first)  # no two layers alike
    names = [p.name for p in a.params]
    assert len(set(names)) == len(names)


def images(name="digits"):
    """Digits of 8 x 8 pixels, enlarged to 28 x 28."""
    data = load(name, dtype="float32")
    x = data.x_train.reshape(-1, 8, 8)
    big = np.zeros((len(x), 28, 28), "float32")
    big[:, 2:26, 2:26] = x.repeat(3, axis=1).repeat(3, axis=2)
    return big.reshape(len(x), 784), data.y_train


@pytest.mark.nightly(but_every=6)
@pytest.mark.parametrize("name", SMALL)
def test_small_models_learn(name):
    """In 60 steps the shallow ones nearly finish; the deep narrow ones are well under way (chance is 0.1)."""
    x, y = images()
    model = nn.build(name, seed=3)
    before = {p.name: p.data.copy() for p in model.params}
    learn(model, nn.SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 2e-3), in_pieces(x, y, 60))
    assert all(not np.array_equal(before[p.name], p.data) for p in model.params)
    logits = model.eval().forward(x[:512])[0]
    assert logits.dtype == np.float32
    assert (logits.argmax(axis=1) == y[:512]).mean() > (0.9 if name in SMALL[:3] else 0.3)


def test_an_unknown_model_is_named():
    with pytest.raises(ValueError, match="model is 'resnet', expected one of 'mlp', 'lenet'"):
        nn.build("resnet")
