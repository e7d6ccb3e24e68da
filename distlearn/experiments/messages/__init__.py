"""Collectives written by a student, for lab 06: judged and counted, measured on engines, in the place of the library's.

The network's part, orders of messages, is in `distlearn.sim` (`explore`, `replay`).
"""

from .count import ROUNDS, Counted, counted
from .judge import NAMES, judge_all_reduce, judge_broadcast, judge_fit, judge_order, judge_scatter_gather, judge_seconds
from .measure import WithCollectives, measure, thread_seconds

__all__ = [
    "NAMES",
    "ROUNDS",
    "Counted",
    "WithCollectives",
    "counted",
    "judge_all_reduce",
    "judge_broadcast",
    "judge_fit",
    "judge_order",
    "judge_scatter_gather",
    "judge_seconds",
    "measure",
    "thread_seconds",
]
