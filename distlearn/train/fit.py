"""`fit` drives any strategy over a data set, and `History` remembers how it went."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .. import data as datasets
from ..backend import get_xp


class Epoch(NamedTuple):
    """How training stood after one epoch. Accuracies are shares from 0 to 1, None where not evaluated."""

    epoch: int
    seconds: float
    """Training time since the start [s], evaluation left out."""
    samples: int
    """Samples of the global batches trained on since the start."""
    loss: float
    """Mean training loss over the epoch's samples."""
    train_accuracy: float | None = None
    val_accuracy: float | None = None
    test_accuracy: float | None = None


@dataclass
class History:
    """What happened during `fit`, epoch by epoch.

    Attributes
    ----------
    epochs : list of Epoch
    losses : list of float
        Loss of every step's global batch.
    """

    epochs: list[Epoch] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def column(self, name: str) -> np.ndarray:
        """Return one field of all epochs as an array (NaN where it was not evaluated)."""
        if name not in Epoch._fields:
            raise ValueError(f"History.column: {name!r}, expected one of {', '.join(Epoch._fields)}")
        return np.array([math.nan if (v := getattr(e, name)) is None else v for e in self.epochs], float)

    @property
    def last(self) -> Epoch:
        """The last epoch."""
        return self.epochs[-1]

    @property
    def samples_per_second(self) -> float:
        """Samples trained on per second of training."""
        return self.last.samples / self.last.seconds if self.last.seconds > 0 else math.inf

    def as_dicts(self) -> list[dict]:
        """Epochs as dictionaries, ready for JSON or a table."""
        return [e._asdict() for e in self.epochs]


def evaluate(strategy, x, y, batch_size: int = 4096) -> float:
    """Return the share of samples that the model classifies rightly; each rank looks at its part.

    Parameters
    ----------
    strategy : Strategy
    x : (n, ...) array
    y : (n,) array of int
    batch_size : int
        Samples of one forward pass.

    Returns
    -------
    accuracy : float
        From 0 to 1; NaN for an empty set. One all-reduce of one number.
    """
    if len(x) == 0:
        return math.nan
    mine = datasets.shard(len(x), strategy.rank, strategy.size, allow_empty=True)
    right, most = 0, -(-len(x) // strategy.size)
    for start in range(mine.start, mine.start + most, batch_size):  # equally often on all: they may predict together
        part = slice(start, min(start + batch_size, mine.stop))
        empty = part.start >= part.stop
        logits = strategy.predict(x[:1] if empty else x[part])
        right += 0 if empty else int((logits.argmax(axis=1) == y[part]).sum())
    counts = strategy.total(get_xp(x).array([right, mine.stop - mine.start], dtype=np.float64))
    return float(counts[0] / counts[1])


def fit(
    strategy,
    dataset,
    *,
    epochs: int,
    batch_size: int,
    seed: int = 0,
    evaluate_every: int = 1,
    report=None,
) -> History:
    """Train for some epochs over a data set.

    Parameters
    ----------
    strategy : Strategy
    dataset : Dataset
    epochs : int
        Passes over the training set.
    batch_size : int
        Size of the global batch; every rank trains on its part of it.
    seed : int
        Order of the samples depends on (seed, epoch) alone, not on the number of ranks.
    evaluate_every : int
        Accuracies on the train, validation and test sets every so many epochs and after the last; 0 for never.
    report : callable, optional
        `report(step, total, **values)` after every step: `comm.report`.

    Returns
    -------
    history : History
    """
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"fit: {name} is {value!r}, expected a whole number, 1 or more")
    rank, size = strategy.rank, strategy.size
    if size > len(dataset.x_train):
        raise ValueError(f"fit: {size} ranks, but {dataset.name!r} has only {len(dataset.x_train)} training samples")
    batches = datasets.Batches(dataset.x_train, dataset.y_train, batch_size, rank=rank, size=size, seed=seed)
    total = epochs * len(batches)
    history, seconds, samples, step = History(), 0.0, 0, 0
    for epoch in range(epochs):
        began, loss_sum, seen = strategy.clock.now(), 0.0, 0
        for batch in batches.epoch(epoch):
            loss = strategy.step(batch)
            _stop_if_diverged(loss, step)
            history.losses.append(loss)
            loss_sum += loss * batch.n
            seen += batch.n
            step += 1
            if report is not None:
                report(step, total, loss=loss, epoch=epoch + 1, samples=samples + seen)
        if epoch + 1 == epochs and hasattr(strategy, "finish"):
            strategy.finish()
        seconds += strategy.clock.now() - began
        samples += seen
        accuracies = ()
        if evaluate_every and ((epoch + 1) % evaluate_every == 0 or epoch + 1 == epochs):
            accuracies = [evaluate(strategy, *part) for part in _parts(dataset)]
        history.epochs.append(Epoch(epoch + 1, seconds, samples, loss_sum / seen, *accuracies))
    return history


def _parts(dataset):
    """The three (x, y) on which accuracy is measured."""
    return (
        (dataset.x_train, dataset.y_train),
        (dataset.x_val, dataset.y_val),
        (dataset.x_test, dataset.y_test),
    )


class DivergedError(ArithmeticError):
    """The loss is no longer a number."""


def _stop_if_diverged(loss: float, step: int) -> None:
    """Raise at the first loss that is not finite: every later step would only spread it."""
    if not math.isfinite(loss):
        raise DivergedError(f"the loss became {loss} at step {step}: training diverged; try a smaller learning rate")
