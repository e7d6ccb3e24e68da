"""Update rules side by side: on a ravine, in their first steps, and on a task, each at its own best learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ...comm.protocol import ignore_report
from ...train.fit import DivergedError
from .task import TargetTask, steps_to_target, tune


@dataclass(frozen=True)
class FunctionRule:
    """A rule made of one function and the number of arrays that it remembers."""

    function: object
    memory: int

    def init(self, data):
        """Return None, an array of zeros, or a tuple of them."""
        arrays = tuple(np.zeros_like(data) for _ in range(self.memory))
        return arrays if self.memory > 1 else arrays[0] if arrays else None

    def update(self, data, grad, state, lr, step):
        """Call the function."""
        self.function(data, grad, state, lr, step)


def make_rule(function, memory: int = 0) -> FunctionRule:
    """Make a rule for `Optimizer` of a function with the signature of `Rule.update`.

    Parameters
    ----------
    function : callable
        function(data, grad, state, lr, step), which changes `data` and `state` in place.
    memory : int
        Arrays in the state, zeros at first: none (the state is None), one, or several (a tuple).

    Examples
    --------
    >>> make_rule(print, 2).init(np.zeros(1))
    (array([0.]), array([0.]))
    """
    return FunctionRule(function, memory)


def descend(rule, lr: float, *, steps: int = 60, curvatures=(1.0, 20.0), start=(-1.0, 0.4), angle=0.0) -> np.ndarray:
    """Walk down a ravine, the loss half the sum of curvature times weight squared; return all positions.

    Parameters
    ----------
    rule : Rule
    lr : float
    steps : int
    curvatures, start : pair of float
    angle : float
        By which the ravine is turned against the axes [degrees]; the start is turned with it.

    Returns
    -------
    path : (steps + 1, 2) array
        In the ravine's own directions.

    Raises
    ------
    DivergedError
        At the first loss that is 100 times the first one.
    """
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    turn, h = np.array([[c, -s], [s, c]]), np.array(curvatures, float)
    w = turn @ np.array(start, float)
    path, state = [np.array(start, float)], rule.init(w)
    limit = 50 * float(h @ path[0] ** 2)
    for step in range(steps):
        rule.update(w, turn @ (h * path[-1]), state, lr, step)
        path.append(turn.T @ w)
        loss = float(h @ path[-1] ** 2) / 2
        if not loss < limit:
            told = f"the loss became {loss:.3g} at step {step + 1}: training diverged with a rate of {lr:g}"
            raise DivergedError(told)
    return np.array(path)


def ravine_steps(rule, *, angle: float = 0.0, share: float = 1e-3) -> int:
    """Return the fewest steps until the loss in a ravine stays below a share of the first, over many rates."""
    best, h = 300, np.array([1.0, 20.0])
    for lr in np.geomspace(1e-3, 4, 70):
        try:
            losses = descend(rule, float(lr), steps=best, angle=angle) ** 2 @ h
        except DivergedError:
            continue
        above = np.flatnonzero(losses > share * losses[0])
        best = min(best, int(above[-1]) + 1)
    return best


def first_steps(rule, steps: int = 100, *, n: int = 2000, seed: int = 0) -> np.ndarray:
    """Return the length of each step in units of the learning rate, for gradients that are pure noise plus a drift.

    Each of n weights has gradients drawn from a normal distribution of mean 1 and deviation 1; the length is the root
    of the mean square over the weights.
    """
    rng, w = np.random.default_rng(seed), np.zeros(n)
    state, lengths = rule.init(w), []
    for step in range(steps):
        before = w.copy()
        rule.update(w, rng.normal(1.0, 1.0, n), state, 1.0, step)
        lengths.append(float(np.sqrt(np.mean((w - before) ** 2))))
    return np.array(lengths)


class RuleRun(NamedTuple):
    """What `compare_rules` found about one rule.

    Attributes
    ----------
    scores : dict of float to float
        Mean steps to the target by learning rate; infinite where a seed did not reach it.
    losses : (seeds, steps) array
        Smoothed training loss of the seeds with the best learning rate.
    arrays : int
        That the rule remembers, each as large as the weights.
    """

    scores: dict[float, float]
    losses: np.ndarray
    arrays: int

    @property
    def lr(self) -> float:
        """The best learning rate."""
        return min(self.scores, key=self.scores.get)

    @property
    def steps(self) -> float:
        """Steps to the target with it, the mean over the seeds."""
        return self.scores[self.lr]


def compare_rules(
    task: TargetTask, rules, starts, *, batch: int = 32, seeds: int = 3, most: int = 400, report=ignore_report
) -> dict:
    """Tune the learning rate of every rule by itself, then record its loss; return a `RuleRun` by name.

    Parameters
    ----------
    task : TargetTask
    rules : dict of str to Rule
    starts : dict of str to float
        Where the search for each rule's learning rate starts.
    batch : int
    seeds : int
        How many.
    most : int
        Steps after which a run is lost.
    report : callable
        Gets `report(rules done, rules in all, rule=)`.
    """
    runs = {}
    for name, rule in rules.items():

        def score(lr, limit, rule=rule):
            most_now = min(most, 2 * limit)
            return float(np.mean([steps_to_target(task, batch, lr, rule, seed=s, most=most_now) for s in range(seeds)]))

        scores = tune(score, starts[name], most)
        best = min(scores, key=scores.get)
        if not math.isfinite(scores[best]):
            raise ValueError(f"compare_rules: {name} does not reach a loss of {task.target} in {most} steps")
        losses = [_losses(task, rule, best, batch, seed, steps=120) for seed in range(seeds)]
        runs[name] = RuleRun(scores, np.array(losses), getattr(rule, "memory", 0))
        report(len(runs), len(rules), rule=name)
    return runs


def _losses(task, rule, lr, batch, seed, steps) -> list[float]:
    """The loss of every step, averaged over the last ones."""
    trainer, rng, smooth, losses = task.trainer(rule, lr, seed), np.random.default_rng(seed), None, []
    with threadpool_limits(1):
        for _ in range(steps):
            loss = trainer.step(task.draw(batch, rng))
            smooth = loss if smooth is None else 0.85 * smooth + 0.15 * loss
            losses.append(smooth)
    return losses
