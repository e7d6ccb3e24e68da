"""What `fit` measures is what the loss says, for every kind of task and any number of ranks."""

import json
import math

import numpy as np
import pytest

import distlearn as dl
from distlearn.data import Dataset
from distlearn.sim import SimWorld
from distlearn.train import Epoch, History, evaluate, fit

from ..nn.cases import F1, Correlation

DIGITS = dl.data.load("digits")


def an_mlp():
    model = dl.nn.MLP((64, 10))
    return dl.Serial(None, model, dl.nn.SoftmaxCrossEntropy(), dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.1))


def sequences(t, v, n=40, seed=0):
    """Sequences in which the next symbol is the last one plus one: a language model can be right about all."""
    rng = np.random.default_rng(seed)
    x = (rng.integers(0, v, (n, 1)) + np.arange(t + 1)) % v
    x, y = x[:, :-1], x[:, 1:]
    return Dataset("counting", x[:24], y[:24], x[24:29], y[24:29], x[29:], y[29:], tuple(map(str, range(v))), "a test")


def train_gru(comm, data, v, metric=None, epochs=1):
    model = dl.nn.GRULanguageModel(v, 8, 1, dtype="float64")
    optimizer = dl.optim.Optimizer(model.params, dl.optim.Adam(), 0.01)
    loss = dl.nn.SoftmaxCrossEntropy() if metric is None else dl.nn.SoftmaxCrossEntropy(metric=metric)
    strategy = dl.DataParallel(comm, model, loss, optimizer)
    history = fit(strategy, data, epochs=epochs, batch_size=7)
    return history, strategy.predict(data.x_test)


@pytest.mark.parametrize("size", [1, 3])
def test_a_language_model_has_a_perplexity(size):
    data = sequences(6, 6)
    history, logits = SimWorld(size).run(train_gru, data, 6, "perplexity", 3)[0]
    nll = dl.nn.SoftmaxCrossEntropy()(logits, data.y_test)[0]
    assert history.last.test_perplexity == pytest.approx(math.exp(nll))
    assert not hasattr(history.last, "test_accuracy")
    assert [name for name in history.as_dicts()[-1] if name.startswith("test")] == ["test_perplexity"]
    assert history.column("val_perplexity").shape == (3,)
    assert f"test perplexity {history.last.test_perplexity:.4g}" in repr(history)
    with pytest.raises(AttributeError, match=r"test_accuracy.*metric is perplexity.*test_perplexity"):
        history.last.test_accuracy  # noqa: B018
    with pytest.raises(ValueError, match=r"'test_accuracy', expected one of .*test_perplexity"):
        history.column("test_accuracy")


def regression(comm, size=50):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(size, 3))
    y = x @ rng.normal(size=(3, 2))
    data = Dataset("lines", x[:30], y[:30], x[30:40], y[30:40], x[40:], y[40:], ("a", "b"), "a test")
    model = dl.nn.MLP((3, 2), dtype="float64")
    strategy = dl.parallel.NaiveDataParallel(
        comm, model, dl.nn.MeanSquaredError(), dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.1)
    )
    return fit(strategy, data, epochs=2, batch_size=8), strategy.predict(data.x_test), data.y_test


@pytest.mark.parametrize("size", [1, 2, 4])
def test_regression_has_an_rmse(size):
    for history, y, targets in SimWorld(size).run(regression):
        assert history.last.test_rmse == pytest.approx(math.sqrt(((y - targets) ** 2).mean()))


def test_fit_takes_another_metric():
    data, strategy = DIGITS.take(100, 50), an_mlp()
    history = fit(strategy, data, epochs=1, batch_size=32, metric="perplexity")
    assert history.last.test_perplexity == pytest.approx(
        evaluate(strategy, data.x_test, data.y_test, metric="perplexity")
    )
    with pytest.raises(ValueError, match="metric is 'f1', expected"):
        fit(strategy, data, epochs=1, batch_size=32, metric="f1")


@pytest.mark.parametrize("metric", [F1(), Correlation()])
@pytest.mark.parametrize("samples", [12, 360])
def test_a_metric_of_several_sums_is_equal_on_any_number_of_ranks(metric, samples):
    """Shards without samples, too."""

    def program(comm):
        model = dl.nn.MLP((64, 10), seed=1, dtype="float64")
        optimizer = dl.optim.Optimizer(model.params, dl.optim.SGD(), 0.1)
        strategy = dl.DataParallel(comm, model, dl.nn.SoftmaxCrossEntropy(), optimizer)
        return evaluate(strategy, DIGITS.x_test[:samples].astype(float), DIGITS.y_test[:samples], metric)

    (whole,) = SimWorld(1).run(program)
    for ranks in (2, 4, 16):
        np.testing.assert_allclose(SimWorld(ranks).run(program), whole, rtol=1e-12)


def test_what_cannot_be_evaluated_is_refused():
    """4 samples against 5 labels cut to the same slices would give a number."""
    x, y = DIGITS.x_test, DIGITS.y_test
    with pytest.raises(ValueError, match="evaluate: x holds 4 samples and y 5"):
        evaluate(an_mlp(), x[:4], y[:5])
    for given, arrays in (("x", (x.tolist(), y)), ("y", (x, y.tolist()))):
        with pytest.raises(TypeError, match=f"evaluate: {given} is a list, expected an array, such as np.array"):
            evaluate(an_mlp(), *arrays)


def test_an_epoch_survives_json_with_its_metric():
    epoch = Epoch(1, 0.5, 100, 2.0, 3.0, None, 4.5, metric="perplexity")
    again = Epoch.from_dict(json.loads(json.dumps(epoch.as_dict())))
    assert again == epoch
    assert (again.train_perplexity, again.val_perplexity, again.test_perplexity) == (3.0, None, 4.5)
    assert Epoch.from_dict(Epoch(1, 0.5, 100, 2.0).as_dict()) == Epoch(1, 0.5, 100, 2.0)


@pytest.mark.parametrize(("metric", "words"), [("accuracy", "test accuracy 45.0%"), ("rmse", "test RMSE 0.45")])
def test_a_history_names_its_metric(metric, words):
    assert words in repr(History([Epoch(1, 0.5, 100, 2.0, test=0.45, metric=metric)]))


def test_curves_name_the_metric():
    epochs = [Epoch(i, i, 10 * i, 3 / i, val=9 / i, test=8 / i, metric="perplexity") for i in (1, 2, 3)]
    _, score = dl.viz.plot_history(History(epochs, [3.0, 1.5, 1.0]))
    assert score.get_ylabel() == "validation perplexity"
    assert score.lines[0].get_ydata().tolist() == [9, 4.5, 3]
    assert score.get_title("left") == "Validation perplexity"
    with pytest.raises(ValueError, match="y is 'val_accuracy', expected one of loss, train_perplexity"):
        dl.viz.plot_history(History(epochs), y="val_accuracy")


def test_runs_of_two_metrics_do_not_share_a_panel():
    runs = {m: History([Epoch(1, 1, 1, 1.0, val=0.5, metric=m)], [1.0]) for m in ("accuracy", "perplexity")}
    with pytest.raises(ValueError, match="'accuracy' was measured by accuracy and 'perplexity' by perplexity"):
        dl.viz.plot_history(runs)


def test_curves_show_the_set_that_was_evaluated():
    """A run without a validation set, or of a parameter server, which measures the test set alone."""
    nan = float("nan")
    _, ax = dl.viz.plot_history(
        History([Epoch(1, 1, 1, 1.0, 0.9, nan, 0.5), Epoch(2, 2, 2, 0.9, 0.9, nan, 0.6)], [1.0])
    )
    assert ax.get_ylabel() == "test accuracy [%]"
    assert ax.lines[0].get_ydata().tolist() == [0.5, 0.6]
