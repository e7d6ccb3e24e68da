"""Strategies on arrays that refuse implicit conversion to NumPy, as CuPy's do: nothing leaves the device unsaid."""

from functools import partial

import numpy as np
import pytest

from distlearn.comm.point_to_point import LocalComm
from distlearn.data import Batch
from distlearn.nn import MLP, MockDeviceArray, SoftmaxCrossEntropy
from distlearn.nn.layer import move
from distlearn.optim import Adam, Optimizer
from distlearn.parallel import DataParallel, LocalSGD, NaiveDataParallel, Serial, ZeRO, sharding, strategy
from distlearn.parallel.data import replicas
from distlearn.testing import assert_same_params

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 7)), RNG.integers(0, 4, 12)
MAKE = {
    "serial": lambda comm, *parts: Serial(*parts),
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
