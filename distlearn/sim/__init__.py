"""The simulator: any number of ranks in this process, under virtual time, the same in every run.

Above `comm`, whose protocol and collectives it runs; it knows nothing of layers, models or optimizers.
"""

from .compute import Free, Measured, Roofline
from .failures import Failure, FailureSchedule, Loss
from .meta import MetaArray
from .world import SimWorld

__all__ = [
    "Failure",
    "FailureSchedule",
    "Free",
    "Loss",
    "Measured",
    "MetaArray",
    "Roofline",
    "SimWorld",
]
