"""Metrics: the numbers by which models are evaluated.

A metric is a function of sums over samples: accuracy of (right ones, labels), an F1 score of (true positives,
predicted, actual), a correlation of (n, and the sums of y, t, y y, t t and y t). `count` returns the sums for some
samples; they are added over batches and over ranks, and `value` computes the metric from them once. So evaluation in
parts of any size, on shards of any size, gives what one pass over all samples would. A mean is no sum: that of
(0.9, 0.7) of two parts is not the mean of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array, get_xp
from .layer import check_classes, check_same_shape

if TYPE_CHECKING:
    from .loss import Loss


class Metric:
    """Base of metrics: a plain mean, unless a subclass overrides `value`.

    Attributes
    ----------
    name : str
        Name in histories, tables and curves: "accuracy" makes `history.last.test_accuracy`.
    title : str
        In words, for tables and axes; the name by default.
    share : bool
        Whether it is a share from 0 to 1, shown in per cent.

    Examples
    --------
    >>> class F1(Metric):
    ...     name = "f1"
    ...     def count(self, outputs, targets):
    ...         found = outputs.argmax(axis=-1) == 1
    ...         return (found & (targets == 1)).sum(), found.sum() + (targets == 1).sum()
    ...     def value(self, sums):
    ...         return 2 * super().value(sums)
    >>> F1().value(F1().count(np.eye(2)[[0, 1, 1]], np.array([0, 0, 1])))
    0.6666666666666666
    """

    name = "metric"
    title = ""
    share = False

    def count(self, outputs: Array, targets: Array) -> Sequence[Any]:
        """Return sums over some samples for `value`; here the sum of the terms, and their number.

        Parameters
        ----------
        outputs : (batch, ...) array
            The model's predictions.
        """
        raise NotImplementedError(f"{type(self).__name__} has no count(outputs, targets)")

    def value(self, sums: Sequence[Any]) -> float:
        """Return the metric from the sums over all samples; NaN if there are none."""
        total, n = sums
        return float(total) / float(n) if n else math.nan

    def counted(self, outputs: Array, targets: Array) -> np.ndarray:
        """Return `count` as an array; raise if those of a metric of the user's own are no sums over samples."""
        found, middle = self._array(outputs, targets), len(outputs) // 2
        own = self.own if isinstance(self, MeanOf) else type(self).__module__ != __name__
        if own and middle and np.isfinite(found).all():
            first, rest = (self._array(outputs[i], targets[i]) for i in (slice(middle), slice(middle, None)))
            if (abs(first + rest - found) > 1e-5 * (abs(first) + abs(rest))).any():
                if isinstance(self, MeanOf):
                    text = "its value is no mean over samples, as those of both halves show"
                    raise ValueError(f"metric {self.name}: {text}; write a Metric, whose count returns sums")
                raise ValueError(
                    f"{type(self).__name__}: count gives {found.tolist()} for {len(outputs)} samples, and "
                    f"{first.tolist()} and {rest.tolist()} for their halves, expected sums, which add up: no means, no "
                    "quotients; return numerator and denominator, and divide in value(sums)"
                )
        return found

    def _array(self, outputs, targets):
        sums = self.count(outputs, targets)
        if not hasattr(sums, "__len__") or any(np.ndim(v) for v in sums):
            raise TypeError(
                f"{type(self).__name__}: count returned {sums!r:.100}, expected one or more sums: (a, b, ...)"
            )
        return np.array([float(v) for v in sums])


class Accuracy(Metric):
    """Share of the labels that have the highest score; for sequences, of the labels of all positions."""

    # A row of scores with a NaN counts as wrong.

    name, share = "accuracy", True

    def count(self, outputs, targets):
        check_classes("Accuracy", outputs, targets)
        if targets.size == 0:
            return 0.0, 0
        numbers = ~get_xp(outputs).isnan(outputs).any(axis=-1)  # argmax treats NaN as the largest
        return float(((outputs.argmax(axis=-1) == targets) & numbers).sum()), targets.size


class Perplexity(Metric):
    r"""Perplexity: the model is as uncertain as a uniform choice among this many symbols."""

    name = "perplexity"

    def count(self, outputs, targets):
        check_classes("Perplexity", outputs, targets)
        if targets.size == 0:
            return 0.0, 0
        xp, labels = get_xp(outputs), targets.reshape(-1)
        z = outputs.reshape(-1, outputs.shape[-1]).astype("float64")
        z -= z.max(axis=1, keepdims=True)
        nll = xp.log(xp.exp(z).sum(axis=1)) - z[xp.arange(len(z)), labels]
        return float(nll.sum()), targets.size

    def value(self, sums):
        """Return the exponential of the mean; infinity beyond the largest float."""
        mean = super().value(sums)
        return math.exp(mean) if not mean > 709 else math.inf


class RootMeanSquaredError(Metric):
    """Root of the mean squared difference, over all values of all samples, in the unit of the targets."""

    name, title = "rmse", "RMSE"

    def count(self, outputs, targets):
        check_same_shape("RootMeanSquaredError", outputs, targets)
        difference = outputs.astype("float64") - targets
        return float((difference * difference).sum()), difference.size

    def value(self, sums):
        return math.sqrt(super().value(sums))


class MeanOf(Metric):
    """The mean over samples of what a function gives: `function(outputs, targets) -> mean of these`."""

    def __init__(self, function: Callable[[Array, Array], float], name: str = ""):
        self.function, self.own, name = function, not name, name or getattr(function, "__name__", "")
        self.name = name if name.isidentifier() else "metric"  # of a lambda

    def count(self, outputs: Array, targets: Array) -> Sequence[Any]:
        n = len(targets)
        return (float(self.function(outputs, targets)) * n, n) if n else (0.0, 0)


# Metrics by name.
METRICS = {metric.name: metric for metric in (Accuracy, Perplexity, RootMeanSquaredError)}


def make_metric(metric: Metric | str | Callable[[Array, Array], float] | None, loss: Loss | None = None) -> Metric:
    """Return the metric of a task.

    Parameters
    ----------
    metric : Metric, str, callable or None
        A name is one of `METRICS`; a function of (outputs, labels) returns a mean over these samples; None means the
        metric of the loss (`loss.metric`), or the loss itself.
    """
    if metric is None:
        metric = getattr(loss, "metric", None) or MeanOf(lambda y, t: loss(y, t, len(t))[0], "loss")
    if isinstance(metric, str) and metric in METRICS:
        metric = METRICS[metric]()
    if not isinstance(metric, (Metric, type)) and callable(metric):
        metric = MeanOf(metric)
    if not isinstance(metric, Metric):
        raise ValueError(
            f"metric is {metric!r}, expected a Metric, a function(outputs, labels) or one of {', '.join(METRICS)}"
        )
    if not metric.name.isidentifier():
        raise ValueError(f"{type(metric).__name__}: name is {metric.name!r}, expected a name such as word_error")
    return metric


def metric_title(name: str) -> str:
    """Return a metric's title in tables and on axes."""
    return (METRICS[name].title if name in METRICS else "") or name.replace("_", " ")


def is_share(name: str) -> bool:
    """Say whether a metric is a share from 0 to 1, shown in per cent."""
    return name in METRICS and METRICS[name].share


def format_metric(name: str, value: float | None) -> str:
    """Return a metric's value as text: a share in per cent, others to four digits, unknown values as a dash."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.1%}" if is_share(name) else f"{value:.4g}"
