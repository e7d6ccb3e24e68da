"""Parameter servers by their settings: waiting for all is serial training, the rest learns."""

import numpy as np
import pytest

from distlearn import data
from distlearn.comm import Network, RankError
from distlearn.sim import Roofline, SimWorld
from distlearn.train import DivergedError, Settings, build, evaluate, train
from distlearn.train.asynchronous import make_policy
from distlearn.train.program import learning_rate

from ..parallel.programs import assert_same_params

FAST = Settings(hidden=(16,), dtype="float64", epochs=3, batch_size=100, n_train=350, optimizer="sgd", lr=0.2)


def run(size, settings, **options):
    return SimWorld(size, Network(1e-5, 1e8), Roofline(1e9)).run(train, settings, **options)


@pytest.mark.parametrize("size", [2, 4])
def test_a_parameter_server_that_waits_for_all_is_serial_training(size):
    want = run(1, FAST.but(strategy="serial"))[0]
    got, *others = run(size, FAST.but(strategy="param_server"))
    assert_same_params(got.params, want.params)
    np.testing.assert_allclose(got.history.losses, want.history.losses, atol=1e-12)
    np.testing.assert_allclose(got.history.column("loss"), want.history.column("loss"), atol=1e-12)
    assert got.history.column("test_accuracy").tolist() == want.history.column("test_accuracy").tolist()
    assert got.history.column("samples").tolist() == [350, 700, 1050]
    assert got.history.column("epoch").tolist() == [1, 2, 3]
    assert (np.diff(got.history.column("seconds")) > 0).all()
    assert [(r.params, r.history.epochs) for r in others] == [(None, [])] * (size - 1)


LATE = {"staleness_rate": "inverse", "optimizer": "momentum", "lr": 0.06}


@pytest.mark.parametrize(("policy", "changes"), [("asp()", {}), ("ssp(2)", LATE), ("softsync(2)", {})])
def test_the_others_learn(policy, changes):
    settings = FAST.but(strategy="param_server", policy=policy, epochs=8, **changes)
    result = run(4, settings)[0]
    history = result.history
    assert history.last.loss < 0.8 * history.epochs[0].loss
    assert len(history.epochs) >= 2
    digits = data.load("digits", dtype="float64").take(350)

    def measure(comm):
        strategy = build(comm, FAST.but(strategy="serial"), digits)
        for p in strategy.model.params:
            p.data[...] = result.params[p.name]
        return evaluate(strategy, digits.x_test, digits.y_test)

    assert abs(SimWorld(1).run(measure)[0] - history.last.test_accuracy) < 0.05, "the last point is close to the end"


POLICY_TEXTS = ["bsp()", "asp()", "ssp(4)", "softsync(2)", "softsync(3)", "backup(0.75)"]


@pytest.mark.parametrize("policy", POLICY_TEXTS)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_an_epoch_is_one_whatever_the_policy(size, policy):
    """Schedules count updates, of which a server that does not wait makes one for every gradient."""
    settings = FAST.but(strategy="param_server", policy=policy, warmup_epochs=1.0, epochs=2)

    history = run(size, settings)[0].history
    assert learning_rate(settings, 350, size).steps == len(history.losses) / 2
    assert history.column("epoch").tolist() == [1, 2]


@pytest.mark.nightly(but_every=5)
@pytest.mark.parametrize("policy", POLICY_TEXTS)
@pytest.mark.parametrize("size", [3, 5, 9])
def test_the_defaults_learn_whatever_the_policy(size, policy):
    """A gradient is an update of its own there: with the rate of a whole step ssp(4) ends at 9 %."""
    settings = Settings(strategy="param_server", policy=policy, evaluate_every=0)
    assert run(size, settings)[0].history.last.test > 0.8


def test_evaluations_as_often_as_asked_for():
    settings = FAST.but(strategy="param_server", epochs=4)
    assert len(run(3, settings.but(evaluate_every=2))[0].history.epochs) == 2
    assert run(3, settings.but(evaluate_every=0))[0].history.column("epoch").tolist() == [4]


def test_what_cannot_be_done_is_told(tmp_path):
    with pytest.raises(RankError, match="runs on one rank, expected a server and one worker"):
        run(1, FAST.but(strategy="param_server"))
    with pytest.raises(RankError, match="strategy 'param_server' does not save checkpoints"):
        run(3, FAST.but(strategy="param_server"), checkpoints=tmp_path)


def test_divergence_is_an_error():
    with np.errstate(all="ignore"), pytest.raises(RankError, match="training diverged") as caught:
        run(3, FAST.but(strategy="param_server", policy="asp()", lr=1e200))
    assert isinstance(caught.value.original, DivergedError)


@pytest.mark.parametrize("text", ["ssp", "ssp()", "ssp(-1)", "ssp(two)", "bsp(3)", "backup(2.5)", "fastest()", "", 3])
def test_policies_that_are_none(text):
    with pytest.raises(ValueError, match=r"Settings: policy is .*, expected one of bsp\(\), asp\(\), ssp\(bound\)"):
        Settings(policy=text)


def test_policies_are_written_as_in_python():
    assert [str(make_policy(t)) for t in ("bsp", "ssp(4)", "backup(0.9)", " asp() ")] == [
        "BSP", "SSP(4)", "backup(0.9)", "ASP",
    ]  # fmt: skip
