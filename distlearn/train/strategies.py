"""Strategies by name: the one table that `Settings(strategy=...)` and `distlearn train --strategy` look into."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..optim import Optimizer, Rule
from ..parallel import DataParallel, ElasticDataParallel, NaiveDataParallel, Serial, Strategy


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

    def optimizer(self) -> Optimizer:
        """Make an optimizer of all the model's parameters."""
        return Optimizer(self.model.params, self.rule, self.lr)


def _serial(recipe: Recipe) -> Strategy:
    if recipe.comm.size != 1:
        raise ValueError(f"strategy 'serial' runs on one rank, not on {recipe.comm.size}; use 'data'")
    return Serial(recipe.model, recipe.loss, recipe.optimizer(), recipe.comm.clock)


def _data(recipe: Recipe) -> Strategy:
    options = {"cap_bytes": recipe.settings.cap_bytes, "overlap": recipe.settings.overlap}
    return DataParallel(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), **options)


def _data_naive(recipe: Recipe) -> Strategy:
    return NaiveDataParallel(recipe.comm, recipe.model, recipe.loss, recipe.optimizer())


def _elastic(recipe: Recipe) -> Strategy:
    options = {"cap_bytes": recipe.settings.cap_bytes, "overlap": recipe.settings.overlap}
    return ElasticDataParallel(recipe.comm, recipe.model, recipe.loss, recipe.optimizer(), **options)


STRATEGIES: dict[str, Callable[[Recipe], Strategy]] = {
    "data": _data,
    "data_naive": _data_naive,
    "elastic": _elastic,
    "serial": _serial,
}
"""Builders by name: each makes its strategy from a `Recipe`, or says why it cannot."""
