"""Strategies by name: the table used by `Settings(strategy=...)` and `distlearn train --strategy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..optim import Optimizer, Rule
from ..parallel import (
    FP16,
    DataParallel,
    DiLoCo,
    ElasticDataParallel,
    Hybrid,
    Int8,
    LocalSGD,
    NaiveDataParallel,
    OneBit,
    OneWeirdTrick,
    PipeDream,
    Pipeline,
    Serial,
    Strategy,
    TensorParallel,
    TopK,
    ZeRO,
)

CODECS: dict[str, Callable] = {
    "fp16": lambda settings: FP16(),
    "int8": lambda settings: Int8(),
    "one_bit": lambda settings: OneBit(),
    "top_k": lambda settings: TopK(settings.keep_ratio),
}
"""Codecs of gradients by name, from the settings."""


class Recipe(NamedTuple):
    """What a strategy is made of; a builder takes what it needs."""

    comm: object
    """The Communicator of all ranks."""
    model: object
    """The serial model, the same on every rank."""
    loss: Callable
    rule: Rule
    lr: float | Callable[[int], float]
    settings: object
    """The run's `Settings`."""
    shape: tuple[int, ...]
    """Of the inputs of a global batch."""

    def optimizer(self) -> Optimizer:
        """Make an optimizer of all the model's parameters."""
        return Optimizer(self.model.params, self.rule, self.lr, clip_norm=self.settings.clip_norm)

    def codec(self):
        """Make the codec of the gradients; None to send them as they are."""
        name = self.settings.compress
        return None if name is None else CODECS[name](self.settings)


def _serial(recipe: Recipe) -> Strategy:
    if recipe.comm.size != 1:
        raise ValueError(f"strategy 'serial' runs on one rank, not on {recipe.comm.size}; use 'data'")
    return Serial(recipe.model, recipe.loss, recipe.optimizer(), recipe.comm.clock)


def _data(recipe: Recipe) -> Strategy:
    names = ("cap_bytes", "overlap", "accumulate", "check_every")
    options = {name: getattr(recipe.settings, name) for name in names} | {"compress": recipe.codec()}
    return DataParallel(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), **options)


def _data_naive(recipe: Recipe) -> Strategy:
    return NaiveDataParallel(recipe.comm, recipe.model, recipe.loss, recipe.optimizer())


def _elastic(recipe: Recipe) -> Strategy:
    names = ("cap_bytes", "overlap")
    options = {name: getattr(recipe.settings, name) for name in names} | {"compress": recipe.codec()}
    return ElasticDataParallel(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), **options)


def _local_sgd(recipe: Recipe) -> Strategy:
    every = recipe.settings.average_every
    return LocalSGD(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), every=every)


def _diloco(recipe: Recipe) -> Strategy:
    options = {"every": recipe.settings.average_every, "outer_lr": recipe.settings.outer_lr}
    return DiLoCo(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), **options)


def _zero(stage: int):
    def build(recipe: Recipe) -> Strategy:
        options = {name: getattr(recipe.settings, name) for name in ("cap_bytes", "overlap")} | {"stage": stage}
        return ZeRO(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), **options)

    return build


def _tensor(recipe: Recipe) -> Strategy:
    return TensorParallel(recipe.comm, recipe.model, recipe.loss, recipe.optimizer())


def _one_weird_trick(recipe: Recipe) -> Strategy:
    options = {name: getattr(recipe.settings, name) for name in ("cap_bytes", "overlap")}
    return OneWeirdTrick(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), **options)


def _hybrid(recipe: Recipe) -> Strategy:
    names = ("dp", "pp", "tp", "schedule", "n_microbatches", "cap_bytes", "overlap")
    options = {name: getattr(recipe.settings, name) for name in names}
    return Hybrid(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), shape=recipe.shape, **options)


def _pipeline(recipe: Recipe) -> Strategy:
    settings = recipe.settings
    options = {"schedule": settings.schedule, "n_microbatches": settings.n_microbatches, "shape": recipe.shape}
    strategy = PipeDream if settings.schedule == "pipedream" else Pipeline
    return strategy(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), **options)


STRATEGIES: dict[str, Callable[[Recipe], Strategy]] = {
    "data": _data,
    "data_naive": _data_naive,
    "diloco": _diloco,
    "elastic": _elastic,
    "hybrid": _hybrid,
    "local_sgd": _local_sgd,
    "one_weird_trick": _one_weird_trick,
    "pipeline": _pipeline,
    "serial": _serial,
    "tensor": _tensor,
    "zero1": _zero(1),
    "zero2": _zero(2),
    "zero3": _zero(3),
}
"""Builders by name: each makes its strategy from a `Recipe`, or raises a `ValueError` that says why it cannot."""
