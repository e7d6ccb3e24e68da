"""Experiments on asynchrony: one call, one result, one figure each.

Gradients are really computed, on real images; time is virtual, so that 64 workers train in this process, the same in
every run, while a seed takes a second or so::

    from distlearn import viz
    from distlearn.experiments import compare_policies, lr_limits, mnist_task, time_to_loss

    task = mnist_task()                                          # digits if MNIST is not available
    viz.plot_policies(compare_policies(task, workers=16, scenario="straggler", seeds=5))
    viz.plot_time_to_loss(time_to_loss(task, workers=(1, 4, 16, 64)))
    viz.plot_lr_limits(lr_limits(task, workers=(1, 2, 4, 8, 16, 32)))

`throughputs` uses the event simulation, up to ten thousand workers; `real_beside_simulated` runs engines with a
straggler, calibrates the simulator from them, and compares.
"""

from .backups import backup_seconds
from .compare import POLICIES, compare_policies, recovered
from .limits import Limits, lr_limits, theory
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
from .workers import Throughputs, TimeToLoss, throughputs, time_to_loss

__all__ = [
    "POLICIES",
    "SCENARIOS",
    "Entry",
    "Limits",
    "Method",
    "Mix",
    "Pair",
    "Race",
    "Task",
    "Throughputs",
    "TimeToLoss",
    "active_units",
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
    "lr_limits",
    "make_entry",
    "mnist_task",
    "practice_mixes",
    "race",
    "real_beside_simulated",
    "recovered",
    "replay",
    "run_digits",
    "run_digits_synchronous",
    "run_policy",
    "runs_to_floor",
    "scenario_speeds",
    "theory",
    "throughputs",
    "time_to_loss",
    "train_digits",
    "try_server",
]
