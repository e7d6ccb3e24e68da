"""Models and helpers that the tests of tensor and hybrid parallelism share."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from distlearn import nn
from distlearn.data import Batch
from distlearn.optim import Momentum, Optimizer
from distlearn.parallel import Serial

F = {"dtype": "float64"}


def twin_paths():
    """A block whose paths share a layer."""
    shared = nn.Linear(7, 3, 1, **F)
    paths = nn.Parallel(nn.Sequential(shared, nn.Tanh()), nn.Sequential(shared, nn.ReLU()), nn.Linear(7, 2, 2, **F))
    return nn.Sequential(paths, nn.Linear(8, 4, 3, **F))


def sharing():
    """Two layers that share one parameter, and have one each of their own."""
    a, b = nn.Linear(6, 6, 5, **F), nn.Linear(6, 6, 7, **F)
    b.W = a.W
    b.params = [b.W, b.b]
    return nn.Sequential(nn.Linear(7, 6, 4, **F), a, nn.Tanh(), b, nn.Tanh(), nn.Linear(6, 4, 6, **F))


def images(*layers, c=3):
    """A small network on images of 6 x 6 x 2: a convolution to c channels, some layers, and a classifier."""
    body, shape = [nn.Conv2d(2, c, 3, 1, padding=1, input_gradient=False, **F), *layers], (1, 6, 6, 2)
    for layer in body:
        shape = layer.output_shape(shape)
    flat = [nn.Flatten()] if len(shape) == 4 else []
    return nn.Sequential(*body, *flat, nn.Linear(int(np.prod(shape[1:])), 4, 9, **F))


def conv(c_in, c_out, size, seed, **options):
    return nn.Conv2d(c_in, c_out, size, seed, padding="same", **options, **F)


def inception(c_in=5, seed=10):
    return nn.Parallel(
        conv(c_in, 2, 1, seed + 1),
        nn.Sequential(conv(c_in, 3, 1, seed + 2), nn.ReLU(), conv(3, 4, 3, seed + 3)),
        nn.Sequential(nn.MaxPool(3, 1, padding=1), conv(c_in, 1, 1, seed + 4)),
        nn.Sequential(conv(c_in, 2, 3, seed + 5), nn.Tanh()),
    )


def frozen_siamese():
    model = siamese()
    model.params[0].frozen = True
    return model


def siamese(*extra):
    body = nn.Sequential(nn.Linear(7, 6, 1, **F), nn.Tanh(), *extra, nn.Linear(6, 3, 2, **F))
    return nn.Sequential(nn.Siamese(body))


VECTORS = {
    "mlp": lambda: nn.MLP((7, 9, 6, 4), seed=2, **F),
    "narrow": lambda: nn.MLP((7, 3, 9, 2, 4), "sigmoid", seed=2, **F),
    "sharing": sharing,
    "twin paths": twin_paths,
    "dropout": lambda: nn.Sequential(
        nn.Dropout(0.2, 1),
        nn.Linear(7, 9, 2, **F),
        nn.ReLU(),
        nn.Dropout(0.5, 3),
        nn.Linear(9, 5, 4, **F),
        nn.Dropout(0.5, 5),
        nn.Linear(5, 4, 6, **F),
    ),
    "norms": lambda: nn.Sequential(
        nn.Linear(7, 9, 2, **F),
        nn.BatchNorm(9, **F),
        nn.ReLU(),
        nn.Linear(9, 6, 3, **F),
        nn.LayerNorm(6, **F),
        nn.Linear(6, 5, 4, **F),
        nn.LayerNorm(5, **F),
        nn.Softmax(),
        nn.Linear(5, 4, 4, **F),
    ),
    "residual": lambda: nn.Sequential(
        nn.Linear(7, 6, 1, **F),
        nn.Residual(nn.Sequential(nn.Linear(6, 9, 2, **F), nn.Tanh(), nn.Linear(9, 6, 3, **F))),
        nn.Recompute(nn.Sequential(nn.Linear(6, 8, 4, **F), nn.ReLU(), nn.Dropout(0.3, 7), nn.Linear(8, 6, 5, **F))),
        nn.Linear(6, 4, 6, **F),
    ),
    "paths": lambda: nn.Sequential(
        nn.Parallel(
            nn.Linear(7, 3, 1, **F),
            nn.Sequential(nn.Linear(7, 5, 4, **F), nn.Tanh(), nn.Linear(5, 2, 5, **F)),
            nn.Linear(7, 1, 3, **F),
        ),
        nn.ReLU(),
        nn.Linear(6, 4, 6, **F),
    ),
}
IMAGES = {
    "groups": lambda: images(nn.LocalResponseNorm(3), conv(6, 4, 3, 2, groups=2), nn.ReLU(), c=6),
    "groups in a row": lambda: images(
        nn.ReLU(), conv(8, 8, 3, 2, groups=4), nn.Tanh(), conv(8, 4, 3, 5, groups=2), c=8
    ),
    "batch norm": lambda: images(nn.BatchNorm(5, **F), nn.ReLU(), conv(5, 6, 3, 2), nn.GlobalAvgPool(), c=5),
    "flat dropout": lambda: images(nn.ReLU(), nn.Flatten(), nn.Dropout(0.4, 5), nn.Linear(180, 5, 3, **F), c=5),
    "flat end": lambda: images(nn.ReLU(), nn.Flatten(), nn.LayerNorm(180, **F), nn.Linear(180, 5, 3, **F), c=5),
    "inception": lambda: images(nn.ReLU(), inception(), nn.MaxPool(3, 2, ceil=True), inception(9, 20), c=5),
    "inception in a row": lambda: images(nn.Sequential(inception(), nn.ReLU()), c=5),
}
SEQUENCES = {
    "three grus": lambda: nn.Sequential(
        nn.Embedding(7, 5, 1, **F), *(nn.GRU(5, 5, 20 + i, **F) for i in range(3)), nn.Linear(5, 7, 3, **F)
    ),
    "attention": lambda: nn.Sequential(
        nn.Embedding(7, 12, 1, **F), nn.MultiHeadAttention(12, 6, range(4), **F), nn.Linear(12, 7, 3, **F)
    ),
}
PAIRS = {
    "frozen siamese": frozen_siamese,
    "siamese with dropout": lambda: siamese(nn.Dropout(0.3, 4)),
}
MODELS = VECTORS | IMAGES | SEQUENCES | PAIRS


def batches(kind: str, steps: int, n: int = 10):
    """The batches that a model is trained on: the same on every rank."""
    rng = np.random.default_rng(3)
    for _ in range(steps):
        if kind in SEQUENCES:
            yield Batch(rng.integers(0, 7, (n, 9)), rng.integers(0, 5, (n, 9)), n)
        elif kind in PAIRS:
            yield Batch(rng.normal(size=(n, 2, 7)), rng.normal(size=(n, 2, 3)), n)
        else:
            yield Batch(rng.normal(size=(n, 7) if kind in VECTORS else (n, 6, 6, 2)), rng.integers(0, 4, n), n)


def loss_of(kind: str):
    return nn.MeanSquaredError() if kind in PAIRS else nn.SoftmaxCrossEntropy()


def train(make, kind, steps=4):
    """Train with the strategy that `make(model, loss, optimizer)` gives; return what all strategies must agree on."""
    model = MODELS[kind]()
    before = {p.name: p.data.copy() for p in model.params}
    still = {p.name for p in model.params if p.frozen and "running" not in p.name}
    strategy = make(model, loss_of(kind), Optimizer(model.params, Momentum(), 0.2))
    losses = [strategy.step(batch) for batch in batches(kind, steps)]
    x = next(batches(kind, 1)).x
    params = strategy.gather_params()
    for name in params or ():
        assert np.array_equal(params[name], before[name]) == (name in still), name  # the others must have changed
    return SimpleNamespace(params=params, losses=losses, predicted=strategy.predict(x), strategy=strategy)


def serial(kind, **options):
    """Train on one process: the reference."""
    return train(lambda *args: Serial(None, *args), kind, **options)
