"""Run a schedule without computing anything: when can each action start, and who waits for what if none can?"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

from .action import Action
from .schedule import Schedule


class Waiting(NamedTuple):
    """Where a rank stands for ever."""

    rank: int
    position: int
    """Of the action in the rank's order, from 0."""
    action: Action
    what: str
    """What it waits for, in words."""
    on: int
    """The rank that it waits for."""


class Deadlock(NamedTuple):
    """Ranks that wait for each other."""

    waiting: list[Waiting]

    @property
    def cycle(self) -> list[int]:
        """Ranks that wait in a circle, or for themselves; those that merely wait for one of them are left out."""
        on = {w.rank: w.on for w in self.waiting}
        rank, seen = next(iter(on)), []
        while rank in on and rank not in seen:
            seen.append(rank)
            rank = on[rank]
        return seen[seen.index(rank) :] if rank in seen else []

    def __str__(self) -> str:
        return "; ".join(w.what for w in self.waiting)


def needs(action: Action, n_stages: int) -> list[Action]:
    """What must have ended before an action starts: the same micro-batch on the neighbouring stage, or forward here."""
    kind, i, stage = action
    if kind == "F":
        return [Action("F", i, stage - 1)] if stage else []
    return [Action("F", i, stage)] + ([Action("B", i, stage + 1)] if stage + 1 < n_stages else [])


def play(
    schedule: Schedule,
    seconds: Callable[[Action], float] = lambda action: 1.0,
    delay: Callable[[Action, Action], float] = lambda before, after: 0.0,
) -> tuple[dict[Action, tuple[float, float]], Deadlock | None]:
    """Run every rank's actions in order, each as soon as what it needs is there.

    Parameters
    ----------
    schedule : Schedule
    seconds : callable
        How long an action takes.
    delay : callable
        How long after the end of the first action the second, on another rank, may start.

    Returns
    -------
    times : dict of Action to (start, end)
    deadlock : Deadlock or None
    """
    times: dict[Action, tuple[float, float]] = {}
    at, free = [0] * schedule.n_ranks, [0.0] * schedule.n_ranks
    waiting: dict[Action, list[int]] = defaultdict(list)
    todo = deque(range(schedule.n_ranks))
    while todo:
        rank = todo.popleft()
        while at[rank] < len(schedule.orders[rank]):
            action = schedule.orders[rank][at[rank]]
            before = needs(action, schedule.n_stages)
            missing = next((b for b in before if b not in times), None)
            if missing is not None:
                waiting[missing].append(rank)
                break
            ready = [times[b][1] + (delay(b, action) if b.stage != action.stage else 0.0) for b in before]
            start = max([free[rank], *ready])
            times[action] = start, start + seconds(action)
            free[rank] = start + seconds(action)
            at[rank] += 1
            todo.extend(waiting.pop(action, ()))
    stuck = [(rank, missing) for missing, ranks in waiting.items() for rank in ranks]
    return times, Deadlock([_wait(schedule, at, *w) for w in sorted(stuck)]) if stuck else None


def _wait(schedule: Schedule, at: list[int], rank: int, missing: Action) -> Waiting:
    """Say what a rank waits for, and where that stands."""
    position, on = at[rank], schedule.rank_of(missing.stage)
    action = schedule.orders[rank][position]
    where = schedule.place.get(missing)
    shown = schedule.short(missing)
    what = f"rank {rank} at position {position} ({schedule.short(action)}) waits for {shown}"
    if where is None:
        return Waiting(rank, position, action, f"{what}, which rank {on} never runs", on)
    behind = schedule.short(schedule.orders[on][at[on]])
    owner = "its own" if on == rank else f"rank {on}'s"
    return Waiting(rank, position, action, f"{what}, which is {owner} position {where}, behind {behind}", on)


class _Step(NamedTuple):
    """What a rank that knows only blocking calls does: receive, run, or send, for one of its actions."""

    do: str
    position: int
    action: Action
    other: Action | None = None
    """The action at the other end of the message."""
    peer: int = -1


def play_blocking(schedule: Schedule) -> Deadlock | None:
    """Run a schedule as plain blocking code would: receive, compute, send, and a send returns when it is received.

    Returns
    -------
    deadlock : Deadlock or None
    """
    steps = [list(_steps(schedule, rank)) for rank in range(schedule.n_ranks)]
    at, done = [0] * schedule.n_ranks, set()
    todo = deque(range(schedule.n_ranks))
    while todo:
        rank = todo.popleft()
        while at[rank] < len(steps[rank]):
            step = steps[rank][at[rank]]
            if step.do == "run":
                before = needs(step.action, schedule.n_stages)
                if any(schedule.rank_of(a.stage) == rank and a not in done for a in before):
                    break  # such as backward before forward
                done.add(step.action)
            else:
                other = steps[step.peer][at[step.peer]] if at[step.peer] < len(steps[step.peer]) else None
                if other is None or other.do == step.do or (other.action, other.other) != (step.other, step.action):
                    break
                at[step.peer] += 1
                todo.append(step.peer)
            at[rank] += 1
    stuck = [rank for rank in range(schedule.n_ranks) if at[rank] < len(steps[rank])]
    return Deadlock([_stuck(schedule, rank, steps[rank][at[rank]]) for rank in stuck]) if stuck else None


def _steps(schedule: Schedule, rank: int):
    """Yield what a rank does, call by call."""
    for position, action in enumerate(schedule.orders[rank]):
        before = [b for b in needs(action, schedule.n_stages) if b.stage != action.stage]
        towards = action.stage + (1 if action.kind == "F" else -1)
        for b in before:
            if schedule.rank_of(b.stage) != rank:
                yield _Step("receive", position, action, b, schedule.rank_of(b.stage))
        yield _Step("run", position, action)
        if 0 <= towards < schedule.n_stages and schedule.rank_of(towards) != rank:
            yield _Step("send", position, action, action._replace(stage=towards), schedule.rank_of(towards))


def _stuck(schedule: Schedule, rank: int, step: _Step) -> Waiting:
    """Say at which blocking call a rank stands."""
    shown = schedule.short(step.action)
    if step.do == "run":
        what = f"rank {rank} at position {step.position} cannot run {shown}: what it needs comes later in its own order"
        return Waiting(rank, step.position, step.action, what, rank)
    verb, of = ("send", "to") if step.do == "send" else ("receive", "from")
    data = "activations" if step.action.kind == "F" else "gradient"
    what = (
        f"rank {rank} at position {step.position} ({shown}) is stuck in the {verb} of micro-batch "
        f"{step.action.microbatch}'s {data} {of} rank {step.peer}"
    )
    return Waiting(rank, step.position, step.action, what, step.peer)
