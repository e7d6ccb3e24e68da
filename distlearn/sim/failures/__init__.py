"""Failures as parameters of a simulated world, and the parts of the simulator that apply them."""

from .schedule import Failure, FailureSchedule, FailureTimeline, Loss

__all__ = ["Failure", "FailureSchedule", "FailureTimeline", "Loss"]
