"""How long a schedule takes, and how much of that its ranks wait: the bubble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...trace import Message, Span, Trace
from .action import Action
from .check import check_schedule
from .play import needs, play
from .schedule import Schedule

LANE = "stage"
"""The lane of a trace on which spans are whole actions; the layers inside are on "compute"."""


def span_name(schedule: Schedule, action: Action) -> str:
    """Name of an action's span: "F[3]", or "F[3 of stage 2]" where ranks have several stages."""
    where = "" if schedule.simple else f" of stage {action.stage}"
    return f"{action.kind}[{action.microbatch}{where}]"


def ideal_bubble(n_ranks: int, n_microbatches: int, n_virtual: int = 1) -> float:
    r"""Share of the time in which a rank waits, where all stages cost the same and messages nothing.

    .. math:: \frac{p - 1}{v m + p - 1}

    A rank works for m (f + b) seconds. Before its first micro-batch arrives and after its last one has gone it waits
    for the p - 1 other ranks, (p - 1) (f + b) / v in sum, as with v stages a rank each is v times as short.

    Parameters
    ----------
    n_ranks : int
        p.
    n_microbatches : int
        m.
    n_virtual : int
        v, stages of a rank: 1 for GPipe and 1F1B.

    References
    ----------
    Huang et al. (2019), GPipe, section 2.3. Narayanan et al. (2021), Megatron-LM, sections 2.2.1 and 2.2.2, who divide
    by the time without a bubble instead: (p - 1) / (v m).

    Examples
    --------
    >>> ideal_bubble(4, 12), ideal_bubble(4, 12, n_virtual=2)
    (0.2, 0.1111111111111111)
    """
    return (n_ranks - 1) / (n_virtual * n_microbatches + n_ranks - 1)


@dataclass(frozen=True)
class Simulated:
    """A schedule with times.

    Attributes
    ----------
    schedule : Schedule
    trace : Trace
        A span for every action, on the lane "stage"; a message for every array that goes to another rank.
    makespan : float
        Seconds from the first start to the last end.
    busy : list of float
        Seconds that each rank computes.
    in_flight : list of int
        By rank: the largest number of micro-batches whose activations are held at one time.
    """

    schedule: Schedule
    trace: Trace
    makespan: float
    busy: list[float]
    in_flight: list[int]

    @property
    def bubbles(self) -> list[float]:
        """Share of the makespan in which each rank waits."""
        return [1 - busy / self.makespan for busy in self.busy]

    @property
    def bubble(self) -> float:
        """Share of all ranks' time that is spent waiting."""
        return sum(self.bubbles) / len(self.busy)

    def __str__(self) -> str:
        shares = ", ".join(f"{b:.1%}" for b in self.bubbles)
        return f"makespan {self.makespan:.4g} s, bubble {self.bubble:.1%} (by rank: {shares})"


def simulate(
    schedule,
    n_ranks: int | None = None,
    n_microbatches: int | None = None,
    *,
    forward: float | Sequence[float] = 1.0,
    backward: float | Sequence[float] = 2.0,
    transfer: float = 0.0,
    **options,
) -> Simulated:
    """Give every action of a schedule its start and its end, from what forward, backward and a message cost.

    Parameters
    ----------
    schedule : str, callable, list or Schedule
        Any form that `make_schedule` takes.
    n_ranks, n_microbatches : int, optional
        Needed for names and generators.
    forward, backward : float or sequence of float
        Seconds for one micro-batch: one number for all that a rank has (which its stages share, so that schedules with
        more stages compare), or one per stage.
    transfer : float
        Seconds from the end of an action to the arrival of its result on another rank.
    **options
        Go to the generator: `n_virtual=3`.

    Returns
    -------
    simulated : Simulated

    Raises
    ------
    ValueError
        If the schedule is wrong; the message says all that `check_schedule` finds.

    Examples
    --------
    >>> run = simulate("1f1b", 4, 12)
    >>> run.makespan, round(run.bubble, 12), run.in_flight
    (45.0, 0.2, [4, 3, 2, 1])
    >>> round(simulate("interleaved", 4, 12, n_virtual=2).bubble, 4)
    0.1111
    """
    made = check_schedule(schedule, n_ranks, n_microbatches, **options).require()
    costs = {"F": _per_stage(made, "forward", forward), "B": _per_stage(made, "backward", backward)}
    if not transfer >= 0:
        raise ValueError(f"simulate: transfer is {transfer!r}, expected 0 seconds or more")

    def delay(before, after):
        return transfer if made.rank_of(before.stage) != made.rank_of(after.stage) else 0.0

    times, _ = play(made, lambda action: costs[action.kind][action.stage], delay)
    spans, messages = [], []
    for rank, order in enumerate(made.orders):
        for action in order:
            spans.append(Span(rank, LANE, span_name(made, action), *times[action]))
            for b in needs(action, made.n_stages):
                source, sent = made.rank_of(b.stage), times[b][1]
                if source != rank:
                    messages.append(Message(source, rank, 0, sent, sent + transfer))
    busy = [sum(costs[a.kind][a.stage] for a in order) for order in made.orders]
    spans.sort(key=lambda s: (s.end, s.rank))
    in_flight = [made.in_flight(rank) for rank in range(made.n_ranks)]
    return Simulated(made, Trace(spans, messages), max(s.end for s in spans), busy, in_flight)


def _per_stage(schedule: Schedule, name: str, cost) -> list[float]:
    """Seconds of every stage."""
    if isinstance(cost, (int, float)):
        shares = [len(schedule.stages_of(schedule.rank_of(stage))) for stage in range(schedule.n_stages)]
        costs = [cost / n for n in shares]
    else:
        costs = list(cost)
    if len(costs) != schedule.n_stages or not all(c >= 0 for c in costs) or not any(costs):
        raise ValueError(
            f"simulate: {name} is {cost!r}, expected seconds: one number above 0 or one for each of the "
            f"{schedule.n_stages} stages"
        )
    return costs
