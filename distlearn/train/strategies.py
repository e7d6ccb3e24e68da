"""Strategies by name: the table used by `Settings(strategy=...)` and `distlearn train --strategy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .. import parallel
from ..optim import Optimizer, Rule

CODECS: dict[str, Callable] = {
    "fp16": lambda settings: parallel.FP16(),
    "int8": lambda settings: parallel.Int8(),
    "one_bit": lambda settings: parallel.OneBit(),
    "top_k": lambda settings: parallel.TopK(settings.keep_ratio),
}
"""Codecs of gradients by name, from the settings."""


class Recipe(NamedTuple):
    """What a strategy is made of; a builder takes what it needs."""

    comm: object  # of all ranks
    model: object  # the serial one, the same on every rank
    loss: Callable
    rule: Rule
    lr: float | Callable[[int], float]
    settings: object  # of the run
    shape: tuple[int, ...]  # of the inputs of a global batch

    def optimizer(self) -> Optimizer:
        """Make an optimizer of all the model's parameters."""
        return Optimizer(self.model.params, self.rule, self.lr, clip_norm=self.settings.clip_norm)

    def argument(self, name: str):
        """Return what a strategy takes by this name: the setting, but the codec itself and the shape of the inputs."""
        if name == "shape":
            return self.shape
        value = getattr(self.settings, name)
        return CODECS[value](self.settings) if name == "compress" and value is not None else value


def _make(strategy, *names: str, every: str | None = None, **fixed) -> Callable[[Recipe], parallel.Strategy]:
    """Return the builder of a strategy whose constructor takes the settings `names`, and another one as `every`."""

    def build(recipe: Recipe) -> parallel.Strategy:
        options = {name: recipe.argument(name) for name in names} | fixed
        if every is not None:
            options["every"] = recipe.argument(every)
        return strategy(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), **options)

    return build


def _serial(recipe: Recipe) -> parallel.Strategy:
    if recipe.comm.size != 1:
        raise ValueError(f"strategy 'serial' runs on one rank, not on {recipe.comm.size}; use 'data'")
    return parallel.Serial(recipe.model, recipe.loss, recipe.optimizer(), recipe.comm.clock)


def _pipeline(recipe: Recipe) -> parallel.Strategy:
    strategy = parallel.PipeDream if recipe.settings.schedule == "pipedream" else parallel.Pipeline
    return _make(strategy, "schedule", "n_microbatches", "shape")(recipe)


_BUCKETS = ("cap_bytes", "overlap")
STRATEGIES: dict[str, Callable[[Recipe], parallel.Strategy]] = {
    "data": _make(parallel.DataParallel, *_BUCKETS, "accumulate", "check_every", "compress"),
    "data_naive": _make(parallel.NaiveDataParallel),
    "diloco": _make(parallel.DiLoCo, "outer_lr", every="average_every"),
    "hybrid": _make(parallel.Hybrid, "dp", "pp", "tp", "schedule", "n_microbatches", "shape", *_BUCKETS),
    "local_sgd": _make(parallel.LocalSGD, every="average_every"),
    "one_weird_trick": _make(parallel.OneWeirdTrick, *_BUCKETS),
    "pipeline": _pipeline,
    "serial": _serial,
    "tensor": _make(parallel.TensorParallel),
    "zero1": _make(parallel.ZeRO, *_BUCKETS, stage=1),
    "zero2": _make(parallel.ZeRO, *_BUCKETS, stage=2),
    "zero3": _make(parallel.ZeRO, *_BUCKETS, stage=3),
}
"""Builders by name: each makes its strategy from a `Recipe`, or raises a `ValueError` that says why it cannot."""
