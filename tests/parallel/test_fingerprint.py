"""Resuming goes on with the same run only: what differs is named, whatever the strategy."""

import json
from dataclasses import replace

import numpy as np
import pytest

from distlearn.comm import RankError
from distlearn.data import load
from distlearn.nn import MLP, MeanSquaredError, SoftmaxCrossEntropy
from distlearn.optim import Cosine, Momentum, Nesterov, Optimizer, WarmUp
from distlearn.parallel import CheckpointStore
from distlearn.parallel.checkpoint.state import data_fingerprint, differences, run_fingerprint
from distlearn.sim import SimWorld
from distlearn.train import fit

from .programs import serial
from .test_optimizers import STRATEGIES as STRATEGIES_OF_ALL

DIGITS = load("digits", dtype="float64").take(96)


def prints(make=lambda params: Optimizer(params, Momentum(), 0.1), model=None, loss=None):
    model = MLP((4, 3, 2)) if model is None else model
    return run_fingerprint(model, SoftmaxCrossEntropy() if loss is None else loss, make(model.params))


def halves(step):
    return 0.1 / 2**step


CASES = {
    "clip_norm None (now 1.0)": {"make": lambda params: Optimizer(params, Momentum(), 0.1, clip_norm=1.0)},
    "lr 'Constant(lr=0.1)' (now 'Cosine(lr=0.1, steps=9)')": {
        "make": lambda params: Optimizer(params, Momentum(), Cosine(0.1, 9))
    },
    "rule 'Momentum(momentum=0.9, weight_decay=0.0)' (now 'Nesterov(momentum=0.9, weight_decay=0.0)')": {
        "make": lambda params: Optimizer(params, Nesterov(), 0.1)
    },
    "trained[2] '2.W' (now None)": {"make": lambda params: Optimizer(params[:2], Momentum(), 0.1)},
    "layers[1] 'ReLU()' (now 'Tanh()')": {"model": MLP((4, 3, 2), "tanh")},
    "parameters[0] '0.W [4, 3] float32' (now '0.W [4, 3] float64')": {"model": MLP((4, 3, 2), dtype="float64")},
    "loss 'SoftmaxCrossEntropy()' (now 'MeanSquaredError": {"loss": MeanSquaredError()},
}


@pytest.mark.parametrize("difference", CASES)
def test_what_differs_is_named(difference):
    found = differences(json.loads(json.dumps(prints())), prints(**CASES[difference]))
    assert any(line.startswith(difference) for line in found), found


def test_a_fingerprint_is_the_same_in_another_process():
    """It goes through JSON, and holds no addresses."""
    saved = json.loads(json.dumps(prints(lambda params: Optimizer(params, Momentum(), lambda step: 0.1))))
    assert differences(saved, prints(lambda params: Optimizer(params, Momentum(), lambda step: 0.1))) == []
    assert "0x" not in json.dumps(saved)


def test_two_functions_of_one_name_are_told_apart_by_their_rates():
    found = differences(
        prints(lambda params: Optimizer(params, Momentum(), lambda step: 0.1)),
        prints(lambda params: Optimizer(params, Momentum(), lambda step: 0.1 / (1 + step))),
    )
    assert len(found) == 1
    assert found[0].startswith("lr.at step.1 0.1 (now 0.05)")


def test_a_schedule_that_is_a_table_is_asked_as_far_as_it_goes():
    made = prints(lambda params: Optimizer(params, Momentum(), [0.3, 0.2].__getitem__))
    assert made["lr"]["at step"] == {"0": 0.3, "1": 0.2}


def test_data_are_known_by_their_contents_and_order():
    order = np.r_[1, 0, 2 : len(DIGITS.x_train)]
    swapped = replace(DIGITS, x_train=DIGITS.x_train[order], y_train=DIGITS.y_train[order])
    (line,) = differences(data_fingerprint(DIGITS, 32, 0), data_fingerprint(swapped, 32, 0))
    assert line.startswith("checksum of the samples")
    assert differences(data_fingerprint(DIGITS, 32, 0), data_fingerprint(DIGITS, 32, 1)) == ["seed 0 (now 1)"]


STRATEGIES = {"serial": serial} | {
    name: make for name, make in STRATEGIES_OF_ALL.items() if name not in ("trick", "pipedream")
}


def train(comm, name, folder, resume, dataset=DIGITS, lr=0.1, clip_norm=None, epochs=1):
    model = MLP((64, 8, 10), seed=0, dtype="float64")
    optimizer = Optimizer(model.params, Momentum(), lr, clip_norm=clip_norm)
    strategy = STRATEGIES[name](comm, model, SoftmaxCrossEntropy(), optimizer)
    fit(strategy, dataset, epochs=epochs, batch_size=32, checkpoints=CheckpointStore(folder), resume=resume)
    return strategy.fingerprint


@pytest.mark.parametrize("name", STRATEGIES)
def test_any_strategy_refuses_to_resume_another_run(name, tmp_path):
    want = SimWorld(1).run(train, "serial", tmp_path, False)[0]
    world = SimWorld(1 if name == "serial" else 2)
    order = np.arange(len(DIGITS.x_train))[::-1]
    reordered = replace(DIGITS, x_train=DIGITS.x_train[order].copy(), y_train=DIGITS.y_train[order].copy())
    others = {
        "clip_norm None (now 0.5)": {"clip_norm": 0.5},
        r"lr 'Constant\(lr=0.1\)' \(now 'WarmUp": {"lr": WarmUp(0.1, 5)},
        "checksum of the samples": {"dataset": reordered},
    }
    for message, options in others.items():
        with pytest.raises(RankError, match=message.replace("None (now 0.5)", r"None \(now 0\.5\)")):
            world.run(lambda comm, options=options: train(comm, name, tmp_path, True, epochs=2, **options))
    assert world.run(train, name, tmp_path, True, epochs=2)[0] == want
