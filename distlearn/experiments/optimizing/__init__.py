"""What update rules and batch sizes buy: steps and samples to a target loss, each at its own best learning rate."""

from .batch_size import Hyperbola, Sweep, fit_hyperbola, noise_run, step_seconds, sweep_batches
from .judge import eps_under_root, judge_rule
from .rules import RuleRun, compare_rules, descend, first_steps, make_rule, ravine_steps
from .task import TargetTask, steps_to_target, target_task, tune

__all__ = [
    "Hyperbola",
    "RuleRun",
    "Sweep",
    "TargetTask",
    "compare_rules",
    "descend",
    "eps_under_root",
    "first_steps",
    "fit_hyperbola",
    "judge_rule",
    "make_rule",
    "noise_run",
    "ravine_steps",
    "step_seconds",
    "steps_to_target",
    "sweep_batches",
    "target_task",
    "tune",
]
