"""Asynchronous training beside its control, synchronous at the same rate per gradient: by rate, and to the floor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...comm.protocol import ignore_report
from ...optim import Adagrad
from ...parallel.asynchronous.param_server import Policy, Rate, Run, Speeds, asp, bsp, constant, inverse
from .task import Task, run_policy

WINDOW = 10
"""Points of a curve over which `error_floor` takes a mean."""
DIVERGED = 10.0
"""The loss that is noted for a run whose loss was no longer finite."""


@dataclass(frozen=True)
class Method:
    """How gradients are computed and applied.

    Parameters
    ----------
    workers : int
    policy : Policy
    rate : Rate
        Factor on the learning rate by staleness.
    adagrad : bool
        Let the server divide every parameter's step by the root of its squared gradients so far, instead of plain SGD.
    warm : int
        Gradients that one worker computes alone before the others join.
    """

    workers: int
    policy: Policy
    rate: Rate = constant
    adagrad: bool = False
    warm: int = 0


def methods(workers: int = 16) -> dict[str, Method]:
    """Return one worker, many workers synchronously and asynchronously, and three remedies against staleness.

    References
    ----------
    J. Dean et al. (2012), Large scale distributed deep networks, NeurIPS, section 4.1: Adagrad and the warm start.
    W. Zhang, S. Gupta, X. Lian, J. Liu (2016), Staleness-aware async-SGD for distributed deep learning, IJCAI: the rate
    divided by the staleness.
    """
    return {
        "1 worker": Method(1, asp()),
        f"{workers} synchronous": Method(workers, bsp()),
        f"{workers} asynchronous": Method(workers, asp()),
        "rate / staleness": Method(workers, asp(), inverse),
        "warm start": Method(workers, asp(), warm=100),
        "Adagrad": Method(workers, asp(), adagrad=True),
    }


def loss_by_rate(
    task: Task, rates, *, which: dict[str, Method] | None = None, seeds=3, gradients=800, report=None
) -> dict[str, np.ndarray]:
    """Train every method at every learning rate per gradient.

    An update that is the mean of k gradients gets k times the rate. So "synchronous" is the control of "asynchronous":
    the same number of gradients, each with the same weight, and none of them stale.

    Parameters
    ----------
    task : Task
    rates : sequence of float
    which : dict of str to Method, optional
        `methods()` by default.
    seeds : int
        How many; a seed determines weights, samples and speeds.
    gradients : int
        In all, a warm start's included.
    report : callable, optional
        Gets `report(runs done, runs in all, method=)`.

    Returns
    -------
    losses : dict of str to (rates, seeds) array
        Mean loss of the last tenth of the gradients, at the parameters that they were computed at.
    """
    report, which = report or ignore_report, methods() if which is None else which
    found, done = {name: np.zeros((len(rates), seeds)) for name in which}, 0
    for seed in range(seeds):
        for name, method in which.items():
            for i, lr in enumerate(rates):
                found[name][i, seed] = _final_loss(task.but(lr=lr), method, seed, gradients)
                done += 1
                report(done, len(which) * seeds * len(rates), method=name)
    return found


def runs_to_floor(
    task: Task, rates: dict[str, float], *, which: dict[str, Method] | None = None, seeds=3, gradients=8000, report=None
) -> dict[str, list[Run]]:
    """Train every method at a learning rate of its own for so long that its test error no longer falls.

    Parameters
    ----------
    task : Task
    rates : dict of str to float
        Learning rate of one gradient, by method.
    which : dict of str to Method, optional
        `methods()` by default.
    seeds : int
    gradients : int
        In all. Whether they were enough, `error_floor` says.
    report : callable, optional
        Gets `report(runs done, runs in all, method=)`.

    Returns
    -------
    runs : dict of str to list of Run
        With some 40 points on each curve. A warm start's curve begins when the other workers join.
    """
    report, which, runs = report or ignore_report, methods() if which is None else which, {}
    for name, lr in rates.items():
        runs[name] = []
        for seed in range(seeds):
            runs[name].append(_train(task.but(lr=lr), which[name], seed, gradients, points=40))
            report(sum(map(len, runs.values())), len(rates) * seeds, method=name)
    return runs


def error_floor(errors, *, window: int = WINDOW, tolerance: float = 0.01) -> tuple[float, int] | None:
    """Return a curve's error floor and the point from which on it is reached; None if the error still falls.

    The curve is at its floor if the mean error of its last `window` points is less than `tolerance` below that of the
    `window` points before them. The floor is the mean of the last ones, and reached at the first point whose error is
    at most `tolerance` above it.

    Parameters
    ----------
    errors : (points,) array
        Equally far apart in gradients; at least twice `window`.
    window : int
    tolerance : float
        An error, as a share: 0.01 are three or four of the digits' 360 test images.

    Returns
    -------
    floor : float
    reached : int
        Index into `errors`.

    Examples
    --------
    >>> error_floor([0.9, 0.3, 0.05, 0.04, 0.05, 0.04], window=2)
    (0.045, 2)
    >>> error_floor([0.9, 0.5, 0.3, 0.2, 0.15, 0.12], window=2) is None
    True

    References
    ----------
    S. Dutta, G. Joshi, S. Ghosh, P. Dube, P. Nagpurkar (2018), Slow and stale gradients can win the race, AISTATS.
    """
    errors = np.asarray(errors, dtype=float)
    if len(errors) < 2 * window:
        raise ValueError(f"error_floor: {len(errors)} points, expected {2 * window} or more, twice the window")
    floor, before = errors[-window:].mean(), errors[-2 * window : -window].mean()
    if before - floor >= tolerance:
        return None
    return float(floor), int(np.argmax(errors <= floor + tolerance))


def floors(runs: dict[str, list[Run]]) -> list[dict]:
    """Return the error floor of every method, and when it is reached.

    Parameters
    ----------
    runs : dict of str to list of Run
        What `runs_to_floor` returns.

    Returns
    -------
    rows : list of dict
        "method"; its "floor [%]" (mean over the seeds), the "lowest" and the "highest"; "at it", the number of seeds
        that are at their floor by the rule of `error_floor`; and the mean "time to it [s]" of these, None if there are
        none. The error of the others still falls: their floor is the mean of the last points.
    """
    rows = []
    for name, several in runs.items():
        errors = [1 - run.curve["test_accuracy"] for run in several]
        found = [error_floor(e) for e in errors]
        levels = [100 * (e[-WINDOW:].mean() if one is None else one[0]) for e, one in zip(errors, found, strict=True)]
        times = [run.curve["time"][one[1]] for run, one in zip(several, found, strict=True) if one is not None]
        row = {"method": name, "floor [%]": float(np.mean(levels)), "lowest": min(levels), "highest": max(levels)}
        rows.append(row | {"time to it [s]": float(np.mean(times)) if times else None, "at it": len(times)})
    return rows


def _train(task: Task, method: Method, seed: int, gradients: int, points: int) -> Run:
    """Train once; the time of a warm start is in the curve's."""
    start, before = None, 0.0
    if method.warm:
        alone = run_policy(task, asp(), Speeds(1, seed=seed), steps=method.warm, seed=seed, points=0)
        start, before = alone.params, alone.seconds
    speeds, steps = Speeds(method.workers, seed=seed), (gradients - method.warm) // method.workers
    options = {"rate": method.rate, "rule": Adagrad() if method.adagrad else None, "start": start, "points": points}
    run = run_policy(task, method.policy, speeds, steps=steps, seed=seed, **options)
    run.curve["time"] += before
    return run


def _final_loss(task: Task, method: Method, seed: int, gradients: int) -> float:
    """Train once; return the loss at the end."""
    run = _train(task, method, seed, gradients, points=0)
    loss = float(run.applied["loss"][-gradients // 10 :].mean())
    return loss if np.isfinite(loss) and not run.diverged else DIVERGED
