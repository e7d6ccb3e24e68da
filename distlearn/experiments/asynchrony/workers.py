"""Growing numbers of workers: gradients per second of each policy, and the time until it reaches a loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...comm.protocol import ignore_report
from ...parallel.asynchronous.param_server import simulate
from .compare import FEW
from .task import SCENARIOS, Task, run_policy, scenario_speeds


@dataclass
class Throughputs:
    """Results of the event simulation by policy, scenario and number of workers.

    Attributes
    ----------
    workers : list of int
    scenarios, policies : list of str
    gradients : (scenarios, policies, workers, seeds) array
        Applied gradients per second.
    updates : (scenarios, policies, workers, seeds) array
        Updates per second.
    staleness : (scenarios, policies, workers, seeds) array
        Mean of the applied gradients.
    """

    workers: list[int]
    scenarios: list[str]
    policies: list[str]
    gradients: np.ndarray
    updates: np.ndarray
    staleness: np.ndarray


def throughputs(
    *,
    workers=(1, 2, 4, 8, 16, 32, 64),
    scenarios=SCENARIOS,
    policies=FEW,
    steps=100,
    seeds=5,
    report=None,
) -> Throughputs:
    """Simulate every policy in every scenario, without a network and without gradients.

    Parameters
    ----------
    workers : sequence of int
        Up to ten thousand or so.
    scenarios : sequence of str
    policies : sequence of Policy
    steps : int
        Gradients of each worker, on average; a step takes a second.
    seeds : int
    report : callable, optional

    Returns
    -------
    found : Throughputs
    """
    report = report or ignore_report
    shape = (len(scenarios), len(policies), len(workers), seeds)
    gradients, updates, staleness = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for done, (s, p, w, seed) in enumerate(np.ndindex(shape), 1):
        events = simulate(policies[p], scenario_speeds(scenarios[s], workers[w], seed), steps)
        gradients[s, p, w, seed], updates[s, p, w, seed] = events.gradients_per_second, events.throughput
        staleness[s, p, w, seed] = events.staleness[events.version > 0].mean()
        report(done, gradients.size, workers=workers[w])
    return Throughputs(list(workers), list(scenarios), list(map(str, policies)), gradients, updates, staleness)


@dataclass
class TimeToLoss:
    """The training time until the loss reached a target.

    Attributes
    ----------
    loss : float
        The target.
    workers : list of int
    seconds, samples : dict of str to (workers, seeds) array
        By policy: time [s] and samples used until then; NaN if it was not reached.
    """

    loss: float
    workers: list[int]
    seconds: dict[str, np.ndarray]
    samples: dict[str, np.ndarray]


def time_to_loss(
    task: Task,
    *,
    loss=0.6,
    workers=(1, 2, 4, 8, 16, 32, 64),
    scenario="straggler",
    policies=FEW,
    gradients=1600,
    seeds=5,
    report=None,
) -> TimeToLoss:
    """Train with more and more workers until the loss is low enough.

    Parameters
    ----------
    task : Task
    loss : float
        Target, on the curve's training samples.
    workers : sequence of int
    scenario : str
    policies : sequence of Policy
    gradients : int
        Stop after so many in total.
    seeds : int
    report : callable, optional

    Returns
    -------
    found : TimeToLoss
    """
    report = report or ignore_report
    seconds = {str(p): np.full((len(workers), seeds), np.nan) for p in policies}
    samples = {str(p): np.full((len(workers), seeds), np.nan) for p in policies}
    done, total = 0, len(policies) * len(workers) * seeds
    for i, n in enumerate(workers):
        for seed in range(seeds):
            speeds = scenario_speeds(scenario, n, seed)
            for policy in policies:
                run = run_policy(task, policy, speeds, steps=-(-gradients // n), seed=seed, points=60)
                reached = np.flatnonzero(run.curve["loss"] <= loss)
                if len(reached):
                    point = run.curve[reached[0]]
                    seconds[str(policy)][i, seed] = point["time"]
                    used = run.applied["version"] <= point["version"]
                    samples[str(policy)][i, seed] = run.applied["rows"][used].sum()
                done += 1
                report(done, total, workers=n)
    return TimeToLoss(loss, list(workers), seconds, samples)
