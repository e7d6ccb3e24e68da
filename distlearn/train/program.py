"""The whole SPMD training program in one function, decided by `Settings`.

train(comm, settings) --> load data --> build model --> strategy --> fit --> Result
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from .. import data as datasets
from ..backend import to_device
from ..comm.protocol import CutOffError
from ..nn import MLP, SoftmaxCrossEntropy
from ..nn import build as build_model
from ..nn.base import move
from ..optim import RULES, WarmUp, scaled_lr
from ..parallel import CheckpointStore
from .fit import History, fit
from .strategies import STRATEGIES, Recipe

MODELS = ("mlp", "lenet", "cnn", "alexnet28", "googlenet28", "squeezenet28")
"""Classifiers of images; all but the MLP take 28 x 28 pixels."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides a training run, and nothing about where it runs.

    Parameters
    ----------
    data : str
        Name of a data set.
    model : str
        One of `MODELS`.
    hidden : tuple of int
        Widths of the MLP's hidden layers.
    activation : {"relu", "sigmoid", "tanh"}
        The MLP's.
    optimizer : str
        One of `optim.RULES`.
    lr : float
        Learning rate.
    reference_batch : int, optional
        Batch size for which `lr` is right: with another one the rate changes in proportion (linear scaling).
    warmup_epochs : float
        Passes over the data in which the rate rises to its full value, from `lr` where it is scaled, else from 0.
    batch_size : int
        Of the global batch.
    epochs : int
    seed : int
        Of the weights and of the order of samples.
    dtype : str
    device : "cpu", "gpu" or int
        Where every rank keeps model and data; a number is the index of a GPU.
    strategy : str
        One of `STRATEGIES`.
    cap_bytes : int
        Size of a gradient bucket [bytes].
    overlap : bool
        Communicate while backward goes on.
    accumulate : int
        Micro-batches that a rank's part of a batch goes through in ("data").
    check_every : int, optional
        Compare the ranks' parameters every so many steps ("data").
    average_every : int, optional
        Steps between two averages ("local_sgd"); None for one at the end.
    dp, pp, tp : int
        Ranks along the axes of a "hybrid" (data, pipeline, tensor); -1 is what is left.
    schedule : str
        In which order the stages of a pipeline run micro-batches ("pipeline", "hybrid"): "gpipe", "1f1b",
        "interleaved", "pipedream" (not "hybrid"), or a text of your own.
    n_microbatches : int, optional
        Micro-batches of a global batch ("pipeline", "hybrid"); 4 a rank by default.
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
    reference_batch: int | None = None
    warmup_epochs: float = 0.0
    batch_size: int = 128
    epochs: int = 5
    seed: int = 0
    dtype: str = "float32"
    device: str | int = "cpu"
    strategy: str = "data"
    cap_bytes: int = 1 << 20
    overlap: bool = True
    accumulate: int = 1
    check_every: int | None = None
    average_every: int | None = 8
    dp: int = -1
    pp: int = 1
    tp: int = 1
    schedule: str = "1f1b"
    n_microbatches: int | None = None
    n_train: int | None = None
    evaluate_every: int = 1

    def __post_init__(self):
        for name, known in (("strategy", STRATEGIES), ("model", MODELS), ("optimizer", RULES)):
            if getattr(self, name) not in known:
                raise ValueError(f"Settings: {name} is {getattr(self, name)!r}, expected one of {', '.join(known)}")
        if np.dtype(self.dtype).kind != "f":
            raise ValueError(f"Settings: dtype is {self.dtype!r}, expected a floating-point type")
        if not self.warmup_epochs >= 0:
            raise ValueError(f"Settings: warmup_epochs is {self.warmup_epochs!r}, expected 0 or more")

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
        The trained parameters by name (NumPy arrays; on rank 0 alone, None elsewhere).
    """

    history: History
    params: dict[str, np.ndarray] | None

    def __repr__(self):
        params = None if self.params is None else f"<{len(self.params)} arrays>"
        return f"Result({self.history!r}, params={params})"


def _model(settings: Settings, dataset):
    """Make the network on its device; raise if the data do not fit it."""
    options = {"seed": settings.seed, "dtype": settings.dtype}
    if settings.model == "mlp":
        model = MLP((dataset.n_features, *settings.hidden, dataset.n_classes), settings.activation, **options)
    else:
        model = build_model(settings.model, n_classes=dataset.n_classes, **options)
    try:
        model.output_shape((1, dataset.n_features))
    except ValueError as error:
        raise ValueError(f"model {settings.model!r} does not take the samples of {dataset.name!r}: {error}") from None
    return model if settings.device == "cpu" else move(model, lambda array: to_device(array, settings.device))


def learning_rate(settings: Settings, n_train: int):
    """Return the run's learning rate, or a plan of it: scaled to the batch, and rising at first if that is wanted.

    Parameters
    ----------
    settings : Settings
    n_train : int
        Training samples.

    References
    ----------
    P. Goyal et al. (2017), Accurate, large minibatch SGD: training ImageNet in 1 hour, arXiv:1706.02677, section 2:
    k times the batch, k times the rate, reached in a few epochs from the rate of the small batch.

    Examples
    --------
    >>> plan = learning_rate(Settings(lr=0.1, batch_size=1000, reference_batch=250, warmup_epochs=2), 3000)
    >>> [round(plan(step), 2) for step in range(8)]
    [0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.4, 0.4]
    """
    batch_size = min(settings.batch_size, n_train)
    reference = settings.reference_batch
    rate = settings.lr if reference is None else scaled_lr(settings.lr, batch_size, reference)
    steps = round(settings.warmup_epochs * -(-n_train // batch_size))
    if not steps:
        return rate
    start = settings.lr / rate if reference is not None and rate > settings.lr else 0.0
    return WarmUp(rate, steps, start)


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
    recipe = Recipe(
        comm,
        _model(settings, dataset),
        SoftmaxCrossEntropy(),
        RULES[settings.optimizer](),
        learning_rate(settings, len(dataset.x_train)),
        settings,
        (min(settings.batch_size, len(dataset.x_train)), *dataset.x_train.shape[1:]),
    )
    return STRATEGIES[settings.strategy](recipe)


def train(comm, settings: Settings, checkpoints=None, *, every: int = 0, resume: bool = False) -> Result | None:
    """Load the data, build the model, train it: the same function on a simulated rank, an engine and under mpiexec.

    Parameters
    ----------
    comm : Communicator
    settings : Settings
    checkpoints : path, optional
        Folder in which rank 0 saves the run's state (see `CheckpointStore`).
    every : int
        Save after every so many steps, and after the last one.
    resume : bool
        Go on from the newest checkpoint, if there is one.

    Returns
    -------
    result : Result
        None on a rank that the others have given up (strategy "elastic").
    """
    store = None if checkpoints is None else CheckpointStore(checkpoints)
    dataset = datasets.load(settings.data, dtype=settings.dtype)
    if settings.n_train is not None:
        dataset = dataset.take(settings.n_train)
    if settings.device != "cpu":
        dataset = dataset.on(settings.device)
    try:
        strategy = build(comm, settings, dataset)
        history = fit(
            strategy,
            dataset,
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            seed=settings.seed,
            evaluate_every=settings.evaluate_every,
            report=comm.report,
            checkpoints=store,
            every=every,
            resume=resume,
        )
    except CutOffError:
        return None
    return Result(history, strategy.gather_params())
