"""Running statistics: what `fit` reports, ranks predict, and a checkpoint holds is one model."""

from functools import partial

import numpy as np
import pytest

import distlearn as dl
from distlearn import data, nn, optim
from distlearn.sim import SimWorld

DIGITS = data.load("digits", dtype="float64").take(320)
STRATEGIES = {
    "naive": dl.parallel.NaiveDataParallel,
    "data": dl.DataParallel,
    "accumulated": partial(dl.DataParallel, accumulate=2, check_every=1),
    "zero1": dl.ZeRO,
    "zero3": partial(dl.ZeRO, stage=3),
    "local": dl.LocalSGD,
    "diloco": partial(dl.DiLoCo, every=8),
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


def train(comm, make, **options):
    net = model()
    loss, optimizer = nn.SoftmaxCrossEntropy(), optim.Optimizer(net.params, optim.Momentum(), 0.05)
    strategy = make(comm, net, loss, optimizer)
    history = dl.fit(strategy, DIGITS, epochs=2, batch_size=80, **options)
    return history.last.test_accuracy, strategy.predict(DIGITS.x_test), strategy.gather_params()


def accuracy_of(params):
    net = model()
    for p in net.params:
        p.data[...] = params[p.name]
    logits = net.eval().forward(DIGITS.x_test)[0]
    return (logits.argmax(axis=1) == DIGITS.y_test).mean(), logits


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_ranks_report_and_predict_the_model_that_is_handed_out(name, tmp_path):
    make = STRATEGIES[name]
    results = SimWorld(4).run(train, make)
    accuracy, logits = accuracy_of(results[0][2])
    assert results[0][2]["2.running_mean"].any()
    for reported, predicted, _ in results:
        assert reported == accuracy
        np.testing.assert_allclose(predicted, logits, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["data", "zero1", "zero3", "local", "hybrid"])
def test_a_resumed_run_continues_bit_for_bit(name, tmp_path):
    make, saving = STRATEGIES[name], {"checkpoints": dl.CheckpointStore(tmp_path), "every": 3}
    whole = SimWorld(4).run(train, make)[0]
    with pytest.raises(dl.comm.RankError, match="stop"):
        SimWorld(4).run(interrupted, make, saving)
    resumed = SimWorld(4).run(partial(train, **saving, resume=True), make)[0]
    assert resumed[0] == whole[0]
    for p, value in whole[2].items():
        np.testing.assert_array_equal(resumed[2][p], value, err_msg=p)


def interrupted(comm, make, saving):
    def report(step, total, **values):
        if step == 5:
            raise InterruptedError("stop")

    return train(comm, make, report=report, **saving)


@pytest.mark.parametrize(("policy", "servers"), [(dl.bsp(), 1), (dl.asp(), 1), (dl.ssp(2), 2)], ids=str)
def test_a_parameter_server_has_the_statistics_of_its_workers(policy, servers):
    def program(comm):
        loss, rule = nn.SoftmaxCrossEntropy(), optim.Momentum()
        server = dl.ParameterServer(comm, model(), loss, rule, 0.05, policy, servers=servers, every=4)
        run = server.train(DIGITS, batch_size=80, steps=8)
        return server.flat.statistics[:4], run

    results = SimWorld(3 + servers).run(program)
    run, theirs = results[0][1], [mean for mean, _ in results[servers:]]
    assert run.curve["test_accuracy"][-1] == accuracy_of(run.params)[0]
    held = run.params["2.running_mean"]
    assert np.min(theirs, axis=0).min() <= held.min() <= held.max() <= np.max(theirs, axis=0).max()
    assert held.any()
