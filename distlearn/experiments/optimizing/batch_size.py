"""Steps and samples to a target by batch size, the hyperbola they lie on, and the noise scale that predicts it."""

from __future__ import annotations

import math
from time import perf_counter
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ...comm.protocol import ignore_report
from ...data import Batch
from ...optim import SGD, NoiseScale
from ...parallel import DataParallel
from ...shares import shares
from ..flat import flat
from .task import TargetTask, steps_to_target, tune


class Hyperbola(NamedTuple):
    """Steps and samples to a target by batch size B: S = steps (1 + critical / B), E = S B.

    Attributes
    ----------
    steps : float
        The fewest, with a batch of any size.
    samples : float
        The fewest, with batches of one.

    References
    ----------
    S. McCandlish, J. Kaplan, D. Amodei et al. (2018), An empirical model of large-batch training, arXiv:1812.06162,
    equation 2.11: (S / S_min - 1)(E / E_min - 1) = 1.
    """

    steps: float
    samples: float

    @property
    def critical(self) -> float:
        """The critical batch size: twice the fewest steps, and twice the fewest samples."""
        return self.samples / self.steps

    def at(self, batch):
        """Return the steps with a batch size (or an array of them)."""
        return self.steps + self.samples / np.asarray(batch, float)


def fit_hyperbola(batches, steps) -> Hyperbola:
    """Fit S = S_min + E_min / B with the least squared relative error.

    Examples
    --------
    >>> fit = fit_hyperbola([1, 10, 100], [1010, 110, 20])
    >>> round(fit.steps), round(fit.samples)
    (10, 1000)
    """
    batches, steps = np.asarray(batches, float), np.asarray(steps, float)
    if len(batches) < 2 or not (np.isfinite(steps) & (steps > 0) & (batches > 0)).all():
        raise ValueError(f"fit_hyperbola: steps are {steps.tolist()}, expected finite ones of two batch sizes or more")
    columns = np.stack([1 / steps, 1 / (batches * steps)], axis=1)
    return Hyperbola(*np.linalg.lstsq(columns, np.ones(len(steps)), rcond=None)[0].tolist())


class Sweep(NamedTuple):
    """What `sweep_batches` measured.

    Attributes
    ----------
    task : TargetTask
    batches : list of int
    lrs : list of float
        The best learning rate of each batch size.
    runs : (batches, seeds) array
        Steps to the target with it.
    """

    task: TargetTask
    batches: list[int]
    lrs: list[float]
    runs: np.ndarray

    @property
    def steps(self):
        """The mean over the seeds, by batch size."""
        return self.runs.mean(axis=1)


def sweep_batches(
    task: TargetTask, batches, *, lr: float = 0.1, seeds: int = 3, most: float = 3000, report=ignore_report
) -> Sweep:
    """Measure the steps to the target loss for several batch sizes, each with the learning rate that is best for it.

    Parameters
    ----------
    task : TargetTask
    batches : sequence of int
        In increasing order; the search for the learning rate starts where that of the batch before ended.
    lr : float
        Where the search starts, on a grid of powers of two.
    seeds : int
        How many, of weights and samples; a learning rate is judged by the mean over them.
    most : float
        Steps after which a run is lost.
    report : callable
        Gets `report(batch sizes done, in all)`.
    """
    lrs, runs, batches = [], [], list(batches)
    for batch in batches:
        found = {}

        def score(lr, limit, batch=batch, found=found):
            enough = min(most, 2 * limit)
            found[lr] = [steps_to_target(task, batch, lr, seed=seed, most=enough) for seed in range(seeds)]
            return float(np.mean(found[lr]))

        scores = tune(score, lrs[-1] if lrs else lr, most)
        lrs.append(min(scores, key=scores.get))
        runs.append(found[lrs[-1]])
        if not math.isfinite(scores[lrs[-1]]):
            raise ValueError(f"sweep_batches: a batch of {batch} does not reach {task.target} in {most} steps")
        report(len(runs), len(batches))
    return Sweep(task, batches, lrs, np.array(runs, float))


def step_seconds(task: TargetTask, batch: int, rule=None, *, repeat: int = 30) -> float:
    """Measure the time of a training step on one thread, the median of several [s]."""
    trainer, rng, times = task.trainer(SGD() if rule is None else rule, 0.1), np.random.default_rng(0), []
    with threadpool_limits(1):
        for _ in range(repeat):
            start = perf_counter()
            trainer.step(task.draw(batch, rng))
            times.append(perf_counter() - start)
    return float(np.median(times))


def noise_run(comm, task: TargetTask, estimator, *, batch: int = 64, lr: float, steps: int, seed: int = 0):
    """Train data-parallel, and hand the gradients of all ranks to an estimator of the noise in every step.

    Parameters
    ----------
    comm : Communicator
    task : TargetTask
    estimator : callable
        estimator(gradients, b) -> (trace, squared_norm), from an array (ranks, parameters) of the ranks' mean gradients
        over b samples each.
    batch : int
        Of all ranks together; a multiple of their number.
    lr : float
        Of plain SGD.
    steps, seed : int

    Returns
    -------
    estimates : (steps, 2) array
        What the estimator returned; rank 0 alone calls it, the others return no rows.
    noise : NoiseScale
        The library's, from the same steps.
    losses : list of float
    """
    if batch % comm.size:
        raise ValueError(f"noise_run: batch is {batch}, expected a multiple of the {comm.size} ranks")
    serial, noise, rng = task.trainer(SGD(), lr, seed), NoiseScale(), np.random.default_rng(seed)
    strategy = DataParallel(comm, serial.model, serial.loss, serial.optimizer, noise_scale=noise)
    estimates, losses = [], []
    for _ in range(steps):
        whole = task.draw(batch, rng)  # the same on every rank
        mine = shares(batch, comm.size)[comm.rank]
        gradients = comm.all_gather(_gradient(serial, whole.x[mine], whole.y[mine]))
        if comm.rank == 0:
            estimates.append(estimator(gradients, batch // comm.size))
        losses.append(strategy.step(Batch(whole.x[mine], whole.y[mine], batch)))
    return np.array(estimates, float).reshape(-1, 2), noise, losses


def _gradient(trainer, x, y):
    """The mean gradient over some samples, as one vector."""
    trainer.optimizer.zero_grad()
    out, saved = trainer.model.forward(x)
    trainer.model.backward(trainer.loss(out, y)[1], saved)
    return flat(trainer.model.params, "grad")
