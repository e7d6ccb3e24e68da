"""The whole SPMD training program in one function, configured by `Settings`.

train(comm, settings) --> load data --> build model --> strategy --> fit --> Result
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import data as datasets
from ..backend import to_device
from ..nn import MLP, SoftmaxCrossEntropy, fuse
from ..nn import build as build_model
from ..nn.fused import is_fused
from ..nn.layer import move
from ..optim import RULES, Optimizer, WarmUp, scaled_lr
from ..parallel import CheckpointStore
from .asynchronous import ASYNCHRONOUS, train_asynchronously, updates_per_step
from .fit import History, fit
from .settings import Settings
from .strategies import CODECS, STRATEGIES

if TYPE_CHECKING:
    from ..comm.base import Communicator
    from ..data.dataset import Dataset


@dataclass
class Result:
    """The result of `train` on one rank."""

    history: History
    params: dict[str, np.ndarray] | None  # trained, by name; on rank 0 alone
    fused: bool | None = None  # whether layers were (some strategies take plain ones only); None if interrupted

    def __repr__(self):
        params = None if self.params is None else f"<{len(self.params)} arrays>"
        return f"Result({self.history!r}, params={params})"


def make_model(settings: Settings, n_features: int, n_classes: int):
    """Build the network named in the settings, on the CPU."""
    options = {"seed": settings.seed, "dtype": settings.dtype}
    if settings.model == "mlp":
        return MLP((n_features, *settings.hidden, n_classes), settings.activation, **options)
    return build_model(settings.model, n_classes=n_classes, **options)


def _model(settings: Settings, dataset, fused: bool):
    """Make the network on its device; raise if the data do not fit it."""
    model = make_model(settings, dataset.n_features, dataset.n_classes)
    try:
        model.output_shape((1, dataset.n_features))
    except ValueError as error:
        raise ValueError(f"model {settings.model!r} does not take the samples of {dataset.name!r}: {error}") from None
    model = fuse(model) if fused else model
    return model if settings.device == "cpu" else move(model, lambda array: to_device(array, settings.device))


def learning_rate(settings: Settings, n_train: int, size: int = 1):
    """Return the learning rate or its schedule: scaled to the batch size, with a warm-up if the settings ask for it."""
    batch_size = min(settings.batch_size, n_train)
    reference = settings.reference_batch
    rate = settings.lr if reference is None else scaled_lr(settings.lr, batch_size, reference)
    # S. Gupta, W. Zhang, F. Wang (2016), Model accuracy and runtime tradeoff in distributed deep learning, ICDM: the
    # rate divided by the mean staleness, which is as large
    updates = updates_per_step(settings, size)
    steps = round(settings.warmup_epochs * -(-n_train // batch_size) * updates)
    if not steps:
        return rate / updates
    start = settings.lr / rate if reference is not None and rate > settings.lr else 0.0
    return WarmUp(rate / updates, steps, start)


def _rule(settings: Settings):
    decay = {} if settings.weight_decay is None else {"weight_decay": settings.weight_decay}
    return RULES[settings.optimizer](**decay)


def build(comm: Communicator, settings: Settings, dataset: Dataset, *, fused: bool = False) -> Any:
    """Build the model, the optimizer and the strategy of a run; fused layers are faster, with fewer spans."""
    strategy, names = STRATEGIES[settings.strategy]
    if settings.trainer == "torch":
        from .torch_ddp import TorchDDP

        strategy, names, fused = TorchDDP, ("shape",), False
    n = len(dataset.x_train)
    model = _model(settings, dataset, fused)
    rate = learning_rate(settings, n, comm.size)
    optimizer = Optimizer(model.params, _rule(settings), rate, clip_norm=settings.clip_norm)
    options = {
        **vars(settings),
        "shape": (min(settings.batch_size, n), *dataset.x_train.shape[1:]),
        "compress": settings.compress and CODECS[settings.compress](settings),
        "every": settings.average_every,
    }
    return strategy(comm, model, SoftmaxCrossEntropy(), optimizer, **{name: options[name] for name in names})


def train(
    comm: Communicator,
    settings: Settings,
    checkpoints: str | Path | None = None,
    *,
    every: int = 0,
    resume: bool | str = False,
    on_epoch: Callable[[History], Any] | None = None,
    fused: bool = False,
) -> Result | None:
    """Load the data, build the model, train it: the same function on a simulated rank, an engine and under mpiexec.

    Parameters
    ----------
    checkpoints : path, optional
        Folder in which rank 0 saves the run's state (see `CheckpointStore`).
    every : int
        Steps between two checkpoints; one more after the last step.
    resume : bool or "anyway"
        Continue from the newest checkpoint, if there is one (see `fit`).
    on_epoch : callable, optional
        `on_epoch(history)` on every rank after every epoch.
    fused : bool
        As for `build`; the command line trains fused models.

    Returns
    -------
    result : Result
    """
    store = None if checkpoints is None else CheckpointStore(checkpoints)
    dataset = datasets.load(settings.data, **settings.how_to_read)
    dataset = (dataset if settings.n_train is None else dataset.take(settings.n_train)).on(settings.device)
    if settings.strategy in ASYNCHRONOUS:
        if store is not None:
            raise ValueError(f"strategy {settings.strategy!r} does not save checkpoints: remove that option")
        model, rate = _model(settings, dataset, fused), learning_rate(settings, len(dataset.x_train), comm.size)
        parts = model, SoftmaxCrossEntropy(), _rule(settings), rate
        return Result(*train_asynchronously(comm, settings, dataset, *parts), is_fused(model))
    strategy = build(comm, settings, dataset, fused=fused)
    history = fit(
        strategy,
        dataset,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        seed=settings.seed,
        evaluate_every=settings.evaluate_every,
        report=comm.report,
        on_epoch=on_epoch,
        checkpoints=store,
        every=every,
        resume=resume,
    )
    return Result(history, strategy.gather_params(), is_fused(strategy.model))
