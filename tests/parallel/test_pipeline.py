"""Pipeline parallelism equals serial training, whatever the schedule, and costs what its docstring says."""

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from distlearn.comm import Network, Roofline, SimWorld
from distlearn.nn import MLP, Dropout, Linear, Sequential, SoftmaxCrossEntropy, Tanh
from distlearn.optim import RULES, Optimizer
from distlearn.parallel import Pipeline, Serial
from distlearn.testing import assert_same_params

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 7)), RNG.integers(0, 4, 60)
NETWORK, COMPUTE = Network(1e-4, 1e7), Roofline(1e8)


class Batch(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    n: int


def model_of(kind):
    if kind == "tied":  # one layer on the first stage and on the last
        shared = Linear(6, 6, 5, dtype="float64")
        first, last = Linear(7, 6, 4, dtype="float64"), Linear(6, 4, 6, dtype="float64")
        middle = [layer for i in range(3) for layer in (Linear(6, 6, 7 + i, dtype="float64"), Tanh())]
        return Sequential(first, shared, Tanh(), *middle, shared, Tanh(), last)
    if kind == "dropout":
        widths = ((7, 9), (9, 8), (8, 6), (6, 4))
        return Sequential(
            *(x for i, w in enumerate(widths) for x in (Linear(*w, i, dtype="float64"), Dropout(0.3, 10 + i)))
        )
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


def assert_equals_serial(world, **options):
    """Compare parameters, losses and predictions with those of a serial run."""
    kept = {k: v for k, v in options.items() if k in ("kind", "rule", "steps", "batch", "clip")}
    want = SimWorld(1).run(train, serial=True, **kept)[0]
    results = world.run(train, **options)
    assert_same_params(results[0].params, want.params)
    for result in results:
        np.testing.assert_allclose(result.losses, want.losses, atol=1e-12)
        np.testing.assert_allclose(result.output, want.output, atol=1e-12)
    assert [r.params for r in results[1:]] == [None] * (world.size - 1)
    return results


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["plain", "tied", "frozen", "dropout"])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_equals_serial(size, kind, schedule):
    world = SimWorld(size, NETWORK, COMPUTE)
    if schedule == "interleaved" and kind == "dropout" and size == 4:
        pytest.skip("8 stages of 8 layers: the dropout layers have nothing to learn")
    assert_equals_serial(world, kind=kind, schedule=schedule)
