"""Data parallelism, for lab 07: one step of a given code against a serial one, its overlap, whole runs, real ranks."""

from ...comm.waiting import count_cores
from .overlap import Overlap, after_backward, backward_step, library_backward
from .real import Measured, first_ranks, fit_network, measure_engines
from .runs import local_run, plan_accuracy, time_to_accuracy, train_digits_with
from .steps import average_locally, gradient_of, judge_backward, judge_local_sgd, judge_step, serial_step

__all__ = [
    "Measured",
    "Overlap",
    "after_backward",
    "average_locally",
    "backward_step",
    "count_cores",
    "first_ranks",
    "fit_network",
    "gradient_of",
    "judge_backward",
    "judge_local_sgd",
    "judge_step",
    "library_backward",
    "local_run",
    "measure_engines",
    "plan_accuracy",
    "serial_step",
    "time_to_accuracy",
    "train_digits_with",
]
