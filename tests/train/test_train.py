"""The whole program: the same numbers on any number of ranks, a history that adds up, errors that say what is wrong."""

import dataclasses
import importlib
import math
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import distlearn as dl
from distlearn.backend import has_gpu
from distlearn.comm import Network, RankError
from distlearn.data import load
from distlearn.sim import Roofline, SimWorld
from distlearn.train import STRATEGIES, DivergedError, Settings, build, evaluate, fit, train

from ..parallel.programs import assert_same_params

FAST = Settings(data="digits", hidden=(16, 12), dtype="float64", epochs=2, batch_size=100, n_train=350)


@pytest.fixture(scope="module")
def serial():
    return SimWorld(1).run(train, FAST)[0]


@pytest.mark.parametrize(("size", "overlap"), [(1, True), (3, False), (4, True)])
def test_the_same_parameters_on_any_number_of_ranks(serial, size, overlap):
    results = SimWorld(size, Network(1e-5, 1e8), Roofline(1e9)).run(train, FAST.but(overlap=overlap, cap_bytes=2000))
    assert_same_params(results[0].params, serial.params)
    for result in results:
        np.testing.assert_allclose(result.history.losses, serial.history.losses, atol=1e-12)
        assert result.history.last.test_accuracy == serial.history.last.test_accuracy
    assert [r.params is None for r in results] == [False] + [True] * (size - 1)


def test_history_adds_up():
    result = SimWorld(2, compute=Roofline(1e9)).run(train, FAST.but(epochs=3, evaluate_every=2))[0]
    history = result.history
    assert [e.epoch for e in history.epochs] == [1, 2, 3]
    assert [e.samples for e in history.epochs] == [350, 700, 1050]
    assert len(history.losses) == 3 * 4
    weights = np.array([100, 100, 100, 50]) / 350
    np.testing.assert_allclose(history.column("loss"), [weights @ history.losses[i : i + 4] for i in (0, 4, 8)])
    assert np.isnan(history.column("val_accuracy")).tolist() == [True, False, False]
    assert (np.diff(history.column("seconds")) > 0).all()
    assert history.samples_per_second == pytest.approx(1050 / history.last.seconds)
    assert history.as_dicts()[2]["epoch"] == 3
    with pytest.raises(ValueError, match="column: 'accuracy'"):
        history.column("accuracy")


def test_what_a_cell_shows_of_a_run_fits_on_a_line(serial):
    last = serial.history.last
    assert f"History(2 epochs, {last.seconds:.3g} s: loss {last.loss:.3g}, " in repr(serial)
    assert f"test accuracy {last.test_accuracy:.1%}" in repr(serial)
    assert repr(serial).endswith("params=<6 arrays>)")
    assert repr(dl.train.History(losses=[2.0])) == "History(1 steps, no epoch)"
    run = dl.world.ElasticRun([serial] * 3, steps=40, seconds=2.5)
    assert repr(run) == "ElasticRun(3 ranks, 40 steps in 2.5 s, restarts=[])"


def test_it_learns():
    last = SimWorld(2).run(train, Settings(data="digits", epochs=12))[0].history.last
    assert last.test_accuracy > 0.93
    assert last.loss < 0.1


def test_progress_is_reported_step_by_step():
    seen = []
    SimWorld(2, report=lambda step, total, **values: seen.append((step, total, sorted(values)))).run(train, FAST)
    assert [s for s, *_ in seen] == list(range(1, 9))
    assert seen[0][1:] == (8, ["epoch", "loss", "samples"])


def test_evaluate_counts_right_answers_on_every_rank(monkeypatch):
    data = load("digits")
    module = importlib.import_module("distlearn.train.fit")  # its name in the package is the function's

    def program(comm):
        strategy = build(comm, Settings(), data)
        whole = evaluate(strategy, data.x_test, data.y_test)
        few = evaluate(strategy, data.x_test[:2], data.y_test[:2])
        right = strategy.predict(data.x_test).argmax(axis=1) == data.y_test
        return whole, few, right.mean(), right[:2].mean(), evaluate(strategy, data.x_test[:0], data.y_test[:0])

    for at_once in (4096, 7):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
        for whole, few, want, want_few, none in SimWorld(3).run(program):
            assert whole == pytest.approx(want)
            assert few == want_few
            assert math.isnan(none)


@pytest.mark.parametrize("n", [2, 4, 7])
def test_all_ranks_predict_equally_often(n, monkeypatch):
    """Else ranks that predict together, layer by layer, would wait for each other forever."""
    data = load("digits")

    def program(comm):
        strategy, calls = build(comm, Settings(), data), []
        predict = strategy.predict
        strategy.predict = lambda x: calls.append(len(x)) or predict(x)
        return evaluate(strategy, data.x_test[:n], data.y_test[:n]), len(calls), min(calls)

    monkeypatch.setattr(importlib.import_module("distlearn.train.fit"), "AT_ONCE", 2)
    accuracies, calls, smallest = zip(*SimWorld(3).run(program), strict=True)
    assert len(set(accuracies)) == 1
    assert set(calls) == {-(-n // 6)}
    assert min(smallest) >= 1


def test_divergence_is_noticed_at_once():
    with np.errstate(all="ignore"), pytest.raises(RankError, match=r"loss became .* at step") as caught:
        SimWorld(2).run(train, FAST.but(lr=1e38, hidden=(), dtype="float32"))
    assert isinstance(caught.value.original, DivergedError)


DIGITS = load("digits")


def fitted(comm, data, lr=0.1, change=None, kind=dl.DataParallel, layers=(), dtype="float32", **options):
    model = dl.nn.Sequential(*dl.nn.MLP((64, 32, 10), seed=3, dtype=dtype).layers, *layers)
    if change is not None:
        change(model)
    optimizer = dl.optim.Optimizer(model.params, dl.optim.Momentum(), lr)
    strategy = kind(comm, model, dl.nn.SoftmaxCrossEntropy(), optimizer, **options)
    return fit(strategy, data, epochs=2, batch_size=64).last.test_accuracy


def with_value(value, row=100, column=3):
    x = DIGITS.x_train.copy()
    x[row, column] = value
    return dataclasses.replace(DIGITS, x_train=x)


def spoil(model):
    model.params[2].data[4, 5] = np.nan


class AllMasked(dl.nn.Layer):
    """Scores of a mask that hides everything."""

    def forward(self, x):
        return np.full_like(x, -np.inf), None

    def backward(self, dy, saved):
        return dy


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"data": with_value(np.nan)},
            r"became nan at step \d+: x_train\[100, 3\] is nan; replace such values, or leave",
        ),
        ({"data": with_value(np.inf)}, r"x_train\[100, 3\] is inf; replace"),
        ({"data": with_value(-np.inf)}, r"x_train\[100, 3\] is -inf; replace"),
        ({"data": DIGITS, "change": spoil}, r"parameter '2.W' holds NaN or infinity before the first step"),
        (
            {"data": DIGITS, "change": spoil, "kind": dl.ZeRO, "stage": 3},
            "parameter '2.W' holds NaN or infinity before the first step",
        ),
        ({"data": DIGITS, "layers": [AllMasked()]}, "nan at step 1: from data that are finite, before any update"),
        ({"data": DIGITS, "lr": 1e30}, "step [23]: training diverged; try a smaller learning rate"),
    ],
)
def test_what_made_a_loss_nan_is_named(options, message, size):
    with np.errstate(all="ignore"), pytest.raises(RankError, match=message):
        SimWorld(size).run(fitted, **options)


def test_a_parameter_server_names_what_made_its_loss_nan(monkeypatch):
    monkeypatch.setattr(dl.data, "load", lambda *args, **options: with_value(np.nan))
    with np.errstate(all="ignore"), pytest.raises(RankError, match=r"updates: x_train\[100, 3\] is nan"):
        SimWorld(3).run(train, FAST.but(strategy="param_server", n_train=None, dtype="float32"))


def test_pixels_that_are_scaled_as_the_errors_say_train():
    """Floats up to 255 were what an earlier advice made of bytes; they train badly."""
    splits = "train", "val", "test"
    pixels = [(getattr(DIGITS, f"x_{split}") * 255).astype("uint8") for split in splits]

    def accuracy(convert):
        data = dataclasses.replace(DIGITS, **{f"x_{s}": convert(x) for s, x in zip(splits, pixels, strict=True)})
        return SimWorld(1).run(fitted, data=data)[0]

    with pytest.raises(
        RankError, match=r"the input is uint8, .*; pass (x\.astype\('float32'\) / 255), pixels"
    ) as caught:
        accuracy(lambda x: x)
    advice = re.search(r"pass (.*), pixels", str(caught.value))[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        good = accuracy(lambda x: eval(advice, {"x": x}))
    with np.errstate(all="ignore"), pytest.warns(UserWarning, match=r"whole numbers up to 255, .*\(x / 255\)"):
        assert accuracy(lambda x: x.astype("float32")) < 0.7
    assert good > 0.75


@pytest.mark.parametrize("name", ["epochs", "batch_size"])
@pytest.mark.parametrize("value", [0, -3, 2.5])
def test_bad_numbers_are_named(name, value):
    with pytest.raises(ValueError, match=f"fit: {name} is {value}"):
        fit(SimpleNamespace(rank=0, size=1), None, **{"epochs": 1, "batch_size": 1, name: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "adamant"}, "optimizer is 'adamant', expected one of"),
        ({"dtype": "int32"}, "dtype is 'int32'"),
        ({"dtype": "float23"}, "dtype is 'float23', expected a floating-point type"),
        ({"device": "tpu"}, "device is 'tpu', expected 'cpu', 'gpu' or the index"),
        ({"device": -1}, "device is -1"),
        ({"data": None}, "data is None, expected the name of a data set"),
        ({"schedule": "gpip"}, "schedule is 'gpip', expected one of gpipe, 1f1b, .*, pipedream, or a text"),
        ({"schedule": 3}, "schedule is 3, expected one of gpipe"),
        ({"learning_rate": 1}, "no setting learning_rate"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        Settings().but(**changes)


def test_all_names_that_are_wrong_are_told_at_once():
    with pytest.raises(
        ValueError,
        match=r"model is 'y'.*; activation is 'z', expected one of relu, sigmoid, tanh, gelu.*; strategy is 'x'",
    ):
        Settings(strategy="x", model="y", activation="z")


@pytest.mark.parametrize("schedule", ["gpipe", " 1f1b", "F0 F1 B0 B1\nF0 B0 F1 B1", lambda rank, p, m: ["F0", "B0"]])
def test_schedules_that_can_be_read_are_settings(schedule):
    assert Settings(schedule=schedule).schedule is schedule


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"serial", "one_weird_trick"}))  # it needs convolutions
def test_every_strategy_trains_the_digits(strategy):
    """From the table alone, with what `Settings` has as defaults; on one rank all are serial training."""
    settings = FAST.but(strategy=strategy, optimizer="sgd")
    want = SimWorld(1).run(train, settings.but(strategy="serial"))[0]
    alone = SimWorld(1).run(train, settings)[0].params
    assert_same_params(alone, want.params)
    (first, *others) = SimWorld(3).run(train, settings)
    assert first.history.last.loss < first.history.epochs[0].loss
    assert list(first.params) == list(want.params)
    assert [r.params for r in others] == [None, None]


@pytest.mark.parametrize(
    ("size", "settings", "message"),
    [
        (1, Settings(data="imagenet"), "imagenet"),
        (2, Settings(strategy="serial"), "runs on one rank, not on 2"),
        (5, FAST.but(n_train=3), "5 ranks, but 'digits' has only 3 training samples"),
        (1, Settings(model="lenet"), "model 'lenet' does not take the samples of 'digits'"),
    ],
)
def test_what_cannot_be_trained_is_told_before_training(size, settings, message):
    with pytest.raises(RankError, match=message):
        SimWorld(size).run(train, settings)


def test_public_names_load():
    for name in ("SimWorld", "Network", "fit", "Settings", "DataParallel", "Trace"):
        assert getattr(dl, name) is not None
        assert name in dir(dl)
    with pytest.raises(AttributeError, match="no attribute 'Simworld'"):
        dl.Simworld  # noqa: B018


def test_a_missing_gpu_is_named():
    if has_gpu():
        pytest.skip("there is a GPU")
    with pytest.raises(RankError, match="device 'gpu' was asked for, but no usable GPU"):
        SimWorld(1).run(train, FAST.but(device="gpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["data", "data_naive", "local_sgd", "zero1", "zero2", "zero3"])
def test_a_gpu_gives_the_same_numbers(strategy):
    settings = FAST.but(strategy=strategy, average_every=1, optimizer="sgd", accumulate=2, check_every=3)
    want = SimWorld(1).run(train, settings.but(strategy="serial"))[0]
    assert_same_params(SimWorld(2).run(train, settings.but(device="gpu"))[0].params, want.params, tol=1e-9)


def test_the_update_takes_time_in_the_simulator():
    world = SimWorld(1, compute=Roofline(1e9, 1e9))
    params = world.run(train, FAST.but(optimizer="momentum", epochs=1))[0].params
    update = world.trace.select(name="update")[0]
    values = sum(p.size for p in params.values())
    assert (update.flops, update.nbytes) == (4 * values, 5 * 8 * values)
    assert update.seconds == pytest.approx(update.nbytes / 1e9)
