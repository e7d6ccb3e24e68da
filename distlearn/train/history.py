"""The history of a training run, epoch by epoch, and its progress."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..nn.metrics import format_metric, metric_title

SPLITS = ("train", "val", "test")


class Epoch(NamedTuple):
    """Results of training at the end of one epoch.

    The values of `metric` are also available by its name: `epoch.test_accuracy`, `epoch.val_perplexity`.

    Examples
    --------
    >>> epoch = Epoch(1, 0.5, 100, 2.0, test=31.5, metric="perplexity")
    >>> epoch.test, epoch.test_perplexity, epoch.train_perplexity
    (31.5, 31.5, None)
    """

    epoch: int
    seconds: float  # training time since the start [s], without evaluation
    samples: int  # of the global batches trained on since the start
    loss: float  # mean training loss over the epoch's samples, each measured in its step
    train: float | None = None  # the metric on the training set; None where not evaluated, NaN of an empty set
    val: float | None = None
    test: float | None = None
    metric: str = "accuracy"

    def __getattr__(self, name: str):
        split, _, metric = name.partition("_")
        if split not in SPLITS or name.startswith("__"):
            raise AttributeError(f"Epoch has no {name!r}")
        if metric != self.metric:
            raise AttributeError(f"Epoch has no {name!r}: its metric is {self.metric}, see {split}_{self.metric}")
        return getattr(self, split)

    @property
    def columns(self) -> tuple[str, ...]:
        return ("epoch", "seconds", "samples", "loss", *(f"{split}_{self.metric}" for split in SPLITS))

    def as_dict(self) -> dict[str, Any]:
        return dict(zip(self.columns, self, strict=False))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Epoch:
        metric = next(name for name in values if name.startswith("train_")).removeprefix("train_")
        return cls(*values.values(), metric=metric)


@dataclass
class History:
    """The record of a call of `fit`, epoch by epoch."""

    epochs: list[Epoch] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # of every step's global batch
    recoveries: list[Any] = field(default_factory=list)  # failures of ranks after which training continued

    def __repr__(self):
        if not self.epochs:
            return f"History({len(self.losses)} steps, no epoch)"
        last = self.last
        known = "".join(
            f", {split} {metric_title(last.metric)} {format_metric(last.metric, value)}"
            for split in SPLITS
            if (value := getattr(last, split)) is not None and not math.isnan(value)
        )
        lost = f", {len(self.recoveries)} recoveries" if self.recoveries else ""
        return f"History({len(self.epochs)} epochs, {last.seconds:.3g} s: loss {last.loss:.3g}{known}{lost})"

    @property
    def metric(self) -> str:
        """Name of the metric on the three sets."""
        return self.last.metric

    def column(self, name: str) -> np.ndarray:
        """Return one field of all epochs as an array (NaN where it was not evaluated); "test" is that set's metric."""
        name = f"{name}_{self.last.metric}" if self.epochs and name in SPLITS else name
        if self.epochs and name not in self.last.columns:
            raise ValueError(f"History.column: {name!r}, expected one of {', '.join(self.last.columns)}")
        return np.array([math.nan if (v := getattr(e, name)) is None else v for e in self.epochs], float)

    @property
    def last(self) -> Epoch:
        return self.epochs[-1]

    @property
    def samples_per_second(self) -> float:
        return self.last.samples / self.last.seconds if self.last.seconds > 0 else math.inf

    def as_dicts(self) -> list[dict[str, Any]]:
        return [e.as_dict() for e in self.epochs]

    @classmethod
    def from_dicts(cls, epochs: list[dict[str, Any]], losses: Any) -> History:
        """Rebuild the history from `as_dicts()` and the losses of the steps."""
        return cls([Epoch.from_dict(e) for e in epochs], [float(loss) for loss in losses])


@dataclass
class Progress:
    """Progress of a run, which a checkpoint stores besides the model."""

    step: int = 0
    epoch: int = 0
    seconds: float = 0.0
    samples: int = 0
    loss_sum: float = 0.0
    seen: int = 0
    history: History = field(default_factory=History)

    def add(self, loss: float, n: int) -> None:
        """Count a step on a global batch of n samples."""
        self.history.losses.append(loss)
        self.loss_sum += loss * n
        self.seen += n
        self.samples += n
        self.step += 1

    def end_epoch(self, metric: str, values=()) -> None:
        """Append an epoch to the history, with the metric's values on the three sets, and start the next one."""
        self.epoch += 1
        loss = self.loss_sum / self.seen
        self.history.epochs.append(Epoch(self.epoch, self.seconds, self.samples, loss, *values, metric=metric))
        self.loss_sum, self.seen = 0.0, 0

    def as_dict(self) -> dict[str, Any]:
        numbers = {name: value for name, value in vars(self).items() if name != "history"}
        return numbers | {"epochs": self.history.as_dicts()}

    @classmethod
    def from_dict(cls, numbers: dict[str, Any], losses) -> Progress:
        numbers = dict(numbers)
        history = History.from_dicts(numbers.pop("epochs"), losses)
        return cls(**numbers, history=history)
