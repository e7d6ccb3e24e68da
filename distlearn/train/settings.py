"""What decides a training run, with every name checked before any work is done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

import numpy as np

from ..nn.activation import ACTIVATIONS
from ..optim import RULES
from ..parallel.pipeline.schedule import SCHEDULES, make_schedule
from .strategies import STRATEGIES

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
        wrong = list(self._wrong_names())
        if wrong:
            raise ValueError(f"Settings: {'; '.join(wrong)}")
        if not self.warmup_epochs >= 0:
            raise ValueError(f"Settings: warmup_epochs is {self.warmup_epochs!r}, expected 0 or more")

    def _wrong_names(self):
        """Yield what is wrong with names, all of them; that of the data is looked up where the run is."""
        known = {"strategy": STRATEGIES, "model": MODELS, "optimizer": RULES, "activation": ACTIVATIONS}
        for name, names in known.items():
            if getattr(self, name) not in names:
                yield f"{name} is {getattr(self, name)!r}, expected one of {', '.join(names)}"
        if not isinstance(self.data, str):
            yield f"data is {self.data!r}, expected the name of a data set"
        if not _is_float(self.dtype):
            yield f"dtype is {self.dtype!r}, expected a floating-point type, such as float32"
        if self.device not in ("cpu", "gpu") and not (hasattr(self.device, "__index__") and self.device >= 0):
            yield f"device is {self.device!r}, expected 'cpu', 'gpu' or the index of a GPU"
        named = isinstance(self.schedule, str) and self.schedule.strip() in SCHEDULES
        if not (named or callable(self.schedule)):
            try:
                make_schedule(self.schedule)
            except (TypeError, ValueError) as error:
                yield f"schedule is {self.schedule!r}, expected one of {', '.join(SCHEDULES)}, or a text: {error}"

    def but(self, **changes) -> Settings:
        """Return the same settings with some changed."""
        unknown = set(changes) - {f.name for f in fields(self)}
        if unknown:
            raise ValueError(f"Settings: there is no setting {', '.join(sorted(unknown))}")
        return replace(self, **changes)

    def as_dict(self) -> dict:
        """Return the settings as a dictionary."""
        return asdict(self)


def _is_float(dtype) -> bool:
    """Say whether something names a floating-point type."""
    try:
        return np.dtype(dtype).kind == "f"
    except TypeError:
        return False
