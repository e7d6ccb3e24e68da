"""The actions of a pipeline in a trace: what an executor and the simulator write there, and what can be read back."""

from __future__ import annotations

import re
from typing import NamedTuple

from ....trace import Trace
from .action import Action
from .schedule import Schedule

LANE = "stage"
"""The lane of a trace on which spans are whole actions; the layers inside are on "compute"."""


_NAME = re.compile(r"([FB])\[(\d+)(?: of stage (\d+))?\]")


def span_name(schedule: Schedule, action: Action, alone: bool = True) -> str:
    """Name of an action's span: "F[3]", or "F[3 of stage 2]" where the rank's number in the trace is not its stage.

    Parameters
    ----------
    schedule : Schedule
    action : Action
    alone : bool
        The trace has no other ranks than the schedule.
    """
    where = "" if schedule.simple and alone else f" of stage {action.stage}"
    return f"{action.kind}[{action.microbatch}{where}]"


class TimedAction(NamedTuple):
    """An action of a pipeline with its times [s]."""

    rank: int
    action: Action
    start: float
    end: float


def actions_of(trace: Trace) -> list[TimedAction]:
    """Find the actions of a pipeline in the trace of a run, simulated or real.

    Parameters
    ----------
    trace : Trace

    Returns
    -------
    actions : list of TimedAction
        Each with its stage, in the order in which they ended.
    """
    found = []
    for s in trace.select(lane=LANE):
        match = _NAME.fullmatch(s.name)
        if match:
            kind, i, stage = match.groups()
            action = Action(kind, int(i), s.rank if stage is None else int(stage))
            found.append(TimedAction(s.rank, action, s.start, s.end))
    return found


def measured_bubble(trace: Trace) -> float:
    """Share of the ranks' time, from the first start of an action to the last end, in which they run none.

    Parameters
    ----------
    trace : Trace
        Of a run with a pipeline, simulated or real; take the `window` of one step.
    """
    actions = actions_of(trace)
    if not actions:
        raise ValueError(f"measured_bubble: there is no action of a pipeline in {trace!r}")
    length = max(a.end for a in actions) - min(a.start for a in actions)
    ranks = {a.rank for a in actions}
    return 1 - sum(a.end - a.start for a in actions) / (length * len(ranks)) if length else 0.0
