"""`fit` trains any strategy on a data set, and saves its state at regular intervals."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import data as datasets
from ..backend import get_xp, to_numpy
from ..bounds import check_number, check_positive
from ..data.dataset import check_arrays
from ..nn.metrics import make_metric
from ..parallel.asynchronous.param_server.training import ParameterServer
from ..parallel.checkpoint.state import data_fingerprint
from ..shares import share
from .history import History, Progress
from .saving import Saving

if TYPE_CHECKING:
    from ..data.dataset import Dataset
    from ..nn.metrics import Metric
    from ..parallel.checkpoint.store import CheckpointStore
    from ..parallel.strategy import Strategy

LOG = logging.getLogger(__name__)
AT_ONCE = 4096
"""Samples of one forward pass of an evaluation, fewer where they are large."""


def evaluate(strategy: Strategy, x: Any, y: Any, metric: Metric | str | Callable[..., float] | None = None) -> float:
    """Evaluate the model on a set of samples; each rank evaluates its shard.

    Parameters
    ----------
    y : (n, ...) array
        Labels or targets, as the loss takes them.
    metric : Metric, str or callable, optional
        By default that of the strategy's loss: accuracy for classifiers, RMSE for regressions.

    Returns
    -------
    value : float
        Equal on all ranks and for any number of them; NaN for an empty set. One all-reduce of the metric's sums.
    """
    check_arrays("evaluate", x=x, y=y)
    if len(x) != len(y):
        raise ValueError(f"evaluate: x holds {len(x)} samples and y {len(y)}, expected equal numbers")
    metric = make_metric(metric, strategy.loss)
    if len(x) == 0:
        return math.nan
    mine = share(len(x), strategy.rank, strategy.size)
    sums, most = 0, -(-len(x) // strategy.size)
    # the same number of calls on all ranks, which may predict together: a rank without samples left predicts any
    at_once = max(1, min(AT_ONCE, (1 << 26) // (math.prod(x.shape[1:]) * x.dtype.itemsize)))
    starts = range(mine.start, mine.start + most, at_once)
    parts = [slice(start, min(start + at_once, mine.stop)) if start < mine.stop else slice(1) for start in starts]
    with strategy.evaluating():
        for start, part, rows in zip(starts, parts, datasets.batches.rows_of(x, parts), strict=True):
            counted = metric.counted(strategy.predict(rows), y[part])
            sums = sums + (counted if start < mine.stop else np.zeros_like(counted))
    return float(metric.value(to_numpy(strategy.total(get_xp(x).asarray(sums)))))


def fit(
    strategy: Strategy,
    dataset: Dataset,
    *,
    epochs: int,
    batch_size: int,
    seed: int = 0,
    evaluate_every: int = 1,
    metric: Metric | str | Callable[..., float] | None = None,
    report: Callable[..., Any] | None = None,
    on_epoch: Callable[[History], Any] | None = None,
    checkpoints: CheckpointStore | None = None,
    every: int = 0,
    resume: bool | str = False,
) -> History:
    """Train for some epochs over a data set.

    Parameters
    ----------
    batch_size : int
        Size of the global batch; every rank trains on its part of it.
    seed : int
        Order of the samples depends on (seed, epoch) alone, not on the number of ranks. Another call begins with epoch
        0 again, whose order is the same; the optimizer's count of steps continues, and with it the learning rate.
    evaluate_every : int
        Epochs between two measurements of the metric on the train, validation and test sets, and one after the last
        epoch; 0 for none.
    metric : Metric, str or callable, optional
        By default that of the strategy's loss.
    report : callable, optional
        `report(step, total, **values)` after every step: `comm.report`.
    on_epoch : callable, optional
        `on_epoch(history)` on every rank after every epoch; where it returns True on all of them, training ends.
    checkpoints : CheckpointStore, optional
        Where to save the run's state.
    every : int
        Save every `every` steps and after the last one; 0: after the last one only. Files are written in the
        background; training waits for the copy of its state.
    resume : bool or "anyway"
        Continue from the newest checkpoint, if there is one. That of another run (another model, optimizer,
        learning rate, clipping, data, ...) is refused with the differences, unless "anyway". A resumed run gives
        the result of an uninterrupted one: bit for bit on as many ranks, to rounding on others. Where the result
        depends on the number of ranks (`LocalSGD`, `PipeDream`, compressed gradients), another number continues
        from the same state and may differ.

    Returns
    -------
    history : History
        Of the whole run, also of the part before a restart.
    """
    check_positive("fit", epochs=epochs, batch_size=batch_size)
    if isinstance(strategy, ParameterServer):
        raise TypeError(
            f"fit: a {type(strategy).__name__} has no steps that all ranks take together: call its train(dataset, "
            "batch_size=..., ...)"
        )
    check_number("fit", whole=True, least=0, evaluate_every=evaluate_every)
    if not hasattr(dataset, "x_train"):
        raise TypeError(f"fit: the data set is a {type(dataset).__name__}, expected a Dataset: dl.data.load('digits')")
    metric = make_metric(metric, strategy.loss)
    rank, size = strategy.rank, strategy.size
    if size > len(dataset.x_train):
        raise ValueError(f"fit: {size} ranks, but {dataset.name!r} has only {len(dataset.x_train)} training samples")
    batches = datasets.Batches(dataset.x_train, dataset.y_train, batch_size, rank=rank, size=size, seed=seed)
    batches.clock, total, now = strategy.clock, epochs * len(batches), Progress()
    saving = None
    if checkpoints is None and (every or resume):
        raise ValueError(f"fit: every is {every!r} and resume {resume!r}, but without checkpoints, a CheckpointStore")
    if checkpoints is not None:
        saving = Saving(checkpoints, every, strategy, data_fingerprint(dataset, batch_size, seed))
        now = saving.begin(resume)
        if now.step > total:  # the history would end before the weights
            done = -(-now.step // len(batches))
            where = f"the newest checkpoint in {checkpoints.folder} is in epoch {done}"
            raise ValueError(f"fit: epochs is {epochs}, but {where}: expected {done} or more")
    first = now.step
    try:
        while now.epoch < epochs:
            began = strategy.clock.now()
            for batch in batches.epoch(now.epoch, now.step - now.epoch * len(batches)):
                if now.step == first and rank == 0:
                    _warn_of_pixels(batch.x)
                loss = strategy.step(batch)
                if not math.isfinite(loss):  # every later step would only spread it
                    why = why_not_finite(dataset, now.step == first)
                    raise DivergedError(f"the loss became {loss} at step {now.step + 1}: {why}")  # counted from 1
                now.add(loss, batch.n)
                later = strategy.clock.now()
                now.seconds += later - began
                began = later
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
            if strategy.world.rank == 0:
                LOG.info("epoch %d of %d: loss %.4g", now.epoch, epochs, now.history.last.loss)
            if on_epoch is not None and on_epoch(now.history) is True and now.epoch < epochs:
                strategy.finish()
                if saving is not None:
                    saving.after_step(now, now.step)
                break
    finally:
        if saving is not None:
            saving.close()
    return now.history


class DivergedError(ArithmeticError):
    """The loss is NaN or infinite."""


def why_not_finite(dataset, first: bool) -> str:
    """Say why a loss is not finite: the data, the arithmetic, or the rate."""
    for name, values in (("x_train", dataset.x_train), ("y_train", dataset.y_train)):
        if values.dtype.kind == "f" and not isinstance(values, datasets.Loader):  # whose pixels are finite
            # all rows: an infinity that a ReLU makes 0 spoils the weights, and the loss of a later batch
            bad = np.argwhere(~np.isfinite(to_numpy(values)))
            if len(bad):
                place = ", ".join(map(str, bad[0]))
                return f"{name}[{place}] is {values[tuple(bad[0])]}; replace such values, or leave out the row"
    if first:
        made = "an overflow, as of half precision or of inputs that are not scaled, 0 / 0, or scores of -inf only"
        return f"from data that are finite, before any update; a layer or the loss makes it: {made}"
    return "training diverged; try a smaller learning rate"


def _warn_of_pixels(x) -> None:
    """Warn of whole numbers from 0 to 255: a rate that suits inputs of about 1 is too large for them, or too small."""
    largest = float(x.max()) if x.dtype.kind == "f" and x[:1].size >= 64 else 0.0
    if 128 <= largest <= 255 and bool((x == get_xp(x).floor(abs(x))).all()):
        text = f"fit: the inputs are whole numbers up to {largest:g}, as pixels are: scale them to 0..1 (x / 255)"
        warnings.warn(text, stacklevel=3)
