"""How fast can a layer be, on this machine and on a named card: bounds from counted work, beside measured times."""

from .judge import counted, judge_shape, least_bytes, tiled_report
from .machine import measure_cpu, measure_gpu
from .steps import StepWork, step_times, step_work

__all__ = [
    "StepWork",
    "counted",
    "judge_shape",
    "least_bytes",
    "measure_cpu",
    "measure_gpu",
    "step_times",
    "step_work",
    "tiled_report",
]
