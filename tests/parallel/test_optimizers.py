"""Every strategy trains with the optimizer that it is given: subsets, groups, subclasses, memory; or says it cannot."""

import numpy as np
import pytest

from distlearn import parallel
from distlearn.comm import RankError
from distlearn.data import Batch
from distlearn.nn import Conv2d, Flatten, Linear, ReLU, Reshape, Sequential, SoftmaxCrossEntropy, Tanh
from distlearn.optim import SGD, Cosine, Optimizer
from distlearn.sim import SimWorld
from distlearn.testing import assert_same_params

from .programs import serial

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(12, 16)), RNG.integers(0, 3, 12)
F = {"dtype": "float64"}

STRATEGIES = {
    "data": parallel.DataParallel,
    "naive": parallel.NaiveDataParallel,
    "local": lambda *args: parallel.LocalSGD(*args, every=1),
    "zero1": lambda *args: parallel.ZeRO(*args, stage=1, cap_bytes=100),
    "zero2": lambda *args: parallel.ZeRO(*args, stage=2, cap_bytes=100),
    "zero3": lambda *args: parallel.ZeRO(*args, stage=3),
    "tensor": parallel.TensorParallel,
    "trick": parallel.OneWeirdTrick,
    "pipeline": parallel.Pipeline,
    "pipedream": lambda *args: parallel.PipeDream(*args, n_microbatches=1),
    "hybrid": lambda *args: parallel.Hybrid(*args, dp=1, pp=1, tp=2, n_microbatches=2),
    "hybrid_dp": lambda *args: parallel.Hybrid(*args, dp=2, n_microbatches=2),
    "hybrid_pp": lambda *args: parallel.Hybrid(*args, pp=2, n_microbatches=2),
}
WHOLE = ("data", "naive", "local")
"""Strategies whose ranks hold all parameters, and update all of them."""
STAGED = ("pipeline", "pipedream", "hybrid_dp", "hybrid_pp")
"""Strategies whose ranks hold whole parameters, but perhaps not all."""


def model_of():
    layers = Reshape(4, 4, 1), Conv2d(1, 2, 3, 1, **F), ReLU(), Flatten()
    return Sequential(*layers, Linear(8, 6, 2, **F), Tanh(), Linear(6, 3, 3, **F))


class Centred(Optimizer):
    """Takes the mean off every gradient, for which it must see a parameter as a whole."""

    scope = "parameter"

    def step(self):
        for p in self.params:
            p.grad -= p.grad.mean()
        super().step()


class Unexplained(Optimizer):
    """Divides by the number of all parameters, and does not say what it must see."""

    def step(self):
        for p in self.params:
            p.grad /= len(self.params)
        super().step()


def groups_of(params):
    weights, vectors = [p for p in params if p.data.ndim > 1], [p for p in params if p.data.ndim == 1]
    return [{"params": weights, "weight_decay": 0.1, "lr": Cosine(0.3, 5)}, {"params": vectors, "lr": 0.05}]


def train(comm, make, make_optimizer, steps=4):
    model = model_of()
    optimizer = make_optimizer(model.params)
    strategy = make(comm, model, SoftmaxCrossEntropy(), optimizer)
    part = slice(0, 12)
    if strategy.size == 2:
        part = slice(0, 6) if strategy.rank == 0 else slice(6, 12)
    losses = [strategy.step(Batch(X[part], Y[part], 12)) for _ in range(steps)]
    return strategy.gather_params(), losses, type(strategy.optimizer)


def compare(name, make_optimizer):
    want, losses, _ = SimWorld(1).run(train, serial, make_optimizer)[0]
    (found, told, kind), _ = SimWorld(2).run(train, STRATEGIES[name], make_optimizer)
    assert_same_params(found, want)
    np.testing.assert_allclose(told, losses, atol=1e-12)
    assert kind is type(make_optimizer(model_of().params))


@pytest.mark.parametrize(
    ("kind", "taken", "message"),
    [
        (Centred, WHOLE + STAGED, r"Centred needs every parameter as a whole.*DataParallel"),
        (Unexplained, (*WHOLE, "hybrid_dp"), r"Unexplained overrides `step`.*scope.*DataParallel"),
    ],
)
@pytest.mark.parametrize("name", STRATEGIES)
def test_an_optimizer_sees_what_it_must_or_is_refused(name, kind, taken, message):
    def made(params):
        return kind(params, SGD(), 0.3)

    if name in taken:
        compare(name, made)
        return
    with pytest.raises(RankError, match=message):
        compare(name, made)


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_optimizer_of_another_model_is_refused(name):
    def foreign(params):
        return Optimizer([*params, *model_of().params[:1]], SGD(), 0.3)

    with pytest.raises(RankError, match=r"'1\.W' of the optimizer does not belong to the model"):
        SimWorld(2).run(train, STRATEGIES[name], foreign)
