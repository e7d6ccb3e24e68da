"""The settings of a training run: declared once, checked before any work is done.

`distlearn train` offers the same settings as options (`cli.options`), with their help, defaults and checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np

from ..bounds import expected_number
from ..data.loader import expected_image_shape
from ..nn.activation import ACTIVATIONS
from ..optim import RULES
from ..parallel.pipeline.schedule import SCHEDULES, make_schedule
from .asynchronous import ASYNCHRONOUS, POLICIES, STALENESS_RATES, make_policy
from .strategies import CODECS, STRATEGIES

MODELS = ("mlp", "lenet", "cnn", "alexnet28", "googlenet28", "squeezenet28")
"""Classifiers of images; all but the MLP take 28 x 28 pixels."""


class Setting(NamedTuple):
    """The declaration of one setting: its check, its help and its command-line option are derived from it."""

    kind: type
    help: str
    """In a sentence."""
    default: Any = None
    """None: may be left open."""
    choices: tuple[str, ...] = ()
    least: float | None = None
    above: float | None = None
    needs: tuple[str, tuple[str, ...]] | None = None
    """Another setting, and its values for which this one is used; for other values it has no effect."""
    check: Callable[..., Any] | None = None
    """Returns a description of the expected values if a value is wrong, else None."""

    def expected(self, value) -> str | None:
        """Return a description of the expected values if a value is wrong; None if it is right."""
        if value is None and self.default is None:
            return None
        if self.check is not None:
            return self.check(value)
        if self.choices:
            return None if value in self.choices else f"one of {', '.join(self.choices)}"
        if self.kind is tuple:
            whole = isinstance(value, (tuple, list)) and not any(expected_number(n, whole=True, least=1) for n in value)
            return None if whole else "positive whole numbers, such as (256, 128)"
        if self.kind is bool:
            return None if isinstance(value, (bool, np.bool_)) else "True or False"
        below = None if self.kind is int else math.inf
        return expected_number(value, whole=self.kind is int, least=self.least, above=self.above, below=below)


def _setting(kind: type, help: str, default=None, **rest):
    return field(default=default, metadata={"setting": Setting(kind, help, default, **rest)})


def _check_name(value) -> str | None:
    return None if isinstance(value, str) else "the name of a data set"


def _check_dtype(value) -> str | None:
    try:
        return None if np.dtype(value).kind == "f" else "a floating-point type, such as float32"
    except TypeError:
        return "a floating-point type, such as float32"


def _check_device(value) -> str | None:
    known = value in ("cpu", "gpu") or expected_number(value, whole=True, least=0) is None
    return None if known else "'cpu', 'gpu' or the index of a GPU"


def _check_schedule(value) -> str | None:
    if callable(value) or (isinstance(value, str) and value.strip() in SCHEDULES):
        return None
    try:
        make_schedule(value)
    except (TypeError, ValueError) as error:
        return f"one of {', '.join(SCHEDULES)}, or a text: {error}"
    return None


def _check_policy(value) -> str | None:
    try:
        make_policy(value)
    except (TypeError, ValueError) as error:
        return f"one of {', '.join(POLICIES)}, such as ssp(4) ({error})"
    return None


_PIPELINES = ("pipeline", "hybrid")
_BUCKETS = ("data", "hybrid", "one_weird_trick")


def _with(*strategies: str):
    return ("strategy", strategies)


@dataclass(frozen=True)
class Settings:
    """The settings of a training run, independent of where it runs."""

    data: str = _setting(
        str,
        "digits, mnist, fashion-mnist, the name of a folder of IDX files in DISTLEARN_DATA, or photos/: of images.",
        "digits",
        check=_check_name,
    )
    image_shape: tuple[int, ...] = _setting(
        tuple,
        "Height, width, and 1 or 3 channels to which a folder's images are brought; by default all are as the first.",
        (),
        check=expected_image_shape,
    )
    model: str = _setting(str, "All but mlp take 28 x 28 pixels.", "mlp", choices=MODELS)
    hidden: tuple[int, ...] = _setting(tuple, "Widths of the hidden layers.", (256, 128), needs=("model", ("mlp",)))
    activation: str = _setting(
        str, "Between the layers.", "relu", choices=tuple(ACTIVATIONS), needs=("model", ("mlp",))
    )
    optimizer: str = _setting(str, "Update rule.", "momentum", choices=tuple(RULES))
    lr: float = _setting(
        float,
        "Learning rate of a step; an asynchronous update, with fewer samples, has a part of it.",
        0.05,
        least=0,
    )
    weight_decay: float | None = _setting(float, "Of the update rule; by default the rule's own.", least=0)
    clip_norm: float | None = _setting(float, "Clip the gradient's norm to this.", above=0)
    reference_batch: int | None = _setting(
        int, "Batch size that lr is meant for: with another one the rate changes in proportion.", least=1
    )
    warmup_epochs: float = _setting(
        float, "Epochs in which the rate rises, from lr where it is scaled, else from 0.", 0.0, least=0
    )
    batch_size: int = _setting(int, "Samples of a global batch, over all ranks.", 128, least=1)
    epochs: int = _setting(int, "Passes over the data.", 5, least=1)
    seed: int = _setting(int, "Of the initial weights and the order of samples.", 0, least=0)
    dtype: str = _setting(str, "Floating-point type.", "float32", check=_check_dtype)
    device: str | int = _setting(
        str, "Where every rank keeps model and data: cpu, gpu, or the index of a GPU.", "cpu", check=_check_device
    )
    trainer: str = _setting(
        str,
        "Who computes: distlearn, or torch, the same model from the same weights by PyTorch's DDP.",
        "distlearn",
        choices=("distlearn", "torch"),
        needs=_with("data"),
    )
    strategy: str = _setting(
        str, "How ranks share the work.", "data", choices=tuple(sorted((*STRATEGIES, *ASYNCHRONOUS)))
    )
    cap_bytes: int = _setting(
        int, "Size of a gradient bucket [bytes].", 1 << 20, least=1, needs=_with(*_BUCKETS, "zero1", "zero2", "zero3")
    )
    overlap: bool = _setting(bool, "Communicate during backward.", True, needs=_with(*_BUCKETS, "zero1", "zero2"))
    compress: str | None = _setting(str, "Send gradients in fewer bytes.", choices=tuple(CODECS), needs=_with("data"))
    keep_ratio: float = _setting(
        float, "Share of the gradient's elements that is sent.", 0.01, above=0, needs=("compress", ("top_k",))
    )
    accumulate: int = _setting(
        int, "Micro-batches that a rank's part of a batch goes through in.", 1, least=1, needs=_with("data")
    )
    check_every: int | None = _setting(
        int, "Steps between two comparisons of the ranks' parameters.", least=1, needs=_with("data")
    )
    average_every: int | None = _setting(int, "Steps between two averages.", 8, least=1, needs=_with("local_sgd"))
    dp: int = _setting(int, "Replicas; -1 for the remaining ranks.", -1, least=-1, needs=_with("hybrid"))
    pp: int = _setting(int, "Stages of a pipeline.", 1, least=-1, needs=_with("hybrid"))
    tp: int = _setting(int, "Ranks that share layers.", 1, least=-1, needs=_with("hybrid"))
    schedule: str = _setting(
        str,
        f"In which order stages run micro-batches: {', '.join(SCHEDULES)}, or a text of your own.",
        "1f1b",
        check=_check_schedule,
        needs=_with(*_PIPELINES),
    )
    n_microbatches: int | None = _setting(
        int, "Micro-batches of a global batch; 4 a rank by default.", least=1, needs=_with(*_PIPELINES)
    )
    policy: str = _setting(
        str,
        f"Who waits for whom: {', '.join(POLICIES)}.",
        "bsp()",
        check=_check_policy,
        needs=_with("param_server"),
    )
    staleness_rate: str = _setting(
        str,
        "How staleness changes the learning rate.",
        "constant",
        choices=STALENESS_RATES,
        needs=_with("param_server"),
    )
    workers: int = _setting(int, "Processes of a rank that read ahead, where data is a folder of images.", 0, least=0)
    n_train: int | None = _setting(int, "Training samples to use; the validation split shrinks with them.", least=1)
    evaluate_every: int = _setting(int, "Epochs between two evaluations, and one at the end; 0 for none.", 1, least=0)

    def __post_init__(self):
        wrong = [
            f"{name} is {value!r}, expected {expected}"
            for name, setting in SETTINGS.items()
            if (expected := setting.expected(value := getattr(self, name))) is not None
        ]
        if wrong:
            raise ValueError(f"Settings: {'; '.join(wrong)}")
        for name in ("hidden", "image_shape"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def but(self, **changes: Any) -> Settings:
        """Return the same settings with some changed."""
        unknown = set(changes) - SETTINGS.keys()
        if unknown:
            raise ValueError(f"Settings: there is no setting {', '.join(sorted(unknown))}")
        return replace(self, **changes)

    @property
    def how_to_read(self) -> dict[str, Any]:
        """Arguments of `data.load`."""
        return {"dtype": self.dtype, "workers": self.workers, "image_shape": self.image_shape or None}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


SETTINGS: dict[str, Setting] = {f.name: f.metadata["setting"] for f in fields(Settings)}
"""The declaration of every setting, by name."""


def _parameters() -> str:
    """Format the docstring's list of parameters from the same declarations."""
    lines = []
    for f in fields(Settings):
        setting = SETTINGS[f.name]
        kind = "{" + ", ".join(setting.choices) + "}" if setting.choices else f.type
        only = f" Only with {setting.needs[0]} {', '.join(setting.needs[1])}." if setting.needs else ""
        lines.append(f"    {f.name} : {kind}, by default {setting.default!r}\n        {setting.help}{only}")
    return "\n".join(lines)


Settings.__doc__ = f"{Settings.__doc__}\n\n    Parameters\n    ----------\n{_parameters()}\n    "
