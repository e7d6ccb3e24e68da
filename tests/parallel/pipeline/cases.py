"""Models, batches and a training loop that the tests of pipelines share."""

from types import SimpleNamespace

import numpy as np

from distlearn.data import Batch
from distlearn.nn import MLP, Linear, Sequential, SoftmaxCrossEntropy, Tanh
from distlearn.optim import RULES, Optimizer
from distlearn.parallel import Pipeline, Serial

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 7)), RNG.integers(0, 4, 60)


def model_of(kind):
    if kind == "tied":  # one layer on the first stage and on the last
        shared = Linear(6, 6, 5, dtype="float64")
        first, last = Linear(7, 6, 4, dtype="float64"), Linear(6, 4, 6, dtype="float64")
        middle = [layer for i in range(3) for layer in (Linear(6, 6, 7 + i, dtype="float64"), Tanh())]
        return Sequential(first, shared, Tanh(), *middle, shared, Tanh(), last)
    model = MLP((7, 9, 6, 8, 5, 6, 4), "sigmoid", seed=2, dtype="float64")
    if kind == "frozen":
        model.params[2].frozen = model.params[7].frozen = True
    return model


def train(comm, kind="plain", rule="momentum", steps=4, batch=20, serial=False, clip=None, **options):
    model = model_of(kind)
    before = {p.name: p.data.copy() for p in model.params}
    optimizer = Optimizer(model.params, RULES[rule](), 0.3, clip_norm=clip)
    if serial:
        strategy = Serial(model, SoftmaxCrossEntropy(), optimizer, comm.clock)
    else:
        strategy = Pipeline(comm, model, SoftmaxCrossEntropy(), optimizer, **options)
    frozen = {p.name for p in model.params if p.frozen}
    losses = []
    for step in range(steps):
        rows = (np.arange(batch) + step * batch) % len(X)
        losses.append(strategy.step(Batch(X[rows], Y[rows], batch)))
    params, output = strategy.gather_params(), strategy.predict(X[:11])
    if params is not None:
        for name, data in params.items():
            assert np.array_equal(data, before[name]) == (name in frozen), name  # the others must have changed
    return SimpleNamespace(params=params, losses=losses, output=output, strategy=strategy)


PUZZLE = """rank 0: F1 F0 . . . . B0 B1 F2 B2
            rank 1:    F0 F1 . B0 B1 .. F2 B2  # takes the first two the other way round
            rank 2:       F0 B0 F1 B1 F2 B2"""
"""Three ranks; the last two take the first two micro-batches in another order."""
