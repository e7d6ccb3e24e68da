"""Experiments on asynchrony: one call, one result, one figure each.

Gradients are really computed, on real images; time is virtual, so that 64 workers train in this process, the same in
every run, while a seed takes a second or so::

    from distlearn import viz
    from distlearn.experiments import compare_policies, mnist_task

    task = mnist_task()                                          # digits if MNIST is not available
    viz.plot_policies(compare_policies(task, workers=16, scenario="straggler", seeds=5))

`real_beside_simulated` runs engines with a straggler, calibrates the simulator from them, and compares.
"""

from .backups import backup_seconds
from .compare import POLICIES, alternatives, compare_policies
from .race import Entry, Mix, Race, hidden_mixes, make_entry, practice_mixes, race
from .rates import Method, error_floor, floors, loss_by_rate, runs_to_floor
from .real import Pair, calibrate, real_beside_simulated
from .servers import (
    active_units,
    check_log,
    judge_server,
    replay,
    run_digits,
    run_digits_synchronous,
    train_digits,
    try_server,
)
from .task import SCENARIOS, Task, digits_task, mnist_task, run_policy, scenario_speeds

__all__ = [
    "POLICIES",
    "SCENARIOS",
    "Entry",
    "Method",
    "Mix",
    "Pair",
    "Race",
    "Task",
    "active_units",
    "alternatives",
    "backup_seconds",
    "calibrate",
    "check_log",
    "compare_policies",
    "digits_task",
    "error_floor",
    "floors",
    "hidden_mixes",
    "judge_server",
    "loss_by_rate",
    "make_entry",
    "mnist_task",
    "practice_mixes",
    "race",
    "real_beside_simulated",
    "replay",
    "run_digits",
    "run_digits_synchronous",
    "run_policy",
    "runs_to_floor",
    "scenario_speeds",
    "train_digits",
    "try_server",
]
