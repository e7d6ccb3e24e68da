"""Ways to train on a slow network, as plain functions that exchange arrays: loss against samples, seconds and bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ...comm import Network
from ...comm.network.formulas import sent_bytes
from ...comm.protocol import RankError
from ...data import load
from ...nn import MLP, SoftmaxCrossEntropy
from ...optim import RULES, Optimizer
from ...sim import Roofline, SimWorld
from ...tables import Table, table
from ...train.fit import DivergedError
from ..flat import flat
from ..optimizing import tune

SAMPLES, EPOCHS, RANKS = 1280, 8, 4
SLOW = Network(1e-3, 12.5e6)
"""A millisecond to a message, and 100 Mb/s."""
PEAK = 1e9
"""How fast a rank computes [flop/s]: the small network's step then takes as long as a large one's on a real card."""


@dataclass(frozen=True)
class Recipe:
    """One way to train on several ranks.

    Parameters
    ----------
    exchange : callable, optional
        `exchange(comm, gradient, error)` returns the sum of the ranks' gradients, a flat array; `error` is an array of
        its shape, zeros at first, that it may keep something in. By default `comm.all_reduce`.
    every : int
        0: exchange gradients in every step. Else: take so many steps alone, then call `outer`.
    outer : callable, optional
        `outer(comm, start, end, velocity)` returns the parameters with which all ranks go on, flat; `start` are those
        with which they began the round, `end` this rank's own, `velocity` is zeros at first. By default the mean.
    batch : int
        Samples of all ranks together.
    rule : str
        Update rule of every rank.
    lr : float
        Its learning rate; where the search for the best one begins.
    scale : float
        Factor on the loss, as in mixed-precision training; gradients are divided by it after the exchange.
    """

    exchange: Callable | None = None
    every: int = 0
    outer: Callable | None = None
    batch: int = 64
    rule: str = "adam"
    lr: float = 0.01
    scale: float = 1.0

    def but(self, **changes) -> Recipe:
        """Return the same recipe with some fields changed."""
        return replace(self, **changes)


class Run(NamedTuple):
    """What a run gave, as seen by rank 0."""

    samples: np.ndarray
    """Drawn so far by all ranks, at each look."""
    seconds: np.ndarray
    losses: np.ndarray
    """On all training samples, of the parameters that all ranks share."""
    accuracy: float
    """On the test set [%]."""
    megabytes: float
    """Sent by rank 0."""

    def seconds_to(self, target: float) -> float:
        """Return the seconds after which the loss is first at most `target`; infinite if it never is."""
        there = np.flatnonzero(self.losses <= target)
        return float(self.seconds[there[0]]) if len(there) else math.inf


def mean_of_ranks(comm, start, end, velocity):
    """Go on with the mean of the ranks' parameters: local SGD."""
    return comm.all_reduce(end.copy()) / comm.size


def train_with(comm, recipe: Recipe, seed: int = 0, samples: int = SAMPLES * EPOCHS, looks: int = 40):
    """Train a small network on digits by a recipe, on any communicator.

    Returns
    -------
    rows : (looks, 3) array
        Samples, seconds and loss.
    accuracy : float
    """
    data = load("digits")
    x, y = data.x_train[:SAMPLES], data.y_train[:SAMPLES]
    model, loss = MLP((x.shape[1], 128, 64, 10), seed=seed), SoftmaxCrossEntropy()
    params = model.params
    optimizer = Optimizer(params, RULES[recipe.rule](), recipe.lr)
    rng, rows, looked = np.random.default_rng(seed + 100), [], 0.0
    error, velocity = np.zeros_like(flat(params)), np.zeros_like(flat(params))
    start, steps = flat(params), samples // recipe.batch
    alone, pause = recipe.every > 0, max(recipe.every, steps // looks, 1)
    comm.barrier()
    with threadpool_limits(1), np.errstate(all="ignore"):
        for step in range(1, steps + 1):
            drawn = rng.integers(SAMPLES, size=recipe.batch)  # the same numbers on every rank
            mine = drawn[comm.rank :: comm.size]
            optimizer.zero_grad()
            logits, saved = model.forward(x[mine], clock=comm.clock)
            dy = loss(logits, y[mine], len(mine) if alone else recipe.batch)[1]
            model.backward(dy * np.float32(recipe.scale), saved, clock=comm.clock)
            if not alone:
                gradient = flat(params, "grad")
                exchange = recipe.exchange or (lambda comm, g, error: comm.all_reduce(g))
                _write(params, exchange(comm, gradient, error) / recipe.scale, "grad")
            optimizer.step()
            if alone and (step % recipe.every == 0 or step == steps):
                start = (recipe.outer or mean_of_ranks)(comm, start, flat(params), velocity)
                _write(params, start)
            if step == steps or (step % pause == 0 and (not alone or step % recipe.every == 0)):
                began = comm.clock.now()
                value = loss(model.forward(x)[0], y, SAMPLES)[0]
                rows.append((step * recipe.batch, began - looked, value))
                if not math.isfinite(value):
                    raise DivergedError(f"the loss is {value} after {step} of {steps} steps")
                looked += comm.clock.now() - began  # the time of looking does not count
    accuracy = 100 * float((model.forward(data.x_test)[0].argmax(axis=1) == data.y_test).mean())
    return np.array(rows), accuracy


def run_recipe(recipe: Recipe, seed: int = 0, *, world=None, network: Network = SLOW, **options) -> Run:
    """Run a recipe on a world of four ranks, by default simulated behind a slow network.

    Parameters
    ----------
    recipe : Recipe
    seed : int
        Of the weights and of the samples drawn.
    world : World, optional
    network : Network
        Of the simulated world.
    **options
        Of `train_with`: samples, looks.

    Raises
    ------
    DivergedError
        If the loss is no longer finite.
    """
    if world is None:
        world = SimWorld(RANKS, network, Roofline(PEAK), collectives="formula")
    try:
        rows, accuracy = world.run(train_with, recipe, seed, **options)[0]
    except RankError as error:
        if isinstance(error.original, DivergedError):
            raise error.original from None
        raise
    spans = world.trace.select(rank=0, lane="comm")
    sent = sum(sent_bytes(s.name, s.nbytes, world.size) for s in spans if s.name in ("all_reduce", "all_gather"))
    return Run(*rows.T, accuracy, sent / 1e6)


def tune_recipe(recipe: Recipe, seed: int = 99, **options) -> Recipe:
    """Return a recipe at its best learning rate: by the loss at the end, in steps of a factor of two.

    Parameters
    ----------
    recipe : Recipe
    seed : int
        Of the runs that are compared; not one of those that are reported.
    **options
        Of `run_recipe`.
    """

    def score(lr, most):
        try:
            return float(run_recipe(recipe.but(lr=lr), seed, **options).losses[-1])
        except DivergedError:
            return math.inf

    scores = tune(score, recipe.lr)
    return recipe.but(lr=min(scores, key=scores.get))


def compare_recipes(recipes: dict, seeds=(0, 1, 2), *, report=None, tuned: bool = True, **options) -> dict:
    """Run several recipes on the same number of samples, each at its own best learning rate, from several seeds.

    Parameters
    ----------
    recipes : dict of str to Recipe
    seeds : sequence of int
    report : callable, optional
        Gets `report(done, total)`.
    tuned : bool
        Whether to search the learning rates first.
    **options
        Of `run_recipe`.

    Returns
    -------
    runs : dict of str to list of Run
    """
    runs = {}
    for i, (name, recipe) in enumerate(recipes.items()):
        best = tune_recipe(recipe, **options) if tuned else recipe
        runs[name] = [run_recipe(best, seed, **options) for seed in seeds]
        if report is not None:
            report(i + 1, len(recipes))
    return runs


def _write(params, flat, what: str = "data") -> None:
    offset = 0
    for p in params:
        getattr(p, what)[...] = flat[offset : offset + p.size].reshape(p.data.shape)
        offset += p.size


def recipe_table(runs: dict, target: float, *, title: str = "") -> Table:
    """Return what `compare_recipes` found as a table, with the seconds to a target loss: medians over the seeds."""
    rows = [
        {
            "": name,
            f"seconds to {target:g}": np.median([run.seconds_to(target) for run in some]),
            "seconds in all": some[0].seconds[-1],
            "MB": some[0].megabytes,
            "final loss": np.median([run.losses[-1] for run in some]),
            "accuracy [%]": np.mean([run.accuracy for run in some]),
        }
        for name, some in runs.items()
    ]
    return table(rows, title=title)


class CodeResult(NamedTuple):
    """What training with one code for the messages gave."""

    kilobytes: float
    """That a rank sends in a step."""
    accuracies: list[float]
    """Of every seed [%]."""
    lr: float


def compare_codes(
    recipes: dict, rates=(0.3, 0.6), seeds=(0, 1, 2), *, tuning: int = 99, report=None, **options
) -> dict:
    """Run recipes whose messages are coded, each at the better of some learning rates, from several seeds.

    Parameters
    ----------
    recipes : dict of (str, bool or None) to Recipe
        By the name of the code, and whether errors are fed back; None where nothing is lost.
    rates : sequence of float
    seeds : sequence of int
    tuning : int
        Seed of the runs by which the rate is chosen.
    report : callable, optional
        Gets `report(done, total)`.
    **options
        Of `run_recipe`.

    Returns
    -------
    results : dict of (str, bool or None) to CodeResult
    """

    def final(recipe):
        try:
            return run_recipe(recipe, tuning, **options).losses[-1]
        except DivergedError:
            return math.inf

    results = {}
    for key, recipe in recipes.items():
        best = min((recipe.but(lr=lr) for lr in rates), key=final)
        runs = [run_recipe(best, seed, **options) for seed in seeds]
        steps = runs[0].samples[-1] / best.batch
        results[key] = CodeResult(1e3 * runs[0].megabytes / steps, [run.accuracy for run in runs], best.lr)
        if report is not None:
            report(len(results), len(recipes))
    return results


def code_table(results: dict, *, title: str = "") -> Table:
    """Return what `compare_codes` found as a table."""
    rows = [
        {
            "code": name,
            "kB per step": result.kilobytes,
            "feedback": {None: "not needed", True: "yes", False: "no"}[fed],
            "rate": result.lr,
            "accuracy [%]": np.mean(result.accuracies),
            "lowest": min(result.accuracies),
            "highest": max(result.accuracies),
        }
        for (name, fed), result in results.items()
    ]
    return table(rows, title=title)


def bytes_sent(exchange, ranks: int, n: int = 4096) -> float:
    """Count the bytes that a rank sends, on average, in one exchange of n values in single precision.

    Parameters
    ----------
    exchange : callable
        That of a `Recipe`.
    ranks, n : int
    """
    world = SimWorld(ranks)
    world.run(lambda comm: exchange(comm, np.ones(n, np.float32), np.zeros(n, np.float32)))
    return world.trace.bytes_sent / ranks
