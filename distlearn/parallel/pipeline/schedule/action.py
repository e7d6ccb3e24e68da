"""The one thing that a pipeline schedule is made of, and how it is written: `F0 F1 B0 B1`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

KINDS = ("F", "B")

_TOKEN = re.compile(r"(?:(\d+))?([FB])(\d+)", re.IGNORECASE)
_IDLE = re.compile(r"[.\-]+")


class Action(NamedTuple):
    """One micro-batch's way through one stage, forward or backward.

    Examples
    --------
    >>> Action("F", 3), str(Action("B", 0, stage=2))
    (Action(kind='F', microbatch=3, stage=None), '2B0')
    """

    kind: str
    """"F" for forward, "B" for backward."""
    microbatch: int
    """From 0."""
    stage: int | None = None
    """Which stage of the whole pipeline, from 0; None for a rank that has only one: the stage of its own number."""

    def __str__(self) -> str:
        return f"{'' if self.stage is None else self.stage}{self.kind}{self.microbatch}"


def parse(text: str) -> list[Action]:
    """Read one rank's schedule from its text: `F0 F1 B0 B1`, or `0F0 2F0 2B0 0B0` where a rank has several stages.

    Parameters
    ----------
    text : str
        Actions apart by spaces or commas: stage (optional), F or B, micro-batch, as PyTorch writes them. A word of dots
        or dashes is idle time, for those who align columns, and is passed over.

    Returns
    -------
    actions : list of Action

    Raises
    ------
    ValueError
        Naming the word that is no action, and its position (from 0).

    References
    ----------
    PyTorch, `torch/distributed/pipelining/schedules.py`: `_Action.from_str`.

    Examples
    --------
    >>> parse("F0 F1 .. B0")
    [Action(kind='F', microbatch=0, stage=None), Action(kind='F', microbatch=1, stage=None), \
Action(kind='B', microbatch=0, stage=None)]
    >>> format(parse("1F0,1B0"))
    '1F0 1B0'
    """
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


def as_action(x, where: str) -> Action:
    """Return what a schedule gave as an `Action`: an `Action`, a tuple like one, or its text; else say `where`."""
    if isinstance(x, str):
        found = parse(x)
        if len(found) == 1:
            return found[0]
    elif isinstance(x, tuple) and 2 <= len(x) <= 3 and x[0] in KINDS:
        numbers = [n for n in x[1:] if n is not None]
        if x[1] is not None and all(hasattr(n, "__index__") and n >= 0 for n in numbers):
            return Action(x[0], *(None if n is None else int(n) for n in x[1:]))
    raise ValueError(f'{where}: {x!r} is no action, expected such as Action("F", 0): a kind of F or B, then numbers')
