"""`fit` trains any strategy on a data set, and saves its state at regular intervals."""

from __future__ import annotations

import math

import numpy as np

from .. import data as datasets
from ..backend import get_xp, to_numpy
from ..data.dataset import check_arrays
from ..nn.metrics import make_metric
from ..parallel.checkpoint.state import data_fingerprint
from .history import History, Progress
from .saving import Saving

AT_ONCE = 4096
"""Samples of one forward pass of an evaluation, fewer where they are large."""


def evaluate(strategy, x, y, metric=None) -> float:
    """Evaluate the model on a set of samples; each rank evaluates its shard.

    Parameters
    ----------
    y : (n, ...) array
        Labels or targets, as the loss takes them.
    metric : Metric or str, optional
        By default that of the strategy's loss: accuracy for classifiers, RMSE for regressions.

    Returns
    -------
    value : float
        Equal on all ranks and for any number of them; NaN for an empty set. One all-reduce of two numbers.
    """
    check_arrays("evaluate", x=x, y=y)
    if len(x) != len(y):
        raise ValueError(f"evaluate: x holds {len(x)} samples and y {len(y)}, expected equal numbers")
    metric = make_metric(metric, strategy.loss)
    if len(x) == 0:
        return math.nan
    mine = datasets.shard(len(x), strategy.rank, strategy.size, allow_empty=True)
    sums, most = np.zeros(2), -(-len(x) // strategy.size)
    # equally often on all ranks, which may predict together: those that have no samples left predict any
    at_once = max(1, min(AT_ONCE, (1 << 26) // (math.prod(x.shape[1:]) * x.dtype.itemsize)))
    starts = range(mine.start, mine.start + most, at_once)
    parts = [slice(start, min(start + at_once, mine.stop)) if start < mine.stop else slice(1) for start in starts]
    for start, part, rows in zip(starts, parts, datasets.batches.rows_of(x, parts), strict=True):
        outputs = strategy.predict(rows)
        if start < mine.stop:
            sums += metric.count(outputs, y[part])
    return metric.value(*to_numpy(strategy.total(get_xp(x).asarray(sums))).tolist())


def fit(
    strategy,
    dataset,
    *,
    epochs: int,
    batch_size: int,
    seed: int = 0,
    evaluate_every: int = 1,
    metric=None,
    report=None,
    on_epoch=None,
    checkpoints=None,
    every: int = 0,
    resume: bool | str = False,
) -> History:
    """Train for some epochs over a data set.

    Parameters
    ----------
    batch_size : int
        Size of the global batch; every rank trains on its part of it.
    seed : int
        Order of the samples depends on (seed, epoch) alone, not on the number of ranks.
    evaluate_every : int
        Measure the metric on the train, validation and test sets every so many epochs and after the last; 0 for never.
    metric : Metric or str, optional
        By default that of the strategy's loss.
    report : callable, optional
        `report(step, total, **values)` after every step: `comm.report`.
    on_epoch : callable, optional
        `on_epoch(history)` on every rank after every epoch.
    checkpoints : CheckpointStore, optional
        Where to save the run's state.
    every : int
        Save every `every` steps and after the last one; 0: after the last one only. Files are written in the
        background; training waits for the copy of its state.
    resume : bool or "anyway"
        Continue from the newest checkpoint, if there is one. That of another run (another model, optimizer, learning
        rate, clipping, data, ...) is refused with what differs, unless "anyway". A resumed run gives the result of an
        uninterrupted one: bit for bit on as many ranks, to rounding on others. Where the number of ranks decides what
        is computed (`LocalSGD`, `PipeDream`, compressed gradients), another number continues from the same state and
        may differ.

    Returns
    -------
    history : History
        Of the whole run, also of the part before a restart.
    """
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"fit: {name} is {value!r}, expected a whole number, 1 or more")
    metric = make_metric(metric, strategy.loss)
    rank, size = strategy.rank, strategy.size
    if size > len(dataset.x_train):
        raise ValueError(f"fit: {size} ranks, but {dataset.name!r} has only {len(dataset.x_train)} training samples")
    batches = datasets.Batches(dataset.x_train, dataset.y_train, batch_size, rank=rank, size=size, seed=seed)
    batches.clock, total, now = strategy.clock, epochs * len(batches), Progress()
    saving = None
    if checkpoints is not None:
        saving = Saving(checkpoints, every, strategy, data_fingerprint(dataset, batch_size, seed))
        now = saving.begin(resume)
    try:
        while now.epoch < epochs:
            began = strategy.clock.now()
            for batch in batches.epoch(now.epoch, now.step - now.epoch * len(batches)):
                loss = strategy.step(batch)
                _stop_if_diverged(loss, now.step + 1)  # counted from 1, as in reports
                now.add(loss, batch.n)
                began, now.seconds = (later := strategy.clock.now()), now.seconds + later - began
                if report is not None:
                    report(now.step, total, loss=loss, epoch=now.epoch + 1, samples=now.samples)
                if saving is not None:
                    saving.after_step(now, total)
            if now.epoch + 1 == epochs:
                strategy.finish()
            now.seconds += strategy.clock.now() - began
            values = ()
            if evaluate_every and ((now.epoch + 1) % evaluate_every == 0 or now.epoch + 1 == epochs):
                with strategy.clock.span("evaluate"):
                    values = [evaluate(strategy, x, y, metric=metric) for _, x, y in dataset.splits()]
            now.end_epoch(metric.name, values)
            if on_epoch is not None:
                on_epoch(now.history)
    finally:
        if saving is not None:
            saving.close()
    return now.history


class DivergedError(ArithmeticError):
    """The loss is NaN or infinite."""


def _stop_if_diverged(loss: float, step: int) -> None:
    """Raise at the first loss that is not finite: every later step would only spread it."""
    if not math.isfinite(loss):
        raise DivergedError(f"the loss became {loss} at step {step}: training diverged; try a smaller learning rate")
