"""Collectives written by a student, for lab 06: judged and counted, measured on engines, in the place of the library's.

The network's part, orders of messages, is in `distlearn.sim` (`explore`, `replay`).
"""

from .count import Counted, counted
from .judge import judge_all_reduce, judge_broadcast, judge_order, judge_scatter_gather, judge_seconds
from .measure import SlowLink, WithAllReduce, measure, thread_seconds

__all__ = [
    "Counted",
    "SlowLink",
    "WithAllReduce",
    "counted",
    "judge_all_reduce",
    "judge_broadcast",
    "judge_order",
    "judge_scatter_gather",
    "judge_seconds",
    "measure",
    "thread_seconds",
]
