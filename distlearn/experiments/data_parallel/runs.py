"""Whole runs of lab 07: a given step in the library's training, large batches, local SGD on dealt data."""

from __future__ import annotations

import numpy as np

from ...comm import Network
from ...comm.protocol import RankError, ignore_report
from ...data import Batches, load, shard
from ...nn import MLP, SoftmaxCrossEntropy
from ...optim import RULES, SGD, Optimizer
from ...parallel import Serial
from ...sim import Roofline, SimWorld
from ...train import Settings, build, evaluate, fit


def train_digits_with(comm, settings: Settings, step=None, lr=None, rule=None):
    """Train as `train` does, but with a step, a learning-rate plan or an update rule of its caller's own.

    Parameters
    ----------
    comm : Communicator
    settings : Settings
    step : callable, optional
        `step(comm, model, loss, optimizer, batch) -> loss of the global batch`.
    lr : float or callable, optional
    rule : Rule, optional

    Returns
    -------
    history : History
    """
    data = load(settings.data, dtype=settings.dtype)
    data = data if settings.n_train is None else data.take(settings.n_train)
    strategy = build(comm, settings, data)
    strategy.optimizer = Optimizer(strategy.model.params, rule or RULES[settings.optimizer](), lr or settings.lr)
    if step is not None:
        parts = strategy.comm, strategy.model, strategy.loss, strategy.optimizer
        strategy.step = lambda batch: step(*parts, batch)
    return fit(
        strategy,
        data,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        seed=settings.seed,
        evaluate_every=settings.evaluate_every,
        report=comm.report,
    )


def plan_accuracy(settings: Settings, batch_sizes, plan=None, *, seeds=3, report=None) -> np.ndarray:
    """Return the test accuracy by batch size and seed; a run whose loss is NaN counts as guessing.

    Parameters
    ----------
    settings : Settings
    batch_sizes : sequence of int
    plan : callable, optional
        `plan(batch_size)` returns the learning-rate plan; the rate of the settings by default.
    seeds : int
    report : callable, optional
        Gets `report(runs done, runs in all)`.

    Returns
    -------
    accuracy : (batch sizes, seeds) array
        In per cent.
    """
    report, found = report or ignore_report, np.full((len(batch_sizes), seeds), 10.0)
    for i, batch_size in enumerate(batch_sizes):
        for seed in range(seeds):
            run = settings.but(batch_size=batch_size, seed=seed)
            try:
                history = SimWorld(1).run(train_digits_with, run, lr=plan and plan(batch_size))[0]
                found[i, seed] = 100 * history.last.test_accuracy
            except RankError:  # the loss was no longer finite
                pass
            report(i * seeds + seed + 1, found.size)
    return found


def time_to_accuracy(settings: Settings, ranks: int, accuracy: float = 0.9) -> tuple[int, float]:
    """Return after how many epochs, and simulated seconds, a run first reaches a validation accuracy."""
    world = SimWorld(ranks, Network(20e-6, 1e9), Roofline(2e9))
    history = world.run(train_digits_with, settings.but(evaluate_every=1))[0]
    first = np.flatnonzero(history.column("val_accuracy") >= accuracy)
    if not len(first):
        raise ValueError(f"time_to_accuracy: {settings.epochs} epochs end below {accuracy:.0%}; train longer")
    return history.epochs[first[0]].epoch, history.epochs[first[0]].seconds


def local_run(train, every: int, by_class: bool, *, ranks=4, epochs=16, seed=0) -> tuple[float, float]:
    """Train with a given local SGD on digits, dealt at random or by class.

    Parameters
    ----------
    train : callable
        `train(comm, model, loss, optimizer, batches, every) -> losses`.
    every : int
        Steps between two averagings.
    by_class : bool
        Whether rank 0 has the smallest digits and the last rank the largest.
    ranks, epochs : int
    seed : int
        Of the weights and of the order of the batches.

    Returns
    -------
    megabytes : float
        That each rank sends.
    accuracy : float
        On the test set, in per cent.
    """

    def on_rank(comm):
        data, loss = load("digits", dtype="float64").take(1280), SoftmaxCrossEntropy()
        model = MLP((64, 64, 10), seed=seed, dtype="float64")
        optimizer = Optimizer(model.params, SGD(), 0.2)
        order = np.argsort(data.y_train, kind="stable") if by_class else np.arange(1280)
        mine = order[shard(1280, comm.rank, comm.size)]
        deal = Batches(data.x_train[mine], data.y_train[mine], 16, seed=seed)
        batches = [batch for epoch in range(epochs) for batch in deal.epoch(epoch)]
        train(comm, model, loss, optimizer, batches, every)
        return evaluate(Serial(model, loss, optimizer), data.x_test, data.y_test)

    world = SimWorld(ranks)
    accuracy = world.run(on_rank)[0]
    given = sum(span.nbytes for span in world.trace.select(rank=0, lane="comm"))
    return given * 2 * (ranks - 1) / ranks / 1e6, 100 * accuracy  # what a ring sends
