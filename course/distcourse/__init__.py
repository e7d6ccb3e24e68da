"""What a lab needs around its subject: predictions, checks that explain, deliberate failures, figures with a text.

A lab uses one object, `lab = distcourse.Lab("07")`; see `Lab`. Nothing here depends on machine learning, writes a file
or seeds a generator. How to write a lab with it: course/AUTHORING.md.
"""

from .check import Check, CheckFailed
from .diagnose import Comparison, compare
from .kernels import at_cell_lines, in_parallel, kernel_of, no_errors
from .lab import Expected, Lab, NothingFailed
from .predict import Prediction, PredictionInvalid, PredictionMissing
from .show import Card, Line

__all__ = [
    "Card",
    "Check",
    "CheckFailed",
    "Comparison",
    "Expected",
    "Lab",
    "Line",
    "NothingFailed",
    "Prediction",
    "PredictionInvalid",
    "PredictionMissing",
    "at_cell_lines",
    "compare",
    "in_parallel",
    "kernel_of",
    "no_errors",
]
