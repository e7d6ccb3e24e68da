"""Losses: the functions that training minimizes.

A loss is any `loss(outputs, targets, n) -> (value, gradient)`: the sum over the rows given, divided by `n`, the number
of samples in the *global* batch, and the gradient of that in a new array like the outputs. Ranks and micro-batches are
given some rows each, and what they return is summed: then parts of unequal size are correct by construction, where a
mean of means would be wrong. So `n` counts samples, whatever a sample has inside. A mean over a sequence's unmasked
tokens is one of each sample, `sum_i (sum_t m_it l_it / sum_t m_it) / n`, or, if long samples are to count more, divided
by n times the tokens that a sample has on average in the data set. The tokens of one batch are known to no rank alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array, can_launch, get_xp, rounded, single
from .layer import check_classes, check_same_shape
from .metrics import METRICS, make_metric

if TYPE_CHECKING:
    from .metrics import Metric

Loss = Callable[[Array, Array, int], tuple[Any, Array]]


class SoftmaxCrossEntropy:
    r"""Softmax and cross-entropy combined, which is more accurate and cheaper than the two separately.

    .. math:: L = -\frac1n \sum_i \log p_{i, y_i}, \quad p_{ij} = \frac{e^{z_{ij}}}{\sum_k e^{z_{ik}}},
              \qquad \frac{\partial L}{\partial z_{ij}} = \frac{p_{ij} - [j = y_i]}{n}

    The largest logit of each row is subtracted first, so that no exponential overflows.

    Parameters
    ----------
    metric : str or Metric
        Metric by which models are evaluated: "accuracy", or "perplexity" for a language model.
    """

    def __init__(self, metric: Metric | str = "accuracy"):
        self.metric = make_metric(metric)

    def __call__(self, logits: Array, labels: Array, n: int | None = None) -> tuple[Any, Array]:
        """Return the loss and its gradient."""
        on_gpu = can_launch(logits)
        check_classes("SoftmaxCrossEntropy", logits, labels, read=not on_gpu)  # to read them would wait for the GPU
        n = len(logits) if n is None else n
        if n < max(1, len(logits)):
            raise _wrong_n("SoftmaxCrossEntropy", n, len(logits))
        if logits.size == 0:
            return 0.0, logits.copy()
        xp, shape = get_xp(logits), logits.shape
        terms = n * math.prod(shape[1:-1])
        if on_gpu:
            return self._launch(logits, labels, terms)
        logits, labels = logits.reshape(-1, shape[-1]), labels.reshape(-1)
        rows, dtype = xp.arange(len(logits)), logits.dtype
        if dtype.char == "e":
            logits = logits.astype(np.float32)
        z = logits - logits.max(axis=1, keepdims=True)
        at_label = z[rows, labels]
        xp.exp(z, out=z)
        total = z.sum(axis=1, keepdims=True)
        loss = float((xp.log(total[:, 0]) - at_label).sum(dtype=np.float64)) / terms
        z /= total
        z[rows, labels] -= 1
        z /= terms
        return loss, rounded(z, dtype).reshape(shape)

    def _launch(self, logits, labels, terms):
        """Compute both with one kernel; the labels are read back only if a NaN shows that one is out of range."""
        losses, dlogits = softmax_cross_entropy_rows(logits, labels, terms)
        loss = float(losses.sum(dtype=np.float64)) / terms
        if math.isnan(loss):
            check_classes("SoftmaxCrossEntropy", logits, labels)
        return loss, dlogits


def softmax_cross_entropy_rows(logits, labels, terms):
    """Return every row's loss and the gradient of their sum / `terms`, by one kernel and without leaving the GPU."""
    from ..cuda.kernels import softmax_xent

    xp, classes = get_xp(logits), logits.shape[-1]
    losses, dlogits = xp.empty(labels.size, logits.dtype), xp.empty(logits.shape, logits.dtype)
    softmax_xent(
        logits.reshape(-1, classes),
        xp.ascontiguousarray(labels).reshape(-1),
        losses,
        dlogits.reshape(-1, classes),
        1 / terms,
    )
    return losses, dlogits


class MeanSquaredError:
    r"""Mean of the squared differences from the targets.

    .. math:: L = \frac{1}{n d} \sum_{i=1}^{n} \sum_{j=1}^{d} (y_{ij} - t_{ij})^2, \qquad
              \frac{\partial L}{\partial y_{ij}} = \frac{2 (y_{ij} - t_{ij})}{n d}

    d is the number of values a sample has.
    """

    metric = METRICS["rmse"]()

    def __call__(self, y: Array, targets: Array, n: int | None = None) -> tuple[Any, Array]:
        check_same_shape("MeanSquaredError", y, targets)
        n = len(y) if n is None else n
        if n < max(1, len(y)):
            raise _wrong_n("MeanSquaredError", n, len(y))
        if y.size == 0:
            return 0.0, y.copy()
        terms = n * math.prod(y.shape[1:])
        dy = single(y) - targets
        loss = float((dy * dy).sum(dtype=np.float64)) / terms
        dy *= 2 / terms
        return loss, rounded(dy, y.dtype)


def _wrong_n(what, n, rows) -> ValueError:
    """Return the error for a global batch with fewer rows than were given."""
    least = f"the {rows} rows given" if rows else "1: no rows were given, an empty batch has no mean"
    return ValueError(f"{what}: n is {n}, expected at least {least}")
