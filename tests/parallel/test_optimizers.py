"""Every strategy trains with the optimizer that it is given: subsets, subclasses, memory; or says it cannot."""

from functools import partial

import numpy as np
import pytest

from distlearn import parallel
from distlearn.comm import RankError
from distlearn.data import Batch
from distlearn.nn import Conv2d, Flatten, Linear, ReLU, Reshape, Sequential, SoftmaxCrossEntropy, Tanh
from distlearn.optim import SGD, Optimizer
from distlearn.sim import SimWorld
from distlearn.testing import check_strategy

from .programs import assert_same_params, serial

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


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_keeps_its_promises(name):
    check_strategy(
        STRATEGIES[name], rule=SGD() if name == "local" else None, sizes=(2,) if "hybrid" in name else (1, 2, 3, 4)
    )


@pytest.mark.parametrize("make", [parallel.LocalSGD, partial(parallel.PipeDream, n_microbatches=2)])
def test_every_inexact_strategy_resumes(make):
    check_strategy(make, exact=False)


class Gossip(parallel.Replicated):
    """Steps alone, then takes the mean with the next rank's parameters: replicas differ."""

    def step(self, batch):
        self.optimizer.zero_grad()
        loss = 0.0
        if len(batch.x):
            y, saved = self.model.forward(batch.x, clock=self.clock)
            loss, dy = self.loss(y, batch.y, batch.n)
            self.model.backward(dy, saved)
        self.optimizer.step()
        for p in self.model.params:
            if not p.frozen and self.size > 1:
                other = p.data.copy()
                self.comm.send_recv(p.data, (self.rank + 1) % self.size, other, (self.rank - 1) % self.size)
                p.data[...] = (p.data + other) / 2
        return float(self.comm.all_reduce(np.array([loss]))[0])


class KeptGossip(Gossip):
    def own_state(self):
        return parallel.named_arrays(self.model.params, self.optimizer)

    def load_state_dict(self, arrays):
        super().load_state_dict(arrays | parallel.part_of_rank(arrays, self.rank))


class NeedsRows(parallel.DataParallel):
    def step(self, batch):
        batch.x[0]
        return super().step(batch)


class Idle(Gossip):
    def step(self, batch):
        return 0.0


class Thaws(parallel.DataParallel):
    def step(self, batch):
        for p in self.model.params:
            p.data *= 0.99
        return super().step(batch)


class Everywhere(parallel.DataParallel):
    def gather_params(self):
        return {p.name: p.data.copy() for p in self.model.params}


class Forgets(parallel.DataParallel):
    """Counts its steps, and does not save the count."""

    count = 0

    def step(self, batch):
        self.count += 1
        loss = super().step(batch)
        self.model.params[0].data += 1e-3 * self.count
        return loss


def test_a_strategy_of_ones_own_whose_replicas_differ():
    check_strategy(
        KeptGossip, exact=lambda outputs, losses: np.isfinite(outputs).all() and outputs.shape[1:] == (12, 3)
    )
    with pytest.raises(RankError, match=r"/1\.W\S* on rank 1 is not what it is on rank 0.*own_state"):
        check_strategy(Gossip, exact=False)


@pytest.mark.parametrize(
    ("make", "exact", "message"),
    [
        (KeptGossip, True, "'equal to serial training': on 2 ranks"),
        (KeptGossip, lambda outputs, losses: np.ptp(outputs, 0).max() < 1e-9, "'what it promises': on 3 ranks"),
        (NeedsRows, True, "IndexError"),
        (Idle, False, "'parameters change': on 1 ranks 1.W is what it was"),
        (Thaws, False, "'frozen parameters stay': on 1 ranks 4.W changed"),
        (Everywhere, True, "'parameters are gathered'"),
        (Forgets, False, "'a resumed run is the same run': on 1 ranks rank 0.*own_state"),
    ],
)
def test_a_broken_strategy_is_told_which_rule_it_breaks(make, exact, message):
    with pytest.raises((AssertionError, RankError), match=message):
        check_strategy(make, exact=exact)
