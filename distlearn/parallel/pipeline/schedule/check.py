"""Check a schedule: all of its errors, and where they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from .orders import make_schedule
from .schedule import Action, Schedule

NAMED = 6
"""Number of missing actions that an error names."""


# -- running a schedule ------------------------------------------------------------------------------------------------


class Arrow(NamedTuple):
    """One action must happen before another: activations or a gradient go from one to the other, or both are the same
    micro-batch's on one stage.
    """

    before: Action
    after: Action

    def __str__(self) -> str:
        return f"{self.before} -> {self.after}"


class Waiting(NamedTuple):
    """A rank that waits forever, and where."""

    rank: int
    position: int  # of the action in the rank's order, from 0
    action: Action
    what: str  # the action that it waits for, in words
    on: int  # the rank that it waits for
    arrow: Arrow  # the dependency for which it waits, with the stages' numbers


class Deadlock(NamedTuple):
    """Ranks that wait for each other."""

    waiting: list[Waiting]

    @property
    def cycle(self) -> list[int]:
        """Ranks that wait in a cycle, or for themselves; those that merely wait for one of them are left out."""
        on = {w.rank: w.on for w in self.waiting}
        rank, seen = next(iter(on)), []
        while rank in on and rank not in seen:
            seen.append(rank)
            rank = on[rank]
        return seen[seen.index(rank) :] if rank in seen else []

    @property
    def involved(self) -> list[Waiting]:
        return [w for w in self.waiting if w.rank in self.cycle] or self.waiting

    @property
    def arrows(self) -> list[Arrow]:
        """The happens-before arrows that cannot all hold, as every rank runs its actions in order."""
        return [w.arrow for w in self.involved]

    def __str__(self) -> str:
        return "; ".join(w.what for w in self.waiting)


def _needs_here(action: Action) -> list[Action]:
    """The actions of the same micro-batch that must end before, on the same stage."""
    return [] if action.kind == "F" else [action._replace(kind="I" if action.kind == "W" else "F")]


def needs(schedule: Schedule, action: Action) -> list[Action]:
    """The actions that must end before an action starts: of the same micro-batch, on the neighbouring stage or here."""
    producer = schedule.producer(action)
    return _needs_here(action) + ([] if producer is None else [producer])


def play(
    schedule: Schedule, seconds: Callable[[Action], float] = lambda action: 1.0, transfer: float = 0.0
) -> tuple[dict[Action, tuple[float, float]], Deadlock | None]:
    """Run every rank's actions in order, each as soon as its inputs are there; return when each began and ended."""
    times, at, free, moved = {}, [0] * schedule.n_ranks, [0.0] * schedule.n_ranks, True
    while moved:
        moved = False
        for rank, order in enumerate(schedule.orders):
            for action in order[at[rank] :]:
                before = needs(schedule, action)
                if any(b not in times for b in before):
                    break
                arrived = [times[b][1] + transfer * (schedule.rank_of(b.stage) != rank) for b in before]
                start = max([free[rank], *arrived])
                times[action] = start, start + seconds(action)
                free[rank], at[rank], moved = times[action][1], at[rank] + 1, True
    stuck = [rank for rank, order in enumerate(schedule.orders) if at[rank] < len(order)]
    return times, Deadlock([_waiting_for(schedule, at, rank, times) for rank in stuck]) if stuck else None


def _waiting_for(schedule: Schedule, at: list[int], rank: int, times) -> Waiting:
    """Describe the action that a rank waits for, and its position in the schedule."""
    position = at[rank]
    action = schedule.orders[rank][position]
    missing = next(b for b in needs(schedule, action) if b not in times)
    on, where = schedule.rank_of(missing.stage), schedule.place.get(missing)
    shown = schedule.short(missing)
    what = f"rank {rank} at position {position} ({schedule.short(action)}) waits for {shown}"
    if where is None:
        return Waiting(rank, position, action, f"{what}, which rank {on} never runs", on, Arrow(missing, action))
    behind = schedule.short(schedule.orders[on][at[on]])
    owner = "its own" if on == rank else f"rank {on}'s"
    what = f"{what}, which is {owner} position {where}, behind {behind}"
    return Waiting(rank, position, action, what, on, Arrow(missing, action))


# -- errors of a schedule ----------------------------------------------------------------------------------------------


class ScheduleError(NamedTuple):
    """One error of a schedule."""

    problem: str  # "missing", "twice", "unknown", "placement", "order" or "deadlock"
    message: str
    rank: int | None = None
    position: int | None = None  # in the rank's order, from 0
    action: Action | None = None
    arrows: tuple[Arrow, ...] = ()  # the happens-before arrows that an "order" or a "deadlock" breaks

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, repr=False)
class Report:
    """What `check_schedule` found: no findings if the schedule is right."""

    schedule: Schedule
    findings: list[ScheduleError]
    in_flight: list[int]  # by rank: the largest number of micro-batches whose activations are held at one time

    @property
    def ok(self) -> bool:
        return not self.findings

    def require(self) -> Schedule:
        """Return the schedule, or raise ValueError with all findings."""
        if self.findings:
            raise ValueError(str(self))
        return self.schedule

    def __str__(self) -> str:
        s = self.schedule
        head = f"{s.n_ranks} ranks, {s.n_stages} stages, {s.n_microbatches} micro-batches"
        if self.findings:
            return "\n".join([f"wrong schedule ({head}):", *(f"  {f}" for f in self.findings)])
        return f"right ({head}); in flight by rank: {', '.join(map(str, self.in_flight))}"

    __repr__ = __str__  # shown in a notebook


def check_schedule(
    schedule: Any, n_ranks: int | None = None, n_microbatches: int | None = None, **options: Any
) -> Report:
    """Find all errors of a pipeline schedule.

    Every micro-batch must go forward and backward once on every stage, forward first (backward in one, or in halves, I
    before W, but not both); every stage must be on one rank; and there must be an order in which all ranks can run
    their actions: activations come from the stage before, gradients from the stage after.

    Parameters
    ----------
    schedule, n_ranks, n_microbatches, **options
        As for `make_schedule`.

    Examples
    --------
    >>> print(check_schedule("1f1b", 2, 3))
    right (2 ranks, 2 stages, 3 micro-batches); in flight by rank: 2, 1
    >>> print(check_schedule(["F0 B0 F1 B1", "F0 F1 B0 B1"]))
    wrong schedule (2 ranks, 2 stages, 2 micro-batches):
      deadlock: rank 0 at position 1 (B0) waits for B0, which is rank 1's position 2, behind F1; \
rank 1 at position 1 (F1) waits for F1, which is rank 0's position 2, behind B0; broken: 1B0 -> 0B0, 0F1 -> 1F1
    """
    made = make_schedule(schedule, n_ranks, n_microbatches, **options)
    findings = [*_placement(made), *_counts(made)]
    if not findings:  # else every rank would report that it waits for the missing actions
        findings += _order(made)
        _, deadlock = play(made)
        if deadlock is not None and not findings:
            involved, first = deadlock.involved, deadlock.involved[0]  # of a cycle; the others wait for those in it
            text = f"deadlock: {'; '.join(w.what for w in involved)}; broken: {', '.join(map(str, deadlock.arrows))}"
            findings.append(ScheduleError("deadlock", text, *first[:3], tuple(deadlock.arrows)))
    return Report(made, findings, [made.in_flight(rank) for rank in range(made.n_ranks)])


def _placement(schedule: Schedule):
    """Stages that no rank has, or more than one; ranks that have none."""
    before = -1
    for stage, ranks in schedule.ranks_of.items():
        if stage - before > 1:
            which = f"stages {before + 1} to {stage - 1} are" if stage - before > 2 else f"stage {stage - 1} is"
            yield ScheduleError(
                "placement", f"{which} on no rank, expected {'each' if stage - before > 2 else 'it'} on one"
            )
        if len(ranks) > 1:
            yield ScheduleError(
                "placement", f"stage {stage} is on ranks {', '.join(map(str, ranks))}, expected it on one"
            )
        before = stage
    for rank, order in enumerate(schedule.orders):
        if not order and rank in schedule.ranks_of:
            home = schedule.rank_of(rank)
            yield ScheduleError("placement", f"rank {rank} has no actions, and stage {rank} is on rank {home}", rank)


def _at(schedule: Schedule, problem: str, rank: int, position: int, action: Action, text: str, *arrows):
    """An error at a position of a rank's order."""
    where = f"rank {rank}, position {position} ({schedule.short(action)})"
    return ScheduleError(problem, f"{where}: {text}", rank, position, action, arrows)


def _counts(schedule: Schedule):
    """Actions that are missing, there twice, or for micro-batches that do not exist."""
    for rank, order in enumerate(schedule.orders):
        places = defaultdict(list)
        for position, action in enumerate(order):
            places[action].append(position)
        for action, found in places.items():
            if action.microbatch >= schedule.n_microbatches:
                text = f"there are micro-batches 0 to {schedule.n_microbatches - 1}"
                yield _at(schedule, "unknown", rank, found[0], action, text)
            if len(found) > 1:
                yield _at(schedule, "twice", rank, found[1], action, f"is already at position {found[0]}")
            half = next((h for h in (action._replace(kind="I"), action._replace(kind="W")) if h in places), None)
            if action.kind == "B" and half is not None:  # each would release the same activations
                beside = f"{schedule.short(half)} at position {places[half][0]}"
                text = f"backward in one, beside one of its halves, {beside}"
                yield _at(schedule, "twice", rank, found[0], action, text)
        stages = schedule.stages_of(rank) or [rank] * (rank not in schedule.ranks_of)
        for stage, kind in ((s, kind) for s in stages for kind in _expected(schedule, s)):
            there = sum(a.stage == stage and a.kind == kind and a.microbatch < schedule.n_microbatches for a in places)
            if there < schedule.n_microbatches:
                wanted = (Action(kind, i, stage) for i in range(schedule.n_microbatches))
                absent = list(islice((schedule.short(a) for a in wanted if a not in places), NAMED))
                more = schedule.n_microbatches - there - len(absent)
                names = ", ".join(map(str, absent)) + (f" and {more} more" if more else "")
                yield ScheduleError("missing", f"rank {rank}, stage {stage}: {names} missing", rank, None, absent[0])


def _expected(schedule: Schedule, stage: int) -> str:
    """The kinds of actions that a stage must have of every micro-batch: backward whole, or in halves."""
    return "FIW" if any(a.stage == stage and a.kind in "IW" for order in schedule.orders for a in order) else "FB"


def _order(schedule: Schedule):
    """Backward before forward, or the weights' gradient before the input's."""
    for rank, order in enumerate(schedule.orders):
        for position, action in enumerate(order):
            for before in _needs_here(action):
                later, arrow = schedule.place[before], Arrow(before, action)
                if later > position:
                    what = (
                        "the weights' gradient before the input's" if action.kind == "W" else "backward before forward"
                    )
                    text = f"{what}, {schedule.short(before)} is at position {later}; broken: {arrow}"
                    yield _at(schedule, "order", rank, position, action, text, arrow)
