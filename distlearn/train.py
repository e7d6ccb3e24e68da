"""Training: `fit` drives any strategy over a data set, and `train` is the whole SPMD program in one function.

train(comm, settings) --> load data --> build model --> strategy --> fit --> Result
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np

from . import data as datasets
from .backend import get_xp, to_numpy
from .nn import MLP, SoftmaxCrossEntropy
from .optim import RULES, Optimizer
from .parallel import DataParallel, Serial

STRATEGIES = ("data", "serial")
MODELS = ("mlp",)


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
    mine = datasets.shard(len(x), strategy.rank, strategy.size) if len(x) >= strategy.size else _whole(len(x), strategy)
    x, y = x[mine], y[mine]
    right, n = 0, len(y)
    for start in range(0, n, batch_size):
        logits = strategy.predict(x[start : start + batch_size])
        right += int((logits.argmax(axis=1) == y[start : start + batch_size]).sum())
    counts = strategy.total(get_xp(x).array([right, n], dtype=np.float64))
    return float(counts[0] / counts[1])


def _whole(n: int, strategy) -> slice:
    """Fewer samples than ranks: rank 0 takes them all."""
    return slice(0, n if strategy.rank == 0 else 0)


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


@dataclass(frozen=True)
class Settings:
    """Everything that decides a training run, and nothing about where it runs.

    Parameters
    ----------
    data : str
        Name of a data set.
    model : {"mlp"}
    hidden : tuple of int
        Widths of the hidden layers.
    activation : {"relu", "sigmoid", "tanh"}
    optimizer : {"sgd", "momentum"}
    lr : float
        Learning rate.
    batch_size : int
        Of the global batch.
    epochs : int
    seed : int
        Of the weights and of the order of samples.
    dtype : str
    strategy : {"data", "serial"}
    cap_bytes : int
        Size of a gradient bucket [bytes].
    overlap : bool
        Communicate while backward goes on.
    n_train : int, optional
        Use only so many training samples.
    evaluate_every : int
    """

    data: str = "digits"
    model: str = "mlp"
    hidden: tuple[int, ...] = (256, 128)
    activation: str = "relu"
    optimizer: str = "momentum"
    lr: float = 0.05
    batch_size: int = 128
    epochs: int = 5
    seed: int = 0
    dtype: str = "float32"
    strategy: str = "data"
    cap_bytes: int = 1 << 20
    overlap: bool = True
    n_train: int | None = None
    evaluate_every: int = 1

    def __post_init__(self):
        for name, known in (("strategy", STRATEGIES), ("model", MODELS), ("optimizer", tuple(RULES))):
            if getattr(self, name) not in known:
                raise ValueError(f"Settings: {name} is {getattr(self, name)!r}, expected one of {', '.join(known)}")
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(f"Settings: dtype is {self.dtype!r}, expected a floating-point type")

    def but(self, **changes) -> Settings:
        """Return the same settings with some changed."""
        unknown = set(changes) - {f.name for f in fields(self)}
        if unknown:
            raise ValueError(f"Settings: there is no setting {', '.join(sorted(unknown))}")
        return replace(self, **changes)

    def as_dict(self) -> dict:
        """Return the settings as a dictionary."""
        return asdict(self)


@dataclass
class Result:
    """What one rank brings back from `train`.

    Attributes
    ----------
    history : History
    params : dict of str to array
        The trained parameters by name (NumPy arrays; on rank 0 alone, None elsewhere: they are the same on every rank).
    """

    history: History
    params: dict[str, np.ndarray] | None


def build(comm, settings: Settings, dataset):
    """Make model, optimizer and strategy of a run.

    Parameters
    ----------
    comm : Communicator
    settings : Settings
    dataset : Dataset

    Returns
    -------
    strategy : Strategy
    """
    sizes = (dataset.n_features, *settings.hidden, dataset.n_classes)
    model = MLP(sizes, settings.activation, seed=settings.seed, dtype=settings.dtype)
    optimizer = Optimizer(model.params, RULES[settings.optimizer](), settings.lr)
    if settings.strategy == "serial":
        if comm.size != 1:
            raise ValueError(f"strategy 'serial' runs on one rank, not on {comm.size}; use 'data'")
        return Serial(model, SoftmaxCrossEntropy(), optimizer, comm.clock)
    options = {"cap_bytes": settings.cap_bytes, "overlap": settings.overlap}
    return DataParallel(comm, model, SoftmaxCrossEntropy(), optimizer, **options)


def train(comm, settings: Settings) -> Result:
    """Load the data, build the model, train it: the same function on a simulated rank, an engine and under mpiexec.

    Parameters
    ----------
    comm : Communicator
    settings : Settings

    Returns
    -------
    result : Result
    """
    dataset = datasets.load(settings.data, dtype=settings.dtype)
    if settings.n_train is not None:
        dataset = dataset.take(settings.n_train)
    strategy = build(comm, settings, dataset)
    history = fit(
        strategy,
        dataset,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        seed=settings.seed,
        evaluate_every=settings.evaluate_every,
        report=comm.report,
    )
    params = {p.name: to_numpy(p.data).copy() for p in strategy.model.params} if comm.rank == 0 else None
    return Result(history, params)
