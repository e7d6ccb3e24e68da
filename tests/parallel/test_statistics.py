"""Running statistics: what `fit` reports, ranks predict, and a checkpoint holds is one model."""

from functools import cache, partial

import numpy as np
import pytest

import distlearn as dl
from distlearn import data, nn, optim
from distlearn.sim import SimWorld

from .programs import assert_same_params

DIGITS = data.load("digits", dtype="float64").take(320)
STRATEGIES = {
    "naive": dl.parallel.NaiveDataParallel,
    "data": dl.DataParallel,
    "accumulated": partial(dl.DataParallel, accumulate=2, check_every=1),
    "zero1": dl.ZeRO,
    "zero3": partial(dl.ZeRO, stage=3),
    "local": dl.LocalSGD,
    "hybrid": partial(dl.Hybrid, dp=2, pp=2),
    "hybrid_tensor": partial(dl.Hybrid, dp=2, tp=2),
    "tensor": dl.TensorParallel,
    "pipeline": dl.Pipeline,
    "trick": dl.OneWeirdTrick,
}


def model():
    conv = nn.Reshape(8, 8, 1), nn.Conv2d(1, 4, 3, 1, dtype="float64"), nn.BatchNorm(4, dtype="float64"), nn.ReLU()
    dense = nn.Linear(144, 16, 2, dtype="float64"), nn.BatchNorm(16, dtype="float64"), nn.ReLU()
    return nn.Sequential(*conv, nn.Flatten(), *dense, nn.Linear(16, 10, 3, dtype="float64"))


def train(comm, make):
    net = model()
    loss, optimizer = nn.SoftmaxCrossEntropy(), optim.Optimizer(net.params, optim.Momentum(), 0.05)
    strategy = make(comm, net, loss, optimizer)
    history = dl.fit(strategy, DIGITS, epochs=2, batch_size=82)
    return history.last.test_accuracy, strategy.predict(DIGITS.x_test), strategy.gather_params()


def accuracy_of(params):
    net = model()
    for p in net.params:
        p.data[...] = params[p.name]
    logits = net.eval().forward(DIGITS.x_test)[0]
    return (logits.argmax(axis=1) == DIGITS.y_test).mean(), logits


@cache
def trained(name):
    return SimWorld(4).run(train, STRATEGIES[name])


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_ranks_report_and_predict_the_model_that_is_handed_out(name):
    results = trained(name)
    if name in ("naive", "zero1", "zero3"):  # where every rank normalises its own part of a batch, all are one
        assert_same_params(results[0][2], trained("data")[0][2], tol=1e-11)
    accuracy, logits = accuracy_of(results[0][2])
    assert results[0][2]["2.running_mean"].any()
    for reported, predicted, _ in results:
        assert reported == accuracy
        np.testing.assert_allclose(predicted, logits, rtol=1e-9, atol=1e-9)


def test_a_parameter_server_refuses_statistics():
    def program(comm):
        dl.ParameterServer(comm, model(), nn.SoftmaxCrossEntropy(), optim.Momentum(), 0.05)

    with pytest.raises(
        dl.comm.RankError, match=r"'2\.running_mean' is a running statistic, which workers do not share"
    ):
        SimWorld(2).run(program)
