"""Strategies on arrays that refuse implicit conversion to NumPy, as CuPy's do: nothing leaves the device unsaid."""

from functools import partial

import numpy as np
import pytest

from distlearn.comm.point_to_point import LocalComm
from distlearn.data import Batch
from distlearn.nn import MLP, Linear, MockDeviceArray, ReLU, Sequential, SoftmaxCrossEntropy
from distlearn.nn.layer import move
from distlearn.optim import Adam, Optimizer
from distlearn.parallel import DataParallel, LocalSGD, NaiveDataParallel, Serial, ZeRO, hybrid, sharding, strategy
from distlearn.parallel.data import replicas
from distlearn.sim import SimWorld
from tests.comm.on_device import off_strict

from .programs import assert_same_params

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 7)), RNG.integers(0, 4, 12)
MAKE = {
    "serial": Serial,
    "naive": NaiveDataParallel,
    "data": partial(DataParallel, accumulate=2, check_every=1),
    "local_sgd": partial(LocalSGD, every=1),
} | {f"zero{stage}": partial(ZeRO, stage=stage) for stage in (1, 2, 3)}


def train(make, convert):
    model = move(MLP((7, 6, 4), seed=0, dtype="float64"), convert)
    strategy = make(LocalComm(), model, SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 0.01))
    losses = [strategy.step(Batch(convert(X), convert(Y), 12)) for _ in range(3)]
    return strategy.gather_params(), losses, strategy.predict(convert(X))


@pytest.mark.parametrize("name", MAKE)
def test_strategies(name, monkeypatch):
    for module in (strategy, replicas, sharding):  # where copying to the host is meant
        monkeypatch.setattr(module, "to_numpy", lambda x: x.get() if isinstance(x, MockDeviceArray) else np.asarray(x))
    params, losses, output = train(MAKE["serial"], lambda a: a.copy())
    there = train(MAKE[name], lambda a: MockDeviceArray(a.copy()))
    assert_same_params(there[0], params)
    np.testing.assert_allclose(there[1], losses, atol=1e-12)
    assert isinstance(there[2], MockDeviceArray)
    np.testing.assert_allclose(there[2].get(), output, atol=1e-12)


def test_a_stage_without_parameters_keeps_its_numbers_on_the_device(monkeypatch):
    """They are summed with those of stages that have some: a NumPy array would not do."""
    for module in (hybrid, replicas, sharding, strategy):
        monkeypatch.setattr(module, "to_numpy", lambda x: x.get() if isinstance(x, MockDeviceArray) else np.asarray(x))

    def program(comm):
        model = move(Sequential(Linear(7, 4, 0, dtype="float64"), ReLU()), lambda a: MockDeviceArray(a.copy()))
        optimizer = Optimizer(model.params, Adam(), 0.01, clip_norm=0.1)
        made = hybrid.Hybrid(off_strict(comm), model, SoftmaxCrossEntropy(), optimizer, pp=2)
        losses = [made.step(Batch(MockDeviceArray(X), MockDeviceArray(Y), 12)) for _ in range(2)]
        return type(made.reducer.sums).__name__, len(made.pipeline.params), losses

    first, second = SimWorld(2).run(program)
    assert (first[:2], second[:2]) == (("MockDeviceArray", 2), ("MockDeviceArray", 0))
    assert first[2] == second[2]
