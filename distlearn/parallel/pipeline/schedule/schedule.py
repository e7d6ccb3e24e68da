"""A pipeline schedule: actions, written `F0 F1 B0 B1`, one line of them for each rank."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

LANE = "stage"
"""The lane of a trace on which spans are whole actions; the layers inside are on "compute"."""
KINDS = ("F", "B", "I", "W")
"""Forward, backward, and backward in two halves: the gradient of the input, for which the stage before waits, and that
of the weights, for which no other rank waits."""

HELD = {"F": 1, "B": -1, "I": 0, "W": -1}
"""By how many an action changes the micro-batches whose activations a rank holds."""

_TOKEN = re.compile(r"(?:(\d+))?([FBIW])(\d+)", re.IGNORECASE)
_IDLE = re.compile(r"[.\-]+")


class Action(NamedTuple):
    """One micro-batch's pass through one stage: forward, backward, or one half of backward.

    Examples
    --------
    >>> Action("F", 3), str(Action("B", 0, stage=2))
    (Action(kind='F', microbatch=3, stage=None), '2B0')
    """

    kind: str
    """"F" for forward, "B" for backward; "I" and "W" for its halves: the gradient of the input, that of the weights."""
    microbatch: int
    """From 0."""
    stage: int | None = None
    """Which stage of the whole pipeline, from 0; None for a rank that has only one: the stage of its own number."""

    def __str__(self) -> str:
        return f"{'' if self.stage is None else self.stage}{self.kind}{self.microbatch}"


def parse(text: str) -> list[Action]:
    """Read one rank's schedule from its text: `F0 F1 B0 B1`, or `0F0 2F0 2B0 0B0` where a rank has several stages."""
    actions = []
    for i, word in enumerate(text.replace(",", " ").split()):
        if _IDLE.fullmatch(word):
            continue
        match = _TOKEN.fullmatch(word)
        if match is None:
            raise ValueError(f"parse: word {i} is {word!r}, expected an action such as F0 or B12 (with a stage: 2F0)")
        stage, kind, microbatch = match.groups()
        actions.append(Action(kind.upper(), int(microbatch), None if stage is None else int(stage)))
    return actions


def format(actions: Iterable[Action]) -> str:
    """Write one rank's schedule as text; `parse` reads it back.

    Examples
    --------
    >>> format([Action("F", 0), Action("B", 0)])
    'F0 B0'
    """
    return " ".join(map(str, actions))


@dataclass(frozen=True, repr=False)
class Schedule:
    """The actions of every rank, in order; not yet checked (see `check_schedule`).

    Attributes
    ----------
    orders : tuple of tuple of Action
        By rank; every action names its stage.
    """

    orders: tuple[tuple[Action, ...], ...]
    n_microbatches: int

    @property
    def n_ranks(self) -> int:
        return len(self.orders)

    @cached_property
    def n_stages(self) -> int:
        return 1 + max((a.stage for order in self.orders for a in order), default=0)

    @cached_property
    def ranks_of(self) -> dict[int, list[int]]:
        """Ranks that run each stage: exactly one, in a valid schedule."""
        found: dict[int, set[int]] = {}
        for rank, order in enumerate(self.orders):
            for action in order:
                found.setdefault(action.stage, set()).add(rank)
        return {stage: sorted(found[stage]) for stage in sorted(found)}

    def rank_of(self, stage: int) -> int:
        return self.ranks_of[stage][0]

    def stages_of(self, rank: int) -> list[int]:
        return sorted({a.stage for a in self.orders[rank]})

    @cached_property
    def place(self) -> dict[Action, int]:
        return {action: i for order in self.orders for i, action in enumerate(order)}

    @cached_property
    def simple(self) -> bool:
        """Whether every rank has the one stage of its own number, so that texts need not name it."""
        return all(a.stage == rank for rank, order in enumerate(self.orders) for a in order)

    def producer(self, action: Action) -> Action | None:
        """The action on a neighbouring stage whose result another one consumes; None for the first of them, and W."""
        return self._neighbour(action, -1 if action.kind == "F" else 1)

    def consumer(self, action: Action) -> Action | None:
        """The action on a neighbouring stage that consumes the result of another one; None for the last, and for W."""
        return self._neighbour(action, 1 if action.kind == "F" else -1)

    def _neighbour(self, action: Action, step: int) -> Action | None:
        stage = action.stage + step
        if action.kind == "W" or not 0 <= stage < self.n_stages:
            return None
        return Action("F", action.microbatch, stage) if action.kind == "F" else self.backward(action.microbatch, stage)

    def backward(self, microbatch: int, stage: int) -> Action:
        """The action that computes the gradient of a stage's input: B, or I where backward comes in two halves."""
        half = Action("I", microbatch, stage)
        return half if half in self.place else Action("B", microbatch, stage)

    def in_flight(self, rank: int) -> int:
        """Largest number of micro-batches (per stage) whose activations a rank holds at one time."""
        return max(accumulate((HELD[a.kind] for a in self.orders[rank]), initial=0))

    def short(self, action: Action) -> Action:
        """Return an action as a text shows it: without its stage where ranks have only one."""
        return action._replace(stage=None) if self.simple else action

    def span_name(self, action: Action, alone: bool = True) -> str:
        """Name of an action's span: "F[3]", or "F[3 of stage 2]" where the rank's number is not its stage."""
        # alone: the trace has no other ranks than the schedule
        where = "" if self.simple and alone else f" of stage {action.stage}"
        return f"{action.kind}[{action.microbatch}{where}]"

    @property
    def csv(self) -> str:
        """The schedule as a CSV file, a row for each rank, as PyTorch's pipelining reads it ("compute_only")."""
        return "\n".join(",".join(map(str, order)) for order in self.orders)

    @property
    def text(self) -> str:
        """The schedule as text: a line for each rank; `make_schedule` reads it back."""
        return "\n".join(format(map(self.short, order)) for order in self.orders)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__  # what a notebook shows
