"""Experiments: one call, one result, one figure each.

- `asynchrony`: policies of the parameter server against updates and time, limits of the learning rate, real engines
- `scaling`: where scaling stalls, what helps, which layout of ranks is the fastest

::

    from distlearn import experiments, viz

    viz.plot_policies(experiments.compare_policies(experiments.mnist_task(), workers=16, scenario="straggler"))
    viz.plot_stall(experiments.stall_study())
"""

from .asynchrony import (
    POLICIES,
    SCENARIOS,
    Limits,
    Pair,
    Task,
    Throughputs,
    TimeToLoss,
    alternatives,
    calibrate,
    compare_policies,
    digits_task,
    lr_limits,
    mnist_task,
    real_beside_simulated,
    recovered,
    run_policy,
    scenario_speeds,
    theory,
    throughputs,
    time_to_loss,
)
from .scaling import (
    LECTURE,
    Curve,
    Facts,
    Point,
    Step,
    Tested,
    check_plan,
    facts,
    remedies,
    scaling_curve,
    simulate_layout,
    simulate_step,
    stall_study,
    two_networks,
    without_dense,
)

__all__ = [
    "LECTURE",
    "POLICIES",
    "SCENARIOS",
    "Curve",
    "Facts",
    "Limits",
    "Pair",
    "Point",
    "Step",
    "Task",
    "Tested",
    "Throughputs",
    "TimeToLoss",
    "alternatives",
    "calibrate",
    "check_plan",
    "compare_policies",
    "digits_task",
    "facts",
    "lr_limits",
    "mnist_task",
    "real_beside_simulated",
    "recovered",
    "remedies",
    "run_policy",
    "scaling_curve",
    "scenario_speeds",
    "simulate_layout",
    "simulate_step",
    "stall_study",
    "theory",
    "throughputs",
    "time_to_loss",
    "two_networks",
    "without_dense",
]
