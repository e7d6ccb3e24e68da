"""How often to save: Young's and Daly's intervals, and simulated runs that check them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...nn.layer import check_positive

# -- interval ----------------------------------------------------------------------------------------------------------
# How often to save: Young's and Daly's formulas.
#
# Saving often costs time always, saving rarely costs time when something fails. With checkpoints that take C seconds,
# a restart that takes R, and failures every M seconds on average, there is a best time between two checkpoints:
#
# .. math:: \tau \approx \sqrt{2 C M}


def check_times(what: str, **values) -> None:
    """Raise unless all values are times above 0; `restart` may be 0."""
    for name, value in values.items():
        least = "of 0 s or more" if name == "restart" else "above 0 s"
        if not (value > 0 or (name == "restart" and value == 0)):
            raise ValueError(f"{what}: {name} is {value!r}, expected a time {least}")


def system_mtbf(node_mtbf: float, nodes: int) -> float:
    """Return the mean time between failures of n nodes that fail independently [s].

    Parameters
    ----------
    node_mtbf : float
        Of one node [s].

    Examples
    --------
    >>> round(system_mtbf(5 * 365 * 86400, 1000) / 3600)    # five years a node: a thousand of them fail every 44 hours
    44
    """
    check_times("system_mtbf", node_mtbf=node_mtbf)
    check_positive("system_mtbf", nodes=nodes)
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
    check_times("young_interval", cost=cost, mtbf=mtbf)
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
    check_times("daly_interval", cost=cost, mtbf=mtbf)
    if cost >= 2 * mtbf:
        return mtbf
    x = cost / (2 * mtbf)
    return young_interval(cost, mtbf) * (1 + math.sqrt(x) / 3 + x / 9) - cost


def expected_time(work: float, interval, cost: float, restart: float, mtbf: float):
    r"""Return how long a run takes on average when failures are random [s].

    .. math:: T = M e^{R/M} \left(e^{(\tau + C)/M} - 1\right) \frac{W}{\tau}

    Exact for exponential failures, which can also occur during a checkpoint and during a restart.

    Parameters
    ----------
    work : float
        W: time the run takes without checkpoints and failures [s].
    interval : float or array
        tau: work between two checkpoints [s].
    cost, restart : float
        C and R: how long a checkpoint takes, and how long it takes to resume training after a failure [s].
    mtbf : float
        M: mean time between failures of the whole machine [s].

    References
    ----------
    J. T. Daly (2006), equation 20.
    """
    interval = np.asarray(interval, float)
    shortest = float(interval.min(initial=math.inf))
    check_times("expected_time", work=work, interval=shortest, cost=cost, restart=restart, mtbf=mtbf)
    segment = mtbf * math.exp(restart / mtbf) * np.expm1((interval + cost) / mtbf)
    total = segment * work / interval
    return float(total) if total.ndim == 0 else total


# -- interval study ----------------------------------------------------------------------------------------------------
# Runs with checkpoints and failing nodes, simulated in virtual time, to test the formulas of `interval`.
#
# Nothing here runs concurrently, and random failures decide what comes next, so this is a loop over all runs at once
# rather than an order of tasks for `parallel.play`.


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
    seconds, in which nodes can fail, too, the run continues from there. A node that failed is replaced by a new one.

    Parameters
    ----------
    work, interval, cost, restart : float
        As in `expected_time` [s].
    node_mtbf : float
        Mean time between the failures of one node [s].
    runs : int
        How many.
    shape : float
        Of the Weibull distribution of a node's failures: 1 is exponential, as the formulas assume.
    """
    check_times("simulate_run", work=work, interval=interval, cost=cost, restart=restart, node_mtbf=node_mtbf)
    check_positive("simulate_run", nodes=nodes, runs=runs)
    if not shape > 0:
        raise ValueError(f"simulate_run: shape is {shape!r}, expected a number above 0")
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
    """

    intervals: np.ndarray
    seconds: np.ndarray
    work: float
    cost: float
    restart: float
    mtbf: float
    nodes: int

    def predict(self, interval):
        return expected_time(self.work, interval, self.cost, self.restart, self.mtbf)

    @property
    def young(self) -> float:
        return young_interval(self.cost, self.mtbf)

    @property
    def daly(self) -> float:
        return daly_interval(self.cost, self.mtbf)

    @property
    def best(self) -> float:
        """The best interval by the simulation [s]: the lowest point of a parabola in log(interval) through the means.

        The means near the minimum are nearly equal, so the smallest one alone would be determined by noise.
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
        Intervals range from Daly's divided by this to Daly's times this.
    points : int
        Number of intervals.

    Returns
    -------
    study : IntervalStudy
        Of intervals shorter than the work.
    """
    mtbf = system_mtbf(node_mtbf, nodes)
    intervals = daly_interval(cost, mtbf) * np.geomspace(1 / span, span, points)
    if not work > intervals[0]:
        raise ValueError(f"study_intervals: work is {work!r} s, less than the shortest interval, {intervals[0]:.3g} s")
    intervals = intervals[intervals < work]
    options = {"nodes": nodes, "runs": runs, "shape": shape}
    seconds = np.array(
        [
            simulate_run(work, float(t), cost, restart, node_mtbf, seed=seed * 1000 + i, **options)
            for i, t in enumerate(intervals)
        ]
    )
    return IntervalStudy(intervals, seconds, work, cost, restart, mtbf, nodes)
