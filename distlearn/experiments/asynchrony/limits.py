r"""The learning rate at which asynchronous training diverges, by the number of workers.

Theory, on a quadratic of curvature h and with every gradient exactly tau versions old: w(t+1) = w(t) - lr h w(t - tau)
is stable as long as

.. math:: \eta h < 2 \sin \frac{\pi}{2 (2 \tau + 1)},

which is 2 for fresh gradients and falls like :math:`\pi / (2 \tau + 1)`: about 1 / staleness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...comm.protocol import ignore_report
from ...parallel.asynchronous.param_server import asp, constant, inverse
from .task import Task, run_policy, scenario_speeds


def theory(staleness) -> np.ndarray:
    r"""Return the factor by which staleness lowers the largest stable learning rate: :math:`\sin(\pi / (4 \tau + 2))`.

    Parameters
    ----------
    staleness : number or array
        tau, the same for all gradients.

    References
    ----------
    S. A. Levin, R. M. May (1976), A note on difference-delay equations, Theoretical Population Biology 9(2), for the
    linear equation with one delay.

    Examples
    --------
    >>> float(theory(0)), round(float(theory(1)), 9)
    (1.0, 0.5)
    """
    return np.sin(np.pi / (4 * np.asarray(staleness, float) + 2))


@dataclass
class Limits:
    """The largest learning rates at which training is stable.

    Attributes
    ----------
    workers : list of int
    lr : dict of str to (n workers, n seeds) array
        By name of the rate: the largest stable one, to the precision of the bisection.
    """

    workers: list[int]
    lr: dict[str, np.ndarray]

    def expected(self, workers) -> np.ndarray:
        """Return limits by `theory`, scaled to the median of the first number of workers: staleness is workers - 1."""
        first = float(np.median(next(iter(self.lr.values()))[0]))
        return first * theory(np.asarray(workers, float) - 1) / theory(self.workers[0] - 1)

    def slope(self, name: str) -> float:
        """Return the exponent of a power law through the medians: lr* ~ workers ** slope, from 4 workers on."""
        many = np.array(self.workers) >= 4
        if many.sum() < 2:
            raise ValueError(f"Limits.slope: workers are {self.workers}, expected two numbers of 4 or more")
        median = np.median(self.lr[name], axis=1)
        return float(np.polyfit(np.log(np.array(self.workers)[many]), np.log(median[many]), 1)[0])


def trains(task: Task, lr: float, speeds, *, seed: int, gradients: int, rate) -> bool:
    """Say whether asynchronous training at `lr` is stable: the loss never rises above its start, and is halved."""
    steps = max(1, gradients // speeds.workers)
    run = run_policy(task.but(lr=lr), asp(), speeds, steps=steps, seed=seed, rate=rate, points=16)
    loss = run.curve["loss"]
    return not run.diverged and bool((loss <= loss[0]).all()) and bool(np.median(loss[-3:]) < 0.5 * loss[0])


def lr_limits(
    task: Task,
    *,
    workers=(1, 2, 4, 8, 16, 32),
    seeds=3,
    gradients=960,
    low=0.005,
    high=20.0,
    factor=1.15,
    rates=None,
    report=None,
) -> Limits:
    """Find by bisection the largest learning rate at which ASP is stable: see `trains`.

    Parameters
    ----------
    task : Task
    workers : sequence of int
    seeds : int
    gradients : int
        Of each run, in all.
    low, high : float
        A learning rate at which training is stable, and one at which it is not.
    factor : float
        Stop when the two are that close.
    rates : dict of str to Rate, optional
        By default none, and `inverse`.
    report : callable, optional
        Gets `report(searches done, searches in all, workers=)`.

    Returns
    -------
    limits : Limits
    """
    report = report or ignore_report
    rates = rates or {"lr": constant, "lr / staleness": inverse}
    found = {name: np.zeros((len(workers), seeds)) for name in rates}
    done, total = 0, len(rates) * len(workers) * seeds
    for i, n in enumerate(workers):
        for seed in range(seeds):
            speeds = scenario_speeds("even", n, seed)
            for name, rate in rates.items():
                options = {"seed": seed, "gradients": gradients, "rate": rate}
                found[name][i, seed] = _bisect(lambda lr: trains(task, lr, speeds, **options), low, high, factor)  # noqa: B023
                done += 1
                report(done, total, workers=n)
    return Limits(list(workers), found)


def _bisect(good, low: float, high: float, factor: float) -> float:
    """Bisect an interval whose lower end is stable; return its lower end."""
    while high / low > factor:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if good(middle) else (low, middle)
    return low
