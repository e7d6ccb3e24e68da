"""Pipeline schedules: which rank runs which micro-batch forward and backward, in which order.

A schedule is a list of `Action` for every rank, and every function that takes a schedule accepts any of its forms, so
one that a student wrote goes through the same checker, simulator, drawing and executor as the library's own::

    generator or text --> make_schedule --> Schedule --+--> check_schedule   is it valid? would it deadlock?
    (gpipe, "F0 F1 B0 B1")                             +--> simulate         how long, how large is the bubble?
                                                       +--> Pipeline         train with it
"""

from .check import Arrow, Deadlock, Report, ScheduleError, Waiting, check_schedule
from .orders import SCHEDULES, gpipe, interleaved, make_schedule, one_f_one_b, pipedream, zero_bubble
from .schedule import LANE, Action, Schedule, format, parse
from .timing import Simulated, TimedAction, actions_of, ideal_bubble, measured_bubble, simulate

__all__ = sorted(name for name, value in globals().items() if callable(value) or name.isupper())
