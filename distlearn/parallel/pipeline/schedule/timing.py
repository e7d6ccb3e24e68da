"""How long a schedule takes, simulated or in the trace of a run, and the share in which its ranks wait: the bubble."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ....bounds import check_number, check_positive
from ....trace import Message, Span, Trace
from .check import Deadlock, check_schedule, play
from .schedule import LANE, Action, Schedule

_NAME = re.compile(r"([FBIW])\[(\d+)(?: of stage (\d+))?\]")


def ideal_bubble(n_ranks: int, n_microbatches: int, n_virtual: int = 1) -> float:
    r"""Share of the time in which a rank waits, where all stages cost the same and messages nothing."""
    check_positive("ideal_bubble", n_ranks=n_ranks, n_microbatches=n_microbatches, n_virtual=n_virtual)
    return (n_ranks - 1) / (n_virtual * n_microbatches + n_ranks - 1)


@dataclass(frozen=True, repr=False)
class Simulated:
    """A schedule with times.

    Attributes
    ----------
    trace : Trace
        A span for every action, on the lane "stage"; a message for every array that goes to another rank.
    in_flight : list of int
        By rank: the largest number of micro-batches whose activations are held at one time.
    deadlock : Deadlock or None
        Where the ranks deadlock, if they do; the other attributes then describe the time before.
    """

    schedule: Schedule
    trace: Trace
    makespan: float  # seconds from the first start to the last end
    busy: list[float]  # seconds that each rank computes
    in_flight: list[int]
    deadlock: Deadlock | None = None

    @property
    def bubbles(self) -> list[float]:
        return [1 - busy / self.makespan if self.makespan else 0.0 for busy in self.busy]

    @property
    def bubble(self) -> float:
        """Share of all ranks' time that is spent waiting."""
        return sum(self.bubbles) / len(self.busy)

    def __str__(self) -> str:
        if self.deadlock is not None:
            return f"deadlock after {self.makespan:.4g} s: {self.deadlock}"
        shares = ", ".join(f"{b:.1%}" for b in self.bubbles)
        return f"makespan {self.makespan:.4g} s, bubble {self.bubble:.1%} (by rank: {shares})"

    __repr__ = __str__


def simulate(
    schedule,
    n_ranks: int | None = None,
    n_microbatches: int | None = None,
    *,
    forward: float | Sequence[float] = 1.0,
    backward: float | Sequence[float] = 2.0,
    transfer: float = 0.0,
    allow_deadlock: bool = False,
    **options,
) -> Simulated:
    """Compute the start and end of every action of a schedule from the costs of forward, backward and a message.

    Parameters
    ----------
    schedule, n_ranks, n_microbatches, **options
        As for `make_schedule`.
    forward, backward : float or sequence of float
        Seconds for one micro-batch: one number for all that a rank has (which its stages share, so that schedules
        with more stages compare), or one per stage. Each half of backward takes half of it.
    transfer : float
        Seconds from the end of an action to the arrival of its result on another rank.
    allow_deadlock : bool
        Simulate a schedule in which ranks wait for each other as far as it goes, instead of raising.

    Examples
    --------
    >>> run = simulate("1f1b", 4, 12)
    >>> run.makespan, round(run.bubble, 12), run.in_flight
    (45.0, 0.2, [4, 3, 2, 1])
    >>> round(simulate("interleaved", 4, 12, n_virtual=2).bubble, 4)
    0.1111
    """
    report = check_schedule(schedule, n_ranks, n_microbatches, **options)
    stuck = allow_deadlock and {f.problem for f in report.findings} <= {"deadlock", "order"}
    made = report.schedule if stuck else report.require()
    costs = stage_costs(made, forward, backward)
    check_number("simulate", least=0, below=float("inf"), transfer=transfer)

    times, deadlock = play(made, lambda a: costs[a.kind][a.stage], transfer)
    rank_of = made.rank_of
    spans = [Span(rank_of(a.stage), LANE, made.span_name(a), *times[a]) for a in times]
    sent = [
        (rank_of(a.stage), rank_of(made.consumer(a).stage), end) for a, (_, end) in times.items() if made.consumer(a)
    ]
    messages = [Message(source, dest, 0, end, end + transfer) for source, dest, end in sent if source != dest]
    busy = [sum(costs[a.kind][a.stage] for a in order if a in times) for order in made.orders]
    spans.sort(key=lambda s: (s.end, s.rank))
    makespan = max((s.end for s in spans), default=0.0)
    return Simulated(made, Trace(spans, messages), makespan, busy, report.in_flight, deadlock)


def stage_costs(schedule: Schedule, forward=1.0, backward=2.0) -> dict[str, list[float]]:
    """Return the seconds of every stage by kind of action, from the arguments of `simulate`."""
    costs = {"F": _per_stage(schedule, "forward", forward), "B": _per_stage(schedule, "backward", backward)}
    costs["I"] = costs["W"] = [seconds / 2 for seconds in costs["B"]]
    return costs


def _per_stage(schedule: Schedule, name: str, cost) -> list[float]:
    if isinstance(cost, (int, float)):
        shares = [len(schedule.stages_of(schedule.rank_of(stage))) for stage in range(schedule.n_stages)]
        costs = [cost / n for n in shares]
    else:
        costs = list(cost)
    if len(costs) != schedule.n_stages or not all(c >= 0 for c in costs) or not any(costs):
        raise ValueError(f"simulate: {name} is {cost!r}, expected seconds: one number, or {schedule.n_stages}")
    return costs


class TimedAction(NamedTuple):
    """An action of a pipeline with its times [s]."""

    rank: int
    action: Action
    start: float
    end: float


def actions_of(trace: Trace) -> list[TimedAction]:
    """Find the actions of a pipeline in the trace of a run, simulated or real."""
    found = []
    for s in trace.select(lane=LANE):
        match = _NAME.fullmatch(s.name)
        if match:
            kind, i, stage = match.groups()
            action = Action(kind, int(i), s.rank if stage is None else int(stage))
            found.append(TimedAction(s.rank, action, s.start, s.end))
    return found


def measured_bubble(trace: Trace) -> float:
    """Share of the ranks' time, from the first start of an action to the last end, in which they run none."""
    actions = actions_of(trace)
    if not actions:
        raise ValueError(f"measured_bubble: there is no action of a pipeline in {trace!r}")
    length = max(a.end for a in actions) - min(a.start for a in actions)
    ranks = {a.rank for a in actions}
    return 1 - sum(a.end - a.start for a in actions) / (length * len(ranks)) if length else 0.0
