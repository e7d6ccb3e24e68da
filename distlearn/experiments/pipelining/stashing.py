"""PipeDream with and without weight stashing, beside serial training on the same mini-batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...data import Batch, load
from ...nn import MLP, SoftmaxCrossEntropy
from ...optim import SGD, Optimizer
from ...parallel import PipeDream
from ...sim import SimWorld
from ...trace import Trace

STAGES, ROWS = 8, 16
"""Layers of the network, each a stage, and samples of a mini-batch."""
WAYS = {"serial": (1, True), "stashing": (STAGES, True), "no stashing": (STAGES, False)}
"""By name: ranks, and whether they stash weights. Serial training is the pipeline of one rank."""


class StashRun(NamedTuple):
    """One run of `stash_study`."""

    way: str
    lr: float
    seed: int
    losses: list[float]
    """Mean training loss of every epoch; NaN once it overflowed."""
    staleness: int
    """Most updates between forward and backward of a mini-batch on the first stage."""
    trace: Trace


def stash_study(lrs, seeds, *, ways=tuple(WAYS), epochs: int = 6, report=None) -> list[StashRun]:
    """Train a network of eight layers on the digits with mini-batches of 16: serially, with and without stashing.

    All runs of a seed start from the same weights and see the same mini-batches in the same order.

    Parameters
    ----------
    lrs : sequence of float
    seeds : sequence of int
    ways : sequence of str
        Of "serial", "stashing" and "no stashing".
    epochs : int
    report : callable, optional
        Gets `report(done, total)`.

    Returns
    -------
    runs : list of StashRun
    """
    cases = [(way, lr, seed) for way in ways for lr in lrs for seed in seeds]
    runs = []
    for way, lr, seed in cases:
        size, stashing = WAYS[way]
        world = SimWorld(size)
        with np.errstate(all="ignore"):
            losses, staleness = world.run(_train, stashing, lr, seed, epochs)[0]
        runs.append(StashRun(way, lr, seed, losses, staleness, world.trace))
        if report is not None:
            report(len(runs), len(cases))
    return runs


def _train(comm, stashing: bool, lr: float, seed: int, epochs: int):
    digits, rng = load("digits"), np.random.default_rng(seed + 100)
    model = MLP((64, *(32,) * (STAGES - 1), 10), seed=seed)
    m = len(digits.x_train) // ROWS
    optimizer = Optimizer(model.params, SGD(), lr)
    strategy = PipeDream(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=m, stashing=stashing)
    losses = []
    for _ in range(epochs):
        rows = rng.permutation(len(digits.x_train))[: m * ROWS]
        losses.append(strategy.step(Batch(digits.x_train[rows], digits.y_train[rows], m * ROWS)))
    return losses, max(strategy.staleness.values())
