"""Policies compared on the same gradients, samples and speeds: waiting, staleness and the resulting loss."""

from __future__ import annotations

from ...comm.protocol import ignore_report
from ...parallel import EASGD, Hogwild
from ...parallel.asynchronous.param_server import (
    Run,
    asp,
    backup,
    bsp,
    ssp,
)
from .task import Task, run_other, run_policy, scenario_speeds

POLICIES = (bsp(), backup(0.9), ssp(0), ssp(1), ssp(4), ssp(16), asp())
"""What `compare_policies` compares."""

ON_FOUR = (bsp(), backup(0.75), ssp(1), ssp(4), asp())
"""For four real workers, one of them a backup."""


def compare_policies(
    task: Task, *, workers=16, scenario="straggler", seeds=5, steps=60, policies=POLICIES, report=None, **options
) -> dict[str, list[Run]]:
    """Train with every policy, with several seeds.

    Parameters
    ----------
    task : Task
    workers : int
    scenario : str
        One of `SCENARIOS`.
    seeds : int
        How many; a seed determines weights, samples and speeds, the same for all policies.
    steps : int
        Gradients of each worker, on average.
    policies : sequence of Policy
    report : callable, optional
        Gets `report(run, runs, policy=)` after each run; `distlearn.world.progress.Bar()` shows a bar.
    **options
        For `run_policy`.

    Returns
    -------
    runs : dict of str to list of Run
        By name of the policy; one run for each seed.
    """
    report = report or ignore_report
    runs: dict[str, list[Run]] = {str(policy): [] for policy in policies}
    for seed in range(seeds):
        speeds = scenario_speeds(scenario, workers, seed)
        for policy in policies:
            runs[str(policy)].append(run_policy(task, policy, speeds, steps=steps, seed=seed, **options))
            report(sum(map(len, runs.values())), seeds * len(policies), policy=str(policy))
    return runs


def alternatives(
    task: Task, *, workers=8, scenario="straggler", seeds=5, steps=60, period=4, report=None
) -> dict[str, list[Run]]:
    """Train with a parameter server (BSP and ASP), with elastic averaging and with Hogwild: the same axes for all.

    Elastic averaging and Hogwild are simulated, too; Hogwild's writes then come in the order of virtual time, without
    the races of real memory. The centre of EASGD averages its n workers where a server sums their gradients, so the
    workers' steps are n times as long.

    Parameters
    ----------
    task : Task
    workers : int
    scenario : str
    seeds : int
    steps : int
        Gradients of each worker, on average.
    period : int
        Steps between a worker's exchanges with EASGD's centre.
    report : callable, optional

    Returns
    -------
    runs : dict of str to list of Run
        As `compare_policies`; EASGD's updates are those of its centre.
    """
    report = report or ignore_report
    methods = {"BSP": bsp(), "ASP": asp(), f"EASGD({period})": EASGD, "Hogwild": Hogwild}
    runs: dict[str, list[Run]] = {name: [] for name in methods}
    for seed in range(seeds):
        speeds = scenario_speeds(scenario, workers, seed)
        for name, method in methods.items():
            if method in (EASGD, Hogwild):
                run = run_other(task, method, speeds, steps=steps, period=period, seed=seed)
            else:
                run = run_policy(task, method, speeds, steps=steps, seed=seed)
            runs[name].append(run)
            report(sum(map(len, runs.values())), seeds * len(methods), method=name)
    return runs
