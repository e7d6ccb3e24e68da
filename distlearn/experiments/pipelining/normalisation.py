"""What micro-batches change: layers that normalise over a batch see another batch."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...data import load
from ...nn import BatchNorm, LayerNorm, Linear, ReLU, Sequential, SoftmaxCrossEntropy
from ...optim import SGD, Optimizer
from ...parallel import Pipeline
from ...sim import SimWorld
from ...train import fit

NORMS = {"none": None, "layer": LayerNorm, "batch": BatchNorm}
DTYPE = "float64"
"""In float32 a rounding error that crosses a ReLU would change a loss as micro-batches do."""
ROWS, TRAINED = 64, 1024
"""Samples of a batch, and of the training set: every batch is whole."""


class Normalised(NamedTuple):
    """One run of `normalisation_study`."""

    norm: str
    n_microbatches: int
    seed: int
    loss: float
    """Mean training loss of the last epoch."""
    accuracy: float
    """On the test set."""


def normalisation_study(norms, n_microbatches, seeds, *, lr: float = 0.1, epochs: int = 6) -> list[Normalised]:
    """Train a network with some normalisation on a pipeline of two ranks, its batches in more and more micro-batches.

    Parameters
    ----------
    norms : sequence of str
        Of "none", "layer" and "batch": by what every hidden layer is normalised.
    n_microbatches, seeds : sequence of int
        64 samples are in a batch.
    lr : float
    epochs : int

    Returns
    -------
    runs : list of Normalised
    """
    return [
        Normalised(norm, m, seed, *SimWorld(2).run(_train, norm, m, seed, lr, epochs)[0])
        for norm in norms
        for m in n_microbatches
        for seed in seeds
    ]


def _train(comm, norm: str, m: int, seed: int, lr: float, epochs: int) -> tuple[float, float]:
    rng, layers = np.random.default_rng(seed), []
    for _ in range(2):
        layers += [Linear(64, 64, rng, dtype=DTYPE), *([NORMS[norm](64, dtype=DTYPE)] if NORMS[norm] else []), ReLU()]
    model = Sequential(*layers, Linear(64, 10, rng, dtype=DTYPE))
    optimizer = Optimizer(model.params, SGD(), lr)
    strategy = Pipeline(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=m)
    history = fit(strategy, load("digits", dtype=DTYPE).take(TRAINED), epochs=epochs, batch_size=ROWS, seed=seed)
    steps = TRAINED // ROWS
    return float(np.mean(history.losses[-steps:])), history.last.test
