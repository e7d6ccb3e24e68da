"""Run a schedule without computing anything: when each action starts, and which ranks deadlock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from .schedule import Action, Schedule


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
    what: str  # what it waits for, in words
    on: int  # the rank that it waits for
    arrow: Arrow  # the dependency for which it waits, with the stages' numbers; of blocking calls, the message


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


class Message(NamedTuple):
    """What one action produces and another one, on another rank, consumes: activations or a gradient."""

    producer: Action
    consumer: Action


class Played(NamedTuple):
    """When everything in a schedule happens [s], by `play`."""

    times: dict[Action, tuple[float, float]]  # start and end of every action that ran
    arrivals: dict[Message, float]  # when every message that was sent has arrived
    deadlock: Deadlock | None


def needs(schedule: Schedule, action: Action) -> list[Action]:
    """What must have ended before an action starts: the same micro-batch on the neighbouring stage, or earlier here."""
    producer = schedule.producer(action)
    here = {"F": [], "W": [action._replace(kind="I")]}.get(action.kind, [action._replace(kind="F")])
    return here if producer is None else [*here, producer]


def play(
    schedule: Schedule,
    seconds: Callable[[Action], float] = lambda action: 1.0,
    message: Callable[[Action], tuple[float, float]] = lambda consumer: (0.0, 0.0),
    *,
    blocking: bool = False,
) -> Played:
    """Run every rank's actions in order, each as soon as its inputs are there."""
    ranks = [_blocking_calls(schedule, rank) if blocking else list(o) for rank, o in enumerate(schedule.orders)]
    cards = [] if blocking else [_messages_from(schedule, rank) for rank in range(schedule.n_ranks)]

    def duration(task):
        if isinstance(task, Action):
            return seconds(task)
        latency, busy = message(task.consumer)
        return latency + busy if blocking else busy

    def before(task):
        if isinstance(task, Message):
            yield task.producer, 0.0
            return
        for producer in needs(schedule, task):
            if schedule.rank_of(producer.stage) == schedule.rank_of(task.stage):
                yield producer, 0.0
            else:
                yield Message(producer, task), 0.0 if blocking else message(task)[0]

    times, at = play_queues([*ranks, *cards], duration, before)
    actions = {task: when for task, when in times.items() if isinstance(task, Action)}
    arrivals = {
        task: when[1] + (0.0 if blocking else message(task.consumer)[0])
        for task, when in times.items()
        if isinstance(task, Message)
    }
    stuck = [rank for rank in range(schedule.n_ranks) if at[rank] < len(ranks[rank])]
    if blocking:
        waiting = [_stuck_in_call(schedule, rank, ranks[rank][at[rank]]) for rank in stuck]
    else:
        waiting = [_waiting_for(schedule, at, rank, times) for rank in stuck]
    return Played(actions, arrivals, Deadlock(waiting) if stuck else None)


def play_queues(queues, seconds: Callable, needs: Callable = lambda task: ()) -> tuple[dict, list[int]]:
    """Run tasks in the order of their queues, each as soon as all its queues are free and what it needs has ended.

    A queue does one thing at a time: a rank that computes, a network card that sends. Return start and end of every
    task that ran, and by queue the position of the first that never ran.
    """
    queues_of = defaultdict(list)
    for i, queue in enumerate(queues):
        for task in queue:
            queues_of[task].append(i)
    times, at, free, moved = {}, [0] * len(queues), [0.0] * len(queues), True
    while moved:
        moved = False
        for i, queue in enumerate(queues):
            while at[i] < len(queue):
                task, before = queue[at[i]], list(needs(queue[at[i]]))
                mine = queues_of[task]  # they must all have come to it
                if any(queues[j][at[j] : at[j] + 1] != [task] for j in mine) or any(b not in times for b, _ in before):
                    break
                start = max([free[j] for j in mine] + [times[b][1] + delay for b, delay in before])
                times[task] = start, start + seconds(task)
                for j in mine:
                    free[j], at[j], moved = times[task][1], at[j] + 1, True
    return times, at


def _blocking_calls(schedule: Schedule, rank: int) -> list[Action | Message]:
    """What a rank does, call by call; a message is in the lists of sender and receiver, and needs both at once."""
    calls = []
    for action in schedule.orders[rank]:
        received = (Message(producer, action) for producer in needs(schedule, action))
        calls += [m for m in received if schedule.rank_of(m.producer.stage) != rank]
        calls.append(action)
        calls += _sent_after(schedule, rank, action)
    return calls


def _messages_from(schedule: Schedule, rank: int) -> list[Message]:
    return [message for action in schedule.orders[rank] for message in _sent_after(schedule, rank, action)]


def _sent_after(schedule: Schedule, rank: int, action: Action) -> list[Message]:
    """The message with an action's result; none at the ends of the pipeline, or if it stays on the rank."""
    consumer = schedule.consumer(action)
    stays = consumer is None or schedule.rank_of(consumer.stage) == rank
    return [] if stays else [Message(action, consumer)]


def _waiting_for(schedule: Schedule, at: list[int], rank: int, times) -> Waiting:
    """Say what a rank waits for, and where that is in the schedule."""
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


def _stuck_in_call(schedule: Schedule, rank: int, call: Action | Message) -> Waiting:
    """Say in which blocking call a rank waits."""
    sends = isinstance(call, Message) and schedule.rank_of(call.producer.stage) == rank
    action = call if isinstance(call, Action) else call.producer if sends else call.consumer
    position, shown = schedule.place[action], schedule.short(action)
    if call is action:
        what = f"rank {rank} at position {position} cannot run {shown}: what it needs comes later in its own order"
        missing = next(b for b in needs(schedule, action) if schedule.place[b] > position and b.stage == action.stage)
        return Waiting(rank, position, action, what, rank, Arrow(missing, action))
    peer = schedule.rank_of((call.consumer if sends else call.producer).stage)
    verb, of = ("send", "to") if sends else ("receive", "from")
    data = "activations" if action.kind == "F" else "gradient"
    what = (
        f"rank {rank} at position {position} ({shown}) is stuck in the {verb} of micro-batch "
        f"{action.microbatch}'s {data} {of} rank {peer}"
    )
    return Waiting(rank, position, action, what, peer, Arrow(call.producer, call.consumer))
