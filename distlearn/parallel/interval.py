r"""How often to save: Young's and Daly's formulas, and a simulation to hold against them.

Saving often costs time always, saving rarely costs time when something fails. With checkpoints that take C seconds, a
restart that takes R, and failures every M seconds on average, there is a best time between two checkpoints:

.. math:: \tau \approx \sqrt{2 C M}
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


def _check(**values) -> None:
    """Raise unless all values are above 0."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name} is {value!r}, expected a time above 0 s")


def system_mtbf(node_mtbf: float, nodes: int) -> float:
    """Return the mean time between failures of n nodes, of which each fails on its own [s].

    Parameters
    ----------
    node_mtbf : float
        Of one node [s].
    nodes : int

    Examples
    --------
    >>> round(system_mtbf(5 * 365 * 86400, 1000) / 3600)    # five years a node: a thousand of them fail every 44 hours
    44
    """
    _check(node_mtbf=node_mtbf, nodes=nodes)
    return node_mtbf / nodes


def young_interval(cost: float, mtbf: float) -> float:
    r"""Return the best time of work between two checkpoints, to first order [s].

    .. math:: \tau = \sqrt{2 C M}

    Parameters
    ----------
    cost : float
        C: how long a checkpoint takes [s].
    mtbf : float
        M: mean time between failures of the whole machine [s].

    References
    ----------
    J. W. Young (1974), A first order approximation to the optimum checkpoint interval, CACM 17(9).

    Examples
    --------
    >>> young_interval(cost=18.0, mtbf=10_000.0)
    600.0
    """
    _check(cost=cost, mtbf=mtbf)
    return math.sqrt(2 * cost * mtbf)


def daly_interval(cost: float, mtbf: float) -> float:
    r"""Return the best time of work between two checkpoints, to higher order [s].

    .. math:: \tau = \sqrt{2 C M} \left[1 + \frac13 \sqrt{\frac{C}{2M}} + \frac19 \frac{C}{2M}\right] - C
              \quad (C < 2M), \qquad \tau = M \quad \text{otherwise}

    Parameters
    ----------
    cost : float
        C: how long a checkpoint takes [s].
    mtbf : float
        M: mean time between failures of the whole machine [s].

    References
    ----------
    J. T. Daly (2006), A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
    Computer Systems 22(3), equation 37.
    """
    _check(cost=cost, mtbf=mtbf)
    if cost >= 2 * mtbf:
        return mtbf
    x = cost / (2 * mtbf)
    return young_interval(cost, mtbf) * (1 + math.sqrt(x) / 3 + x / 9) - cost


def expected_time(work: float, interval, cost: float, restart: float, mtbf: float):
    r"""Return how long a run takes on average when failures come at random [s].

    .. math:: T = M e^{R/M} \left(e^{(\tau + C)/M} - 1\right) \frac{W}{\tau}

    Exact for exponential failures, which can also strike during a checkpoint and during a restart.

    Parameters
    ----------
    work : float
        W: time the run takes without checkpoints and failures [s].
    interval : float or array
        tau: work between two checkpoints [s].
    cost, restart : float
        C and R: how long a checkpoint takes, and how long it takes to be training again after a failure [s].
    mtbf : float
        M: mean time between failures of the whole machine [s].

    References
    ----------
    J. T. Daly (2006), equation 20.
    """
    _check(work=work, cost=cost, mtbf=mtbf)
    interval = np.asarray(interval, float)
    segment = mtbf * math.exp(restart / mtbf) * np.expm1((interval + cost) / mtbf)
    total = segment * work / interval
    return float(total) if total.ndim == 0 else total


def simulate_run(
    work: float,
    interval: float,
    cost: float,
    restart: float,
    node_mtbf: float,
    *,
    nodes: int = 1,
    runs: int = 100,
    seed: int = 0,
    shape: float = 1.0,
) -> np.ndarray:
    """Simulate runs with checkpoints and failing nodes, in virtual time; return how long each took [s].

    Every node has its own failures; when one fails, the work since the last checkpoint is lost, and after `restart`
    seconds, in which nodes can fail, too, the run goes on from there. A node that failed is replaced by a new one.

    Parameters
    ----------
    work, interval, cost, restart : float
        As in `expected_time` [s].
    node_mtbf : float
        Mean time between the failures of one node [s].
    nodes : int
    runs : int
        How many.
    seed : int
    shape : float
        Of the Weibull distribution of a node's failures: 1 is exponential, as the formulas assume.

    Returns
    -------
    seconds : (runs,) array
    """
    _check(work=work, interval=interval, cost=cost, node_mtbf=node_mtbf, nodes=nodes, shape=shape)
    rng = np.random.default_rng(seed)
    scale = node_mtbf / math.gamma(1 + 1 / shape)
    now, done = np.zeros(runs), np.zeros(runs)
    fails = scale * rng.weibull(shape, (runs, nodes))  # when each node fails next
    down = np.zeros(runs, bool)
    while (left := np.flatnonzero(done < work - 1e-9 * work)).size:
        step = np.minimum(interval, work - done[left])
        task = np.where(down[left], restart, step + cost)
        victim = fails[left].argmin(axis=1)
        first = fails[left, victim]
        good = first > now[left] + task
        now[left] = np.where(good, now[left] + task, first)
        done[left] += np.where(good & ~down[left], step, 0.0)
        down[left] = ~good
        hit = left[~good]
        fails[hit, victim[~good]] = now[hit] + scale * rng.weibull(shape, hit.size)
    return now


@dataclass
class IntervalStudy:
    """Predicted against simulated run times, for many checkpoint intervals.

    Attributes
    ----------
    intervals : (k,) array
        Work between two checkpoints [s].
    seconds : (k, runs) array
        How long the simulated runs took [s].
    work, cost, restart, mtbf : float
        What was simulated [s]; `mtbf` is that of the whole machine.
    nodes : int
    """

    intervals: np.ndarray
    seconds: np.ndarray
    work: float
    cost: float
    restart: float
    mtbf: float
    nodes: int

    def predict(self, interval):
        """Return the time of a run by Daly's formula [s], for any interval."""
        return expected_time(self.work, interval, self.cost, self.restart, self.mtbf)

    @property
    def young(self) -> float:
        """Young's best interval [s]."""
        return young_interval(self.cost, self.mtbf)

    @property
    def daly(self) -> float:
        """Daly's best interval [s]."""
        return daly_interval(self.cost, self.mtbf)

    @property
    def best(self) -> float:
        """The best interval by the simulation [s]: the lowest point of a parabola in log(interval) through the means.

        The means near the minimum are nearly equal, so the smallest one alone would be a matter of luck.
        """
        mean = self.seconds.mean(axis=1)
        x = np.log(self.intervals)
        near = mean <= 1.15 * mean.min()
        if near.sum() < 4:
            return float(self.intervals[mean.argmin()])
        a, b, _ = np.polyfit(x[near], mean[near], 2)
        return float(np.exp(np.clip(-b / (2 * a), x[near].min(), x[near].max())))


def study_intervals(
    work: float,
    cost: float,
    restart: float,
    node_mtbf: float,
    *,
    nodes: int = 1,
    runs: int = 200,
    seed: int = 0,
    shape: float = 1.0,
    span: float = 16.0,
    points: int = 17,
) -> IntervalStudy:
    """Simulate a long run for checkpoint intervals around Daly's: does the prediction hold?

    Parameters
    ----------
    work, cost, restart, node_mtbf, nodes, runs, seed, shape
        As in `simulate_run`.
    span : float
        From Daly's interval divided by this to Daly's times this.
    points : int
        Number of intervals.

    Returns
    -------
    study : IntervalStudy
        For `distlearn.viz.plot_checkpoint_intervals`.
    """
    mtbf = system_mtbf(node_mtbf, nodes)
    intervals = daly_interval(cost, mtbf) * np.geomspace(1 / span, span, points)
    intervals = intervals[intervals < work]
    options = {"nodes": nodes, "runs": runs, "shape": shape}
    seconds = np.array(
        [
            simulate_run(work, float(t), cost, restart, node_mtbf, seed=seed * 1000 + i, **options)
            for i, t in enumerate(intervals)
        ]
    )
    return IntervalStudy(intervals, seconds, work, cost, restart, mtbf, nodes)
