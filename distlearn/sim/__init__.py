"""The simulator: any number of ranks in this process, under virtual time, the same in every run.

It is built on the protocol and the collectives of `comm`, and knows nothing about layers, models or optimizers.
"""

from .clock import Free, Measured, Roofline
from .exploration import Exploration, OrderedRun, explore, run_in_order
from .failures import Failure, Loss
from .meta import MetaArray
from .what_if import record_run, replay
from .world import SimWorld

__all__ = sorted(name for name, value in globals().items() if callable(value))  # what is imported above
