"""How long training goes on, and what on: batches without end, until somebody says stop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from ....data import Batches
from ....data.batches import Batch
from .policy import check_policy


def endless(dataset, batch_size: int, rank: int, size: int, seed: int, start: int = 0) -> Iterator[Batch]:
    """Yield a worker's part of one global batch after another, epoch after epoch.

    Parameters
    ----------
    dataset : Dataset
        Its training set.
    batch_size : int
        Of the global batch.
    rank, size : int
        Which part of how many.
    seed : int
        Of the order.
    start : int
        Leave out so many batches.
    """
    batches = Batches(dataset.x_train, dataset.y_train, batch_size, rank=rank, size=size, seed=seed)
    epoch, first = divmod(start, len(batches))
    later = itertools.chain.from_iterable(map(batches.epoch, itertools.count(epoch + 1)))
    return itertools.chain(batches.epoch(epoch, first), later)


def check_parts(what: str, policy, rate, every) -> None:
    """Raise unless these are what a parameter server works with."""
    check_policy(what, policy)
    if not callable(rate):
        raise TypeError(f"{what}: rate is {rate!r}, expected a function of staleness and step, such as `inverse`")
    if not (hasattr(every, "__index__") and every >= 0):
        raise ValueError(f"{what}: every is {every!r}, expected a number of updates, 0 or more")


def check_end(what: str, steps: int | None, seconds: float) -> None:
    """Raise unless training ends: after some steps, after some seconds, or after whichever comes first."""
    if steps is None and seconds == math.inf:
        raise ValueError(f"{what}: give steps, seconds, or both; else training would never end")
    if steps is not None and not (hasattr(steps, "__index__") and steps >= 1):
        raise ValueError(f"{what}: steps is {steps!r}, expected a whole number, 1 or more")
