"""Loss by learning rate: asynchronous training beside its control, synchronous at the same rate per gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...comm.protocol import ignore_report
from ...optim import Adagrad
from ...parallel.asynchronous.param_server import Policy, Rate, Speeds, asp, bsp, constant, inverse
from .task import Task, run_policy

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


def _final_loss(task: Task, method: Method, seed: int, gradients: int) -> float:
    """Train once; return the loss at the end."""
    start = None
    if method.warm:
        alone = Speeds(1, seed=seed)
        start = run_policy(task, asp(), alone, steps=method.warm, seed=seed, points=0).params
    speeds, steps = Speeds(method.workers, seed=seed), (gradients - method.warm) // method.workers
    options = {"rate": method.rate, "rule": Adagrad() if method.adagrad else None, "start": start, "points": 0}
    run = run_policy(task, method.policy, speeds, steps=steps, seed=seed, **options)
    loss = float(run.applied["loss"][-gradients // 10 :].mean())
    return loss if np.isfinite(loss) and not run.diverged else DIVERGED
