"""Half precision in strategies: they scale the loss themselves, and all ranks leave out the same steps."""

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.data import Batch, load
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.nn.layer import move
from distlearn.optim import MixedPrecision, Momentum
from distlearn.parallel import (
    FP16,
    DataParallel,
    LocalSGD,
    NaiveDataParallel,
    Pipeline,
    Serial,
    TensorParallel,
    TopK,
)
from distlearn.sim import SimWorld
from distlearn.train import fit

from .programs import serial

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 8))
Y = (X[:, 0] + X[:, 1] > 0).astype(int)


def train(comm, make, loss_of=lambda optimizer, loss: loss, steps=60, scale=2.0**15, uneven=False):
    model = move(MLP((8, 16, 2), seed=0), lambda a: a.astype("float16"))
    optimizer = MixedPrecision(model.params, Momentum(), 0.1, scale=scale)
    strategy = make(comm, model, loss_of(optimizer, SoftmaxCrossEntropy()), optimizer)
    part = np.array_split(np.arange(64), strategy.size)[strategy.rank]
    if uneven:
        part = np.arange(64) if strategy.rank == 0 else np.arange(0)
    x = X.astype(model.params[0].data.dtype)
    losses = [strategy.step(Batch(x[part], Y[part], 64)) for _ in range(steps)]
    right = (strategy.predict(x).argmax(axis=1) == Y).mean()
    return right, optimizer.skipped, optimizer.scale, [m.data.copy() for m in optimizer.master], losses


@pytest.mark.parametrize("make", [serial, DataParallel, NaiveDataParallel])
def test_a_plain_loss_trains(make):
    results = SimWorld(1 if make is serial else 3).run(train, make)
    assert results[0][0] > 0.9
    for _, skipped, scale, master, _ in results:
        assert (skipped, scale) == results[0][1:3]
        for a, b in zip(master, results[0][3], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("make", [DataParallel, NaiveDataParallel])
def test_losses_and_masters_are_those_of_serial_training(make):
    (*_, weights, want), *_ = SimWorld(1).run(train, serial, steps=5)
    for *_, master, losses in SimWorld(3).run(train, make, steps=5):
        assert losses[0] == pytest.approx(want[0], abs=1e-6)  # the loss itself is not rounded to half precision
        np.testing.assert_allclose(losses, want, rtol=1e-3)
        np.testing.assert_allclose(master[0], weights[0], atol=1e-2)


@pytest.mark.parametrize("make", [TensorParallel, Pipeline, LocalSGD])
def test_masters_are_refused_where_ranks_hold_other_parameters(make):
    with pytest.raises(RankError, match="MixedPrecision keeps its own master copies"):
        SimWorld(2).run(train, make, steps=1)


def test_a_loss_that_is_scaled_already_is_not_scaled_twice():
    plain = SimWorld(1).run(train, serial)[0]
    scaled = SimWorld(1).run(train, serial, lambda optimizer, loss: optimizer.scaled(loss))[0]
    assert plain[:3] == scaled[:3]


@pytest.mark.filterwarnings("ignore:invalid value")  # infinity times zero in a layer
@pytest.mark.parametrize("make", [DataParallel, NaiveDataParallel])
def test_an_overflow_on_one_rank_skips_the_step_on_all(make):
    """Rank 0 has all samples, the others none: only its gradients overflow."""
    results = SimWorld(3).run(train, make, scale=2.0**24, uneven=True, steps=20)
    assert results[0][1] > 0
    for _, skipped, scale, master, _ in results:
        assert (skipped, scale) == results[0][1:3]
        for a, b in zip(master, results[0][3], strict=True):
            assert np.isfinite(a).all()
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("codec", [FP16(), TopK(0.5)])
def test_codes_which_may_hide_an_overflow_are_refused(codec):
    def make(*args):
        return DataParallel(*args, compress=codec)

    with pytest.raises(RankError, match=r"DataParallel\(compress=.*MixedPrecision keeps its own master copies"):
        SimWorld(2).run(train, make, steps=1)


def test_a_scaled_loss_has_the_metric_of_the_loss():
    model = move(MLP((64, 32, 10), seed=0), lambda a: a.astype("float16"))
    strategy = Serial(model, SoftmaxCrossEntropy(), MixedPrecision(model.params, Momentum(), 0.2))
    history = fit(strategy, load("digits", dtype="float16").take(200), epochs=8, batch_size=20)
    assert history.epochs[-1].metric == "accuracy"
    assert history.epochs[-1].train_accuracy > 0.5
