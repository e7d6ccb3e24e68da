"""Scaling studies by simulation, one call each: where scaling stalls, what helps, which layout is the fastest."""

from .layouts import Step, Tested, check_plan, simulate_layout
from .remedies import remedies, without_dense
from .stall import Curve, Point, scaling_curve, simulate_step, stall_study, stall_table
from .two_networks import LECTURE, Facts, facts, two_networks

__all__ = [
    "LECTURE",
    "Curve",
    "Facts",
    "Point",
    "Step",
    "Tested",
    "check_plan",
    "facts",
    "remedies",
    "scaling_curve",
    "simulate_layout",
    "simulate_step",
    "stall_study",
    "stall_table",
    "two_networks",
    "without_dense",
]
