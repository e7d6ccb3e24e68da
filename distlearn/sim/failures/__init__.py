"""Failures as parameters of a simulated world, and the parts of the simulator that let them happen."""

from .schedule import Failure, FailureSchedule, FailureTimeline, Loss

__all__ = ["Failure", "FailureSchedule", "FailureTimeline", "Loss"]
