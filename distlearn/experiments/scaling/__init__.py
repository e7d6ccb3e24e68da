"""Scaling studies by simulation, one call each: where scaling stalls, what helps."""

from .remedies import remedies, without_dense
from .stall import Curve, Point, scaling_curve, simulate_step, stall_study, stall_table
from .two_networks import LECTURE, Facts, facts, two_networks

__all__ = [
    "LECTURE",
    "Curve",
    "Facts",
    "Point",
    "facts",
    "remedies",
    "scaling_curve",
    "simulate_step",
    "stall_study",
    "stall_table",
    "two_networks",
    "without_dense",
]
