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

from .compare import POLICIES, alternatives, compare_policies, recovered
from .limits import Limits, lr_limits, theory
from .real import Pair, calibrate, real_beside_simulated
from .task import SCENARIOS, Task, digits_task, mnist_task, run_policy, scenario_speeds
from .workers import Throughputs, TimeToLoss, throughputs, time_to_loss

__all__ = [
    "POLICIES",
    "SCENARIOS",
    "Limits",
    "Pair",
    "Task",
    "Throughputs",
    "TimeToLoss",
    "alternatives",
    "calibrate",
    "compare_policies",
    "digits_task",
    "lr_limits",
    "mnist_task",
    "real_beside_simulated",
    "recovered",
    "run_policy",
    "scenario_speeds",
    "theory",
    "throughputs",
    "time_to_loss",
]
