"""A whole schedule: every rank's actions, from whatever form it was written in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from .action import Action, as_action, format, parse
from .orders import SCHEDULES

MAX_STAGES_PER_RANK = 128
"""A generator that gives more actions than so many stages need does not end."""

_LABEL = re.compile(r"^(?:rank|stage)?\s*(\d+)\s*:", re.IGNORECASE)


@dataclass(frozen=True, repr=False)
class Schedule:
    """What every rank does, in order; not yet known to be right (`check_schedule` says).

    Attributes
    ----------
    orders : tuple of tuple of Action
        By rank; every action names its stage.
    n_microbatches : int
    """

    orders: tuple[tuple[Action, ...], ...]
    n_microbatches: int

    @property
    def n_ranks(self) -> int:
        """Number of ranks."""
        return len(self.orders)

    @cached_property
    def n_stages(self) -> int:
        """Number of stages: one more than the highest that an action names."""
        return 1 + max((a.stage for order in self.orders for a in order), default=0)

    @cached_property
    def ranks_of(self) -> dict[int, list[int]]:
        """Ranks that run each stage: one of them, in a schedule that is right."""
        found: dict[int, set[int]] = {}
        for rank, order in enumerate(self.orders):
            for action in order:
                found.setdefault(action.stage, set()).add(rank)
        return {stage: sorted(found[stage]) for stage in sorted(found)}

    def rank_of(self, stage: int) -> int:
        """The rank that runs a stage."""
        return self.ranks_of[stage][0]

    def stages_of(self, rank: int) -> list[int]:
        """The stages that a rank runs, in order."""
        return sorted({a.stage for a in self.orders[rank]})

    @cached_property
    def place(self) -> dict[Action, int]:
        """Position of every action in its rank's order."""
        return {action: i for order in self.orders for i, action in enumerate(order)}

    @cached_property
    def simple(self) -> bool:
        """Whether every rank has the one stage of its own number, so that texts need not name it."""
        return all(a.stage == rank for rank, order in enumerate(self.orders) for a in order)

    def in_flight(self, rank: int) -> int:
        """Largest number of micro-batches (per stage) whose activations a rank holds at one time."""
        held = most = 0
        for action in self.orders[rank]:
            held += 1 if action.kind == "F" else -1
            most = max(most, held)
        return most

    def short(self, action: Action) -> Action:
        """Return an action as a text shows it: without its stage where ranks have only one."""
        return action._replace(stage=None) if self.simple else action

    @property
    def text(self) -> str:
        """The schedule as text: a line for each rank; `make_schedule` reads it back."""
        return "\n".join(format(map(self.short, order)) for order in self.orders)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__  # what a notebook shows


def make_schedule(schedule, n_ranks: int | None = None, n_microbatches: int | None = None, **options) -> Schedule:
    """Bring a schedule of any form into one: every rank's actions, each with its stage.

    Parameters
    ----------
    schedule : str, callable, list or Schedule
        A name ("gpipe", "1f1b", "interleaved", "pipedream"); a text with a line for each rank (`#` begins a comment,
        "rank 0:" may stand in front); a generator function of (rank, n_ranks, n_microbatches), or one that returns a
        list or a text; a list of each rank's actions or texts.
    n_ranks : int, optional
        Needed for names and generators; else checked.
    n_microbatches : int, optional
        Needed for names and generators; else one more than the highest in the schedule.
    **options
        Go to the generator: `n_virtual=3`.

    Raises
    ------
    ValueError, TypeError
        If it cannot be read; what can be read but not run, `check_schedule` finds.

    Examples
    --------
    >>> make_schedule('''F0 F1 B0 B1
    ...                  F0 B0 F1 B1''').n_ranks
    2
    >>> print(make_schedule("1f1b", 2, 3))
    F0 F1 B0 F2 B1 B2
    F0 B0 F1 B1 F2 B2
    """
    if isinstance(schedule, str) and schedule.strip() in SCHEDULES:
        schedule = SCHEDULES[schedule.strip()]
    if options and not callable(schedule):
        raise TypeError(
            f"make_schedule: {', '.join(options)} would go to a generator, but this schedule is written out"
        )
    if isinstance(schedule, Schedule):
        return _checked(schedule, n_ranks, n_microbatches)
    if callable(schedule):
        orders = _generate(schedule, n_ranks, n_microbatches, options)
    elif isinstance(schedule, str):
        orders = _read(schedule)
    elif hasattr(schedule, "__iter__") and not isinstance(schedule, (dict, bytes)):
        orders = [_listed(order, rank) for rank, order in enumerate(schedule)]
    else:
        raise TypeError(f"make_schedule: {schedule!r} is no schedule, expected a name, a text, a generator or a list")
    orders = tuple(
        tuple(_located(as_action(x, f"rank {rank}, position {i}"), rank) for i, x in enumerate(order))
        for rank, order in enumerate(orders)
    )
    highest = max((a.microbatch for order in orders for a in order), default=-1)
    made = Schedule(orders, highest + 1 if n_microbatches is None else n_microbatches)
    return _checked(made, n_ranks, n_microbatches)


def _listed(order, rank: int, limit: int | None = None) -> list:
    """One rank's actions, given as a text or as anything that can be gone through; no more of them than `limit`."""
    if isinstance(order, str):
        return parse(order)
    if not hasattr(order, "__iter__"):
        raise TypeError(f"rank {rank}: {order!r} is no list of actions, expected such as ['F0', 'B0']")
    return list(islice(order, limit))


def _located(action: Action, rank: int) -> Action:
    """An action that names its stage."""
    return action if action.stage is not None else action._replace(stage=rank)


def _checked(made: Schedule, n_ranks, n_microbatches) -> Schedule:
    """Raise unless the schedule is for so many ranks and micro-batches."""
    for what, want, got in (("ranks", n_ranks, made.n_ranks), ("micro-batches", n_microbatches, made.n_microbatches)):
        if want is not None and want != got:
            raise ValueError(f"the schedule's number of {what} is {got}, expected {want}")
    if not made.orders:
        raise ValueError("the schedule is empty, expected the actions of at least one rank")
    return made


def _generate(function, n_ranks, n_microbatches, options) -> list[list]:
    """Ask a generator function for every rank's actions; it may not go on for ever."""
    if n_ranks is None or n_microbatches is None:
        raise ValueError("make_schedule: a generator needs to know n_ranks and n_microbatches")
    for what, n in (("n_ranks", n_ranks), ("n_microbatches", n_microbatches)):
        if not hasattr(n, "__index__") or n < 1:
            raise ValueError(f"make_schedule: {what} is {n!r}, expected a whole number, 1 or more")
    limit = 2 * MAX_STAGES_PER_RANK * n_microbatches
    given = (function(rank, n_ranks, n_microbatches, **options) for rank in range(n_ranks))
    orders = [_listed(order, rank, limit + 1) for rank, order in enumerate(given)]
    for rank, order in enumerate(orders):
        if len(order) > limit:
            raise ValueError(f"rank {rank}: the generator gave more than {limit} actions, does it end?")
    return orders


def _read(text: str) -> list[list[Action]]:
    """Read a text, a line for each rank."""
    orders = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if label := _LABEL.match(line):
            if int(label[1]) != len(orders):
                raise ValueError(
                    f"line of rank {len(orders)}: it says {label[0]!r}, expected the ranks in order from 0"
                )
            line = line[label.end() :]
        elif not line:
            continue
        try:
            orders.append(parse(line))
        except ValueError as error:
            names = ", ".join(SCHEDULES)
            raise ValueError(f"line of rank {len(orders)}: {error}; schedules with a name: {names}") from None
    if not orders:
        raise ValueError(f"no actions in {text!r}, expected a line for each rank, or one of {', '.join(SCHEDULES)}")
    return orders
