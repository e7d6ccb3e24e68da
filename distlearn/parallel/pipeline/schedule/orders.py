"""The schedules of the literature, as generators of one rank's actions in order, and the forms in which a user can
write one.

With p ranks and m micro-batches, each of cost f forward and b backward on every rank:

=================  ==================  ===========================  ==========================================
schedule           bubble (share)      activations in flight        weights
=================  ==================  ===========================  ==========================================
`gpipe`            (p-1) / (m+p-1)     m                            updated once, after all micro-batches
`one_f_one_b`      (p-1) / (m+p-1)     min(p - stage, m)            updated once
`interleaved`      (p-1) / (v m+p-1)   about p (1 + (p-1) / (p v))  updated once; v stages a rank
`zero_bubble`      about a third        p                            updated once; backward in halves
`pipedream`        falls to 0          p - stage                    updated after every B, stale by p - stage - 1
=================  ==================  ===========================  ==========================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ....bounds import check_positive
from .schedule import KINDS, Action, Schedule, parse

MAX_STAGES_PER_RANK = 128
"""A generator that yields more actions than this number of stages needs does not end."""

_LABEL = re.compile(r"^(?:rank|stage)?\s*(\d+)\s*:", re.IGNORECASE)


def _check(name: str, rank: int, n_ranks: int, n_microbatches: int, what: str = "stage") -> None:
    if not 0 <= rank < n_ranks:
        raise ValueError(f"{name}: {what} is {rank!r}, expected 0 to {n_ranks - 1} (there are {n_ranks})")
    check_positive(name, n_microbatches=n_microbatches)


def gpipe(stage: int, n_stages: int, n_microbatches: int) -> Iterator[Action]:
    """All micro-batches forward, then all of them backward.

    Simple, and memory grows with the number of micro-batches: all of their activations are in flight at once. Backward
    takes them in the same order as forward (the paper's figure uses the opposite order, which costs the same).

    References
    ----------
    Y. Huang et al. (2019), GPipe: efficient training of giant neural networks using pipeline parallelism, NeurIPS,
    figure 2(c).

    Examples
    --------
    >>> from distlearn.parallel.pipeline.schedule import format
    >>> format(gpipe(0, 2, 3))
    'F0 F1 F2 B0 B1 B2'
    """
    _check("gpipe", stage, n_stages, n_microbatches)
    for kind in ("F", "B"):
        for i in range(n_microbatches):
            yield Action(kind, i)


def one_f_one_b(stage: int, n_stages: int, n_microbatches: int) -> Iterator[Action]:
    """Fill the pipeline, then one forward, one backward: activations are freed as soon as their gradient can be
    computed.

    The bubble is GPipe's; at most p - stage micro-batches are in flight, however many there are.

    References
    ----------
    D. Narayanan et al. (2019), PipeDream: generalized pipeline parallelism for DNN training, SOSP, section 3.2. With a
    flush: D. Narayanan et al. (2021), Efficient large-scale language model training on GPU clusters using Megatron-LM,
    SC, section 2.2.1.

    Examples
    --------
    >>> from distlearn.parallel.pipeline.schedule import format
    >>> for stage in range(2):
    ...     print(format(one_f_one_b(stage, 2, 3)))
    F0 F1 B0 F2 B1 B2
    F0 B0 F1 B1 F2 B2
    """
    _check("one_f_one_b", stage, n_stages, n_microbatches)
    ahead = min(n_stages - stage - 1, n_microbatches)
    for i in range(ahead):
        yield Action("F", i)
    for i in range(n_microbatches):
        if i + ahead < n_microbatches:
            yield Action("F", i + ahead)
        yield Action("B", i)


def interleaved(rank: int, n_ranks: int, n_microbatches: int, n_virtual: int = 2) -> Iterator[Action]:
    """1F1B with several stages a rank: the pipeline fills v times as fast, for v times the messages.

    Rank r has the stages r, r + p, r + 2 p, ...; micro-batches go round in groups of p.

    The number of micro-batches must be a multiple of the number of ranks: else the last group would leave ranks idle
    or, worse, deadlocked.

    References
    ----------
    D. Narayanan et al. (2021), Efficient large-scale language model training on GPU clusters using Megatron-LM, SC,
    section 2.2.2.

    Examples
    --------
    >>> from distlearn.parallel.pipeline.schedule import format
    >>> for rank in range(2):
    ...     print(format(interleaved(rank, 2, 2)))
    0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1
    1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1
    """
    _check("interleaved", rank, n_ranks, n_microbatches, "rank")
    check_positive("interleaved", n_virtual=n_virtual)
    if n_microbatches % n_ranks:
        raise ValueError(f"interleaved: n_microbatches is {n_microbatches}, expected a multiple of the {n_ranks} ranks")
    groups = range(0, n_microbatches, n_ranks)
    order = [(chunk, first + i) for first in groups for chunk in range(n_virtual) for i in range(n_ranks)]
    ahead = min(2 * (n_ranks - rank - 1) + (n_virtual - 1) * n_ranks, len(order))
    forward = [Action("F", i, rank + chunk * n_ranks) for chunk, i in order]
    backward = [Action("B", i, rank + (n_virtual - 1 - chunk) * n_ranks) for chunk, i in order]
    yield from forward[:ahead]
    for i, action in enumerate(backward):
        yield from forward[ahead + i : ahead + i + 1]
        yield action


def zero_bubble(stage: int, n_stages: int, n_microbatches: int) -> Iterator[Action]:
    r"""1F1B with backward in halves: the weights' gradients, which no other rank waits for, fill the bubble (ZB-H1).

    A rank leaves the weights' gradients of as many micro-batches for later as its stage's number, and computes them
    while it would wait. With forward and both halves equally long the bubble is a third of 1F1B's:
    :math:`(p - 1)(f + b_I - b_W)` instead of :math:`(p - 1)(f + b_I + b_W)`. Every rank holds up to p micro-batches, as
    the first one does in 1F1B.

    References
    ----------
    P. Qi, X. Wan, G. Huang, M. Lin (2023), Zero bubble pipeline parallelism, arXiv:2401.10241, section 2.1, figure 3.

    Examples
    --------
    >>> from distlearn.parallel.pipeline.schedule import format
    >>> for stage in range(2):
    ...     print(format(zero_bubble(stage, 2, 3)))
    F0 F1 I0 W0 F2 I1 W1 I2 W2
    F0 I0 F1 I1 W0 F2 I2 W1 W2
    """
    _check("zero_bubble", stage, n_stages, n_microbatches)
    ahead = min(n_stages - stage - 1, n_microbatches)
    for i in range(ahead):
        yield Action("F", i)
    for i in range(n_microbatches):
        if i + ahead < n_microbatches:
            yield Action("F", i + ahead)
        yield Action("I", i)
        if i >= stage:
            yield Action("W", i - stage)
    for i in range(max(0, n_microbatches - stage), n_microbatches):
        yield Action("W", i)


def pipedream(stage: int, n_stages: int, n_microbatches: int) -> Iterator[Action]:
    """1F1B without a flush: every B also updates the stage's weights, so that the pipeline never runs empty.

    The order is that of `one_f_one_b`; but B includes an update, and every micro-batch is a mini-batch of its own.
    Run it with `PipeDream`, which stashes the weights that each mini-batch went forward with.

    References
    ----------
    D. Narayanan et al. (2019), PipeDream: generalized pipeline parallelism for DNN training, SOSP, sections 3.2 and
    3.3.
    """
    yield from one_f_one_b(stage, n_stages, n_microbatches)


SCHEDULES = {
    "gpipe": gpipe,
    "1f1b": one_f_one_b,
    "interleaved": interleaved,
    "zero_bubble": zero_bubble,
    "pipedream": pipedream,
}
"""Schedules by name."""


def make_schedule(
    schedule: Any, n_ranks: int | None = None, n_microbatches: int | None = None, **options: Any
) -> Schedule:
    """Convert a schedule of any form: every rank's actions, each with its stage.

    Parameters
    ----------
    schedule : str, callable, list or Schedule
        A name ("gpipe", "1f1b", "interleaved", "zero_bubble", "pipedream"); a text with a line for each rank (`#`
        begins a comment, an optional "rank 0:" in front), or the rows of a CSV file; a generator function of (rank,
        n_ranks, n_microbatches), or one that returns a list or a text; a list of each rank's actions or texts.
    n_ranks, n_microbatches : int, optional
        Needed for names and generators; else checked.
    **options
        Go to the generator: `n_virtual=3`.

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
        raise TypeError(f"make_schedule: {', '.join(options)} are for a generator, but this schedule is written out")
    if isinstance(schedule, Schedule):
        return _checked(schedule, n_ranks, n_microbatches)
    if callable(schedule):
        orders = _generate(schedule, n_ranks, n_microbatches, options)
    elif isinstance(schedule, str):
        orders = _read(schedule)
    elif hasattr(schedule, "__iter__") and not isinstance(schedule, (dict, bytes)):
        orders = [_listed(order, rank) for rank, order in enumerate(schedule)]
    else:
        raise TypeError(f"make_schedule: {schedule!r} is not a schedule, expected a name, text, generator or list")
    orders = tuple(
        tuple(_as_action(x, rank, position) for position, x in enumerate(order)) for rank, order in enumerate(orders)
    )
    highest = max((a.microbatch for order in orders for a in order), default=-1)
    made = Schedule(orders, highest + 1 if n_microbatches is None else n_microbatches)
    return _checked(made, n_ranks, n_microbatches)


def _listed(order, rank: int, limit: int | None = None) -> list[Any]:
    """One rank's actions, given as a text or any iterable; at most `limit` of them."""
    if isinstance(order, str):
        return parse(order)
    if not hasattr(order, "__iter__"):
        raise TypeError(f"rank {rank}: {order!r} is not a list of actions, expected for example ['F0', 'B0']")
    return list(islice(order, limit))


def _checked(made: Schedule, n_ranks, n_microbatches) -> Schedule:
    """Raise unless the schedule has these numbers of ranks and micro-batches."""
    for what, want, got in (("ranks", n_ranks, made.n_ranks), ("micro-batches", n_microbatches, made.n_microbatches)):
        if want is not None and want != got:
            raise ValueError(f"the schedule's number of {what} is {got}, expected {want}")
    if not made.orders:
        raise ValueError("the schedule is empty, expected the actions of at least one rank")
    return made


def _generate(function, n_ranks, n_microbatches, options) -> list[list]:
    """Ask a generator function for every rank's actions; it must end."""
    if n_ranks is None or n_microbatches is None:
        raise ValueError("make_schedule: a generator needs to know n_ranks and n_microbatches")
    check_positive("make_schedule", n_ranks=n_ranks, n_microbatches=n_microbatches)
    limit = 3 * MAX_STAGES_PER_RANK * n_microbatches
    given = (function(rank, n_ranks, n_microbatches, **options) for rank in range(n_ranks))
    orders = [_listed(order, rank, limit + 1) for rank, order in enumerate(given)]
    for rank, order in enumerate(orders):
        if len(order) > limit:
            raise ValueError(f"rank {rank}: the generator gave more than {limit} actions, does it end?")
    return orders


def _read(text: str) -> list[list[Action]]:
    orders = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if label := _LABEL.match(line):
            if int(label[1]) != len(orders):
                raise ValueError(f"line of rank {len(orders)}: it says {label[0]!r}, expected ranks in order from 0")
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


def _as_action(x, rank: int, position: int) -> Action:
    """Convert an `Action`, a tuple like one, or its text to an `Action` with its stage; raise if it is none."""
    found = parse(x) if isinstance(x, str) else [x]
    if len(found) == 1 and isinstance(found[0], tuple) and 2 <= len(found[0]) <= 3 and found[0][0] in KINDS:
        kind, microbatch, stage = (*found[0], None)[:3]
        stage = rank if stage is None else stage
        if all(hasattr(n, "__index__") and n >= 0 for n in (microbatch, stage)):
            return Action(kind, int(microbatch), int(stage))
    raise ValueError(f'rank {rank}, position {position}: {x!r} is not an action, expected for example Action("F", 0)')
