"""Metrics: sums that can be added over parts and ranks, checked against the textbook's formulas."""

import math

import numpy as np
import pytest

from distlearn.nn import METRICS, MeanOf, MeanSquaredError, Metric, SoftmaxCrossEntropy, make_metric
from distlearn.nn.metrics import Accuracy, Perplexity, RootMeanSquaredError
from distlearn.testing import check_metric

from .cases import F1, Correlation


def of(metric, outputs, targets):
    return metric.value(metric.counted(outputs, targets))


@pytest.mark.parametrize("shape", [(7,), (5, 4), (2, 3, 4)])
def test_accuracy_is_over_the_class_axis_of_any_shape(shape):
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 4, shape)
    logits = rng.normal(size=(*shape, 4))
    assert of(Accuracy(), np.eye(4)[classes], classes) == 1
    assert of(Accuracy(), logits, classes) == pytest.approx((logits.argmax(axis=-1) == classes).mean())


def test_logits_that_are_no_numbers_are_wrong():
    """argmax takes NaN for the largest: a model of NaNs would be right wherever class 0 is."""
    assert of(Accuracy(), np.full((6, 3), np.nan), np.zeros(6, int)) == 0
    assert math.isnan(of(Perplexity(), np.full((6, 3), np.nan), np.zeros(6, int)))


def test_perplexity_of_a_uniform_guess_is_the_number_of_symbols():
    labels = np.arange(12).reshape(3, 4) % 5
    assert of(Perplexity(), np.zeros((3, 4, 5), np.float32), labels) == pytest.approx(5)
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(3, 4, 5))
    assert of(Perplexity(), logits, labels) == pytest.approx(math.exp(SoftmaxCrossEntropy()(logits, labels)[0]))
    assert of(Perplexity(), 1e4 * logits, labels) == math.inf  # beyond the largest float: no error


def test_rmse_is_the_root_of_the_mean_over_all_values():
    rng = np.random.default_rng(2)
    y, targets = rng.normal(size=(2, 6, 3))
    assert of(RootMeanSquaredError(), y, targets) == pytest.approx(math.sqrt(((y - targets) ** 2).mean()))


@pytest.mark.parametrize("name", sorted(METRICS))
def test_parts_add_up(name):
    rng = np.random.default_rng(3)
    outputs = rng.normal(size=(10, 4, 3))
    targets = rng.normal(size=(10, 4, 3)) if name == "rmse" else rng.integers(0, 3, (10, 4))
    check_metric(name, outputs, targets)


def test_a_broken_metric_is_told_which_rule_it_breaks():
    class Mean(Metric):
        def count(self, outputs, targets):
            return (outputs == targets).mean(), 1

    class Zero(Accuracy):
        def value(self, sums):
            return 0.0 if not sums[1] else super().value(sums)

    outputs, targets = np.eye(3)[[0, 1, 2, 1]], np.array([0, 1, 1, 1])
    with pytest.raises(AssertionError, match=r"'sums add up'.*numerator and denominator"):
        check_metric(Mean(), targets[::-1], targets)
    with pytest.raises(AssertionError, match="'none is NaN'"):
        check_metric(Zero(), outputs, targets)
    check_metric(lambda y, t: float((y.argmax(-1) == t).mean()), outputs, targets)


def test_every_loss_says_its_metric():
    assert SoftmaxCrossEntropy().metric.name == "accuracy"
    assert SoftmaxCrossEntropy(metric="perplexity").metric.name == "perplexity"
    assert MeanSquaredError().metric.name == "rmse"


def test_a_loss_without_a_metric_is_measured_by_itself():
    def absolute(y, targets, n=None):
        return float(np.abs(y - targets).sum()) / (n or len(y)), np.sign(y - targets)

    metric = make_metric(None, absolute)
    assert isinstance(metric, MeanOf)
    y, targets = np.arange(6.0).reshape(3, 2), np.zeros((3, 2))
    assert (metric.name, of(metric, y, targets)) == ("loss", pytest.approx(5))


def test_a_function_is_a_metric_if_its_value_is_a_mean():
    def error(outputs, targets):
        return float(abs(outputs - targets).mean())

    y, targets = np.arange(7.0, dtype="float32"), np.zeros(7, "float32")
    metric = make_metric(error, None)
    assert (metric.name, of(metric, y, targets)) == ("error", 3)
    assert np.isnan(of(metric, y[:0], targets[:0]))

    def loss(outputs, targets):  # no mean, whatever it is called
        return outputs.max()

    with pytest.raises(ValueError, match="metric loss: its value is no mean over samples"):
        of(make_metric(loss, None), y, targets)
    with pytest.raises(ValueError, match="metric metric: its value is no mean over samples"):
        of(make_metric(lambda outputs, targets: outputs.max(), None), y, targets)


def test_a_metric_of_ones_own():
    class Hits(Metric):
        name = "hits"

        def count(self, outputs, targets):
            return float((outputs > targets).sum()), len(targets)

    assert make_metric(Hits(), None).value((2, 4)) == 0.5
    with pytest.raises(ValueError, match=r"metric is 'acuracy', expected a Metric, a function\(outputs"):
        make_metric("acuracy", None)
    with pytest.raises(ValueError, match="name is 'word error', expected a name"):
        make_metric(type("Bad", (Hits,), {"name": "word error"})(), None)


@pytest.mark.parametrize(
    ("metric", "outputs", "targets", "message"),
    [
        (Accuracy(), (4, 3), (3,), r"Accuracy: labels have shape \(3,\), expected \(4,\)"),
        (Accuracy(), (4, 3), (4, 3), "one a row"),  # one-hot labels would broadcast
        (Accuracy(), (4, 5, 3), (4,), r"labels have shape \(4,\), expected \(4, 5\): one a row"),
        (Perplexity(), (4,), (4,), r"Perplexity: logits have shape \(4,\), expected \(batch, ..., classes\)"),
        (RootMeanSquaredError(), (4, 3), (4,), r"targets have shape \(4,\), expected that of the outputs, \(4, 3\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(metric, outputs, targets, message):
    with pytest.raises(ValueError, match=message):
        metric.count(np.zeros(outputs), np.zeros(targets, int))


@pytest.mark.parametrize("metric", [Accuracy(), Perplexity()])
@pytest.mark.parametrize("label", [-1, -100, 3])
def test_labels_that_are_no_class_are_refused(metric, label):
    """-1 would be the last class to an index, and a mistake to a comparison."""
    with pytest.raises(
        ValueError, match=f"{type(metric).__name__}: labels run from .*{label}.*, expected .*from 0 to 2"
    ):
        metric.count(np.zeros((2, 3)), np.array([1, label]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b"], r"labels are a list, expected an array: np\.array\(labels\)"),
        (np.array(["a", "c"]), r"labels have dtype <U1, .*np\.unique\(labels, return_inverse=True\)\[1\]"),
        (np.array([0.0, 1.0]), r"labels have dtype float64, expected integers.*labels\.astype\(int\)"),
        (np.array([False, True]), r"labels have dtype bool, expected integers.*labels\.astype\(int\)"),
        (np.eye(2), r"expected \(2,\): one a row; of one-hot rows labels\.argmax\(axis=-1\)"),
    ],
)
@pytest.mark.parametrize("measure", [Accuracy().counted, Perplexity().counted, SoftmaxCrossEntropy()])
def test_labels_of_another_kind_are_named_and_the_advice_is_right(measure, labels, message):
    scores, scope = np.array([[2.0, 0.0], [0.0, 1.0]]), {"labels": labels, "np": np}
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        measure(scores, labels)
    advice = str(caught.value).replace("one-hot rows ", ": ").rpartition(": ")[2]
    labels = scope["labels"] = eval(advice, scope)
    if labels.dtype.kind == "U":  # a list of strings needs both
        labels = eval("np.unique(labels, return_inverse=True)[1]", scope)
    np.testing.assert_array_equal(labels, [0, 1])
    np.testing.assert_array_equal(measure(scores, labels)[0], measure(scores, np.array([0, 1]))[0])


@pytest.mark.parametrize("measure", [MeanSquaredError(), RootMeanSquaredError().counted])
def test_targets_that_are_no_numbers_and_integer_outputs_are_named(measure):
    y = np.array([[1], [2]])
    with pytest.raises(TypeError, match=r"outputs are int64 and targets int64, expected .*y\.astype\('float32'\)"):
        measure(y, y)
    with pytest.raises(TypeError, match="targets are a list, expected an array"):
        measure(y.astype("float32"), y.tolist())
    assert measure(y.astype("float32"), y + 1)[0] in (1.0, 2.0)  # the mean; the sum


def test_metrics_of_several_sums_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    y, t = rng.normal(size=(101, 3)), rng.integers(0, 3, 101)
    found, actual = y.argmax(axis=1) == 1, t == 1
    precision, recall = (found & actual).sum() / found.sum(), (found & actual).sum() / actual.sum()
    assert of(F1(), y, t) == pytest.approx(2 / (1 / precision + 1 / recall))
    assert of(Correlation(), y, t) == pytest.approx(np.corrcoef(y[:, 0], t)[0, 1])


@pytest.mark.parametrize(
    "count", [lambda m, y, t: (F1().value(F1().count(y, t)), 1), lambda m, y, t: ((y * t[:, None]).mean(), 1)]
)
def test_a_metric_that_is_no_sum_is_named(count):
    metric = type("Mean", (Metric,), {"count": count})()
    y, t = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 3
    with pytest.raises(ValueError, match=r"Mean: count gives .* for 20 samples, and .*expected sums.*in value\(sums\)"):
        metric.counted(y, t)
    with pytest.raises(TypeError, match=r"Mean: count returned 3\.0, expected one or more sums"):
        type("Mean", (Metric,), {"count": lambda m, y, t: 3.0})().counted(y, t)
