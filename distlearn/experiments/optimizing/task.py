"""A network, its data and the loss to be reached; and the search for the learning rate that reaches it soonest."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from ...data import Batch, available, load
from ...nn import MLP, SoftmaxCrossEntropy
from ...optim import SGD, Optimizer
from ...parallel import Serial

MOST = 4000
"""Samples that a task uses: enough for a noise scale of a few hundred."""
LOST = 1.5
"""A learning rate is given up where it needs so many times the steps of the best one so far."""


@dataclass(frozen=True)
class TargetTask:
    """A small network to be trained until its loss on the training samples is `target`.

    Parameters
    ----------
    name : str
    x : (n, features) array
    y : (n,) array of int
    target : float
    hidden : tuple of int
        Widths of the hidden layers.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    target: float
    hidden: tuple[int, ...] = (32,)

    def trainer(self, rule, lr: float, seed: int = 0) -> Serial:
        """Return a freshly initialized network with its optimizer."""
        model = MLP((self.x.shape[1], *self.hidden, int(self.y.max()) + 1), seed=seed)
        return Serial(model, SoftmaxCrossEntropy(), Optimizer(model.params, rule, lr))

    def draw(self, batch: int, rng) -> Batch:
        """Return a batch of samples drawn with replacement, which makes them independent; or simply all of them."""
        rows = slice(None) if batch >= len(self.x) else rng.integers(len(self.x), size=batch)
        return Batch(self.x[rows], self.y[rows], min(batch, len(self.x)))

    def loss(self, trainer) -> float:
        """Return the loss on all samples."""
        return trainer.loss(trainer.model.forward(self.x)[0], self.y)[0]


TARGETS = {"digits": 0.3, "mnist": 0.4, "fashion-mnist": 0.65, "digits, 0-4 or 5-9": 0.25}


def target_task(name: str = "digits") -> TargetTask:
    """Return a task by the name of its data; one that is not on this machine is replaced, nothing is downloaded.

    Parameters
    ----------
    name : {"digits", "mnist", "fashion-mnist", "digits, 0-4 or 5-9"}
        The last one is another question about scikit-learn's digits, and stands in for data that are missing.
    """
    if name not in TARGETS:
        raise ValueError(f"target_task: name is {name!r}, expected one of {', '.join(map(repr, TARGETS))}")
    if name in ("mnist", "fashion-mnist"):
        origin = {found.name: found.origin for found in available()}
        if origin.get(name) not in ("folder", "cache"):
            return target_task("digits, 0-4 or 5-9")
    data = load("digits" if name.startswith("digits") else name)
    x, y = data.x_train[:MOST], data.y_train[:MOST]
    return TargetTask(name, x, (y < 5).astype(y.dtype) if "0-4" in name else y, TARGETS[name])


def steps_to_target(task: TargetTask, batch: int, lr: float, rule=None, *, seed: int = 0, most: float = 5000) -> float:
    """Return the steps after which the loss on all samples is at most the target, to 3 %; infinite if not in `most`.

    Parameters
    ----------
    task : TargetTask
    batch : int
        Samples in a batch; as many as the task has, or more, are all of them.
    lr : float
    rule : Rule, optional
        `SGD` by default.
    seed : int
        Of the weights and of the samples drawn.
    most : float
        Steps after which the run ends.
    """
    trainer, rng, look = task.trainer(SGD() if rule is None else rule, lr, seed), np.random.default_rng(seed), 1
    # one thread: products this small gain nothing from more; and a learning rate that is too high overflows
    with threadpool_limits(1), np.errstate(all="ignore"):
        for step in range(1, int(most) + 1):
            if not math.isfinite(trainer.step(task.draw(batch, rng))):
                return math.inf
            if step >= look:
                if task.loss(trainer) <= task.target:
                    return step
                look = math.ceil(step * 1.03)
    return math.inf


def tune(score, start: float, most: float = math.inf) -> dict[float, float]:
    """Search the best learning rate in steps of a factor of two: up from `start`, then down, until it gets worse.

    Parameters
    ----------
    score : callable
        score(lr, most) -> float, lower is better; a score above `most` need not be exact.
    start : float
        Learning rate to begin with.
    most : float
        Scores above this one are lost.

    Returns
    -------
    scores : dict of float to float
        Of every learning rate tried; infinite where it was lost.
    """
    scores = {start: score(start, most)}
    for factor in (2.0, 0.5):
        best = min(scores, key=scores.get)
        while True:
            lr = best * factor
            scores[lr] = score(lr, min(most, LOST * scores[best]))
            lost = math.isinf(scores[best]) and start / 64 < lr < start * 64  # nothing known to be better than: go on
            if not (scores[lr] < scores[best] or lost):
                break
            best = lr
    return dict(sorted(scores.items()))
