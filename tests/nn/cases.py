"""The table of all layers and the shapes on which they are checked: gradients, devices, precision, shapes."""

import math

import numpy as np

from distlearn import nn
from distlearn.data import Batch
from distlearn.nn import Conv2d
from distlearn.parallel import Serial

F = {"dtype": "float64"}


class Repeatable(nn.Dropout):
    """Dropout that drops the same values in every pass, so that differences can be taken."""

    def forward(self, x):
        self.rng = np.random.default_rng(5)
        return super().forward(x)


def _convolutions():
    """Every algorithm that can, on every kind of geometry."""
    geometries = [
        ((2, 6, 5, 3), (3, 4, 3), {}),
        ((2, 7, 7, 2), (2, 3, 3), {"padding": "same"}),
        ((1, 5, 6, 4), (4, 6, 3), {"padding": 1, "groups": 2}),
        ((2, 5, 8, 1), (1, 2, 3), {"padding": 1}),
        ((2, 5, 5, 20), (20, 3, 3), {"padding": 1}),
        ((2, 4, 4, 2), (2, 2, 3), {"padding": 3}),
    ]
    others = [
        ((2, 7, 8, 3), (3, 2, 3), {"stride": 2, "padding": 1}),
        ((1, 11, 9, 2), (2, 2, 3), {"stride": (2, 1), "padding": 1}),
        ((2, 5, 4, 3), (3, 5, 1), {}),
        ((2, 5, 4, 3), (3, 5, 1), {"stride": 2}),
        ((1, 6, 9, 2), (2, 3, (2, 5)), {"padding": (1, 2), "stride": (1, 3)}),
        ((1, 12, 12, 1), (1, 2, 11), {"stride": 4, "padding": 4}),
    ]
    for algorithm in nn.ALGORITHMS:
        mine = geometries + (others if algorithm in ("direct", "im2col") else [])
        for shape, args, options in mine:
            yield Conv2d(*args, 1, algorithm=algorithm, **options, **F), shape
        yield Conv2d(2, 3, 3, 1, padding=1, algorithm=algorithm, **F), (0, 5, 5, 2)
    for shape, args, options in geometries + others:
        yield nn.fuse(Conv2d(*args, 1, **options, **F)), shape
    yield Conv2d(3, 2, (2, 5), 1, algorithm="fft", padding=(1, 2), **F), (2, 6, 9, 3)
    yield nn.Sequential(Conv2d(2, 3, 3, 1, **F)), (0, 5, 5, 2)


def _pools():
    for ceil in (False, True):
        yield nn.MaxPool(2, ceil=ceil), (2, 6, 4, 3)
        yield nn.MaxPool(2, ceil=ceil), (1, 5, 7, 2)
        yield nn.MaxPool(3, 2, ceil=ceil), (2, 8, 7, 2)
        yield nn.MaxPool(3, 1, padding=1, ceil=ceil), (1, 4, 5, 2)
        yield nn.MaxPool((2, 3), (3, 2), ceil=ceil), (1, 8, 7, 1)
    yield nn.MaxPool((1, 2)), (2, 3, 4, 2)
    yield nn.MaxPool(1, 2), (2, 3, 4, 2)
    yield nn.MaxPool(2), (0, 4, 4, 2)
    yield nn.GlobalAvgPool(), (2, 3, 4, 5)


def _attention():
    for causal in (True, False):
        yield nn.MultiHeadAttention(8, 4, range(4), causal=causal, **F), (2, 5, 8)
        yield nn.MultiHeadAttention(8, 4, range(4), causal=causal, **F), (3, 0, 8)
    yield nn.MultiHeadAttention(6, 3, range(4), **F), (1, 1, 6)
    yield nn.MultiHeadAttention(6, 1, range(4), **F), (0, 3, 6)


def _inception():
    return nn.Parallel(
        Conv2d(3, 2, 1, 1, **F),
        nn.Sequential(Conv2d(3, 2, 1, 2, **F), nn.Tanh(), Conv2d(2, 4, 3, 3, padding=1, **F)),
        nn.Sequential(nn.MaxPool(3, 1, padding=1), Conv2d(3, 1, 1, 4, **F)),
        nn.Identity(),
    )


def _containers():
    yield _inception(), (2, 4, 4, 3)
    yield nn.Residual(nn.Sequential(nn.Linear(4, 4, 1, **F), nn.Tanh())), (3, 4)
    yield nn.Residual(nn.Tanh()), (3, 4)
    yield nn.Siamese(nn.Sequential(nn.Linear(4, 3, 1, **F), nn.Sigmoid())), (3, 2, 4)
    yield nn.Siamese(nn.Sequential(Conv2d(1, 2, 3, 1, **F), nn.Flatten())), (2, 2, 4, 4, 1)
    yield nn.Recompute(nn.Sequential(nn.Linear(4, 3, 1, **F), nn.Tanh(), nn.Linear(3, 2, 2, **F))), (3, 4)
    yield nn.Sequential(nn.RNN(3, 4, 1, **F), nn.RNN(4, 2, 2, **F)), (2, 5, 3)
    yield nn.Sequential(nn.GRU(3, 4, 1, **F), nn.GRU(4, 2, 2, **F), nn.Linear(2, 3, 3, **F)), (2, 4, 3)
    yield nn.MLP((6, 5, 4, 3), "tanh", **F), (3, 6)


def predicting(norm):
    """A normalisation in prediction; its running statistics are constants there, so they have no gradient to check."""
    view = norm.eval()
    view.params = [p for p in norm.params if not p.frozen]
    view.running_mean.data[...], view.running_var.data[...] = 0.3, 1.7
    return view


LAYERS = [
    (nn.Linear(5, 3, 0, **F), (4, 5)),
    (nn.Linear(1, 1, 0, **F), (1, 1)),
    (nn.Linear(7, 2, 0, **F), (0, 7)),
    (nn.Linear(3, 2, 0, **F), (2, 4, 3)),
    (nn.ReLU(), (3, 4)),
    (nn.Sigmoid(), (3, 4)),
    (nn.Tanh(), (2, 3, 4)),
    (nn.Softmax(), (3, 5)),
    (nn.BatchNorm(4, **F), (6, 4)),
    (nn.BatchNorm(3, **F), (2, 3, 2, 3)),
    (predicting(nn.BatchNorm(3, **F)), (2, 3, 2, 3)),
    (nn.LayerNorm(5, **F), (3, 5)),
    (nn.LayerNorm(4, **F), (2, 3, 4)),
    (nn.LocalResponseNorm(5, alpha=0.3), (2, 2, 3, 7)),
    (nn.LocalResponseNorm(3, alpha=0.2, k=1.0), (3, 2)),
    (nn.LocalResponseNorm(3, alpha=0.2, beta=0.5), (3, 4)),
    (nn.LocalResponseNorm(9, alpha=0.2, k=1.0), (2, 3, 4)),
    (nn.LocalResponseNorm(1, alpha=0.2), (2, 3)),
    (nn.LocalResponseNorm(5, alpha=0.2), (0, 3)),
    (Repeatable(0.4), (4, 5)),
    (nn.Flatten(), (2, 3, 2, 2)),
    (nn.Identity(), (2, 3)),
    (nn.Reshape(3, 2, 1), (2, 6)),
    (nn.RNN(3, 4, 0, **F), (2, 5, 3)),
    (nn.RNN(3, 4, 0, **F), (2, 1, 3)),
    (nn.RNN(3, 4, 0, **F), (0, 5, 3)),
    (nn.RNN(3, 4, 0, **F), (2, 0, 3)),
    (nn.GRU(3, 4, 0, **F), (2, 5, 3)),
    (nn.GRU(2, 3, 0, **F), (1, 1, 2)),
    (nn.GRU(2, 3, 0, **F), (0, 4, 2)),
    (nn.GELU(), (3, 4)),
    (nn.RMSNorm(5, **F), (3, 5)),
    (nn.RMSNorm(4, **F), (0, 3, 4)),
    *_attention(),
    *_convolutions(),
    *_pools(),
    *_containers(),
]


def label(value):
    """Name a test after its layer (with the algorithm) and shape."""
    return f"{value}-{value.algorithm}" if isinstance(value, Conv2d) else str(value)


def learn(model, loss, optimizer, batches):
    """Train with a step for each (inputs, targets); return the losses."""
    strategy = Serial(None, model, loss, optimizer)
    return [strategy.step(Batch(x, y, len(x))) for x, y in batches]


def in_pieces(x, y, steps):
    """Batches of 64 of the first 1,024 samples, again and again."""
    for step in range(steps):
        part = slice(step * 64 % 1024, step * 64 % 1024 + 64)
        yield x[part], y[part]


class F1(nn.Metric):
    name = "f1"

    def count(self, outputs, targets):
        found, actual = outputs.argmax(axis=-1) == 1, targets == 1
        return (found & actual).sum(), found.sum(), actual.sum()

    def value(self, sums):
        hits, found, actual = sums
        return 2 * hits / (found + actual)


class Correlation(nn.Metric):
    name = "correlation"

    def count(self, outputs, targets):
        y, t = outputs[:, 0].astype(float), targets.astype(float)
        return len(y), y.sum(), t.sum(), (y * y).sum(), (t * t).sum(), (y * t).sum()

    def value(self, sums):
        n, y, t, yy, tt, yt = sums
        return (n * yt - y * t) / math.sqrt((n * yy - y * y) * (n * tt - t * t))
