"""Checks of students' schedules: order by order against a known one, or as the solution of a puzzle."""

from __future__ import annotations

from ...parallel.pipeline.schedule import check_schedule, format, make_schedule, parse
from .puzzles import PUZZLES, score


def judge_orders(check, function, known, n_ranks: int, n_microbatches: int, mistakes=None, **options) -> None:
    """Compare a generator of one rank's actions with a known one, rank by rank.

    Parameters
    ----------
    check : Check
        Of the cell, which reports.
    function : callable
        function(rank, n_ranks, n_microbatches, **options) yields texts such as "F0", or returns a list of them.
    known : callable
        Of the library.
    n_ranks, n_microbatches : int
    mistakes : dict of str to callable, optional
        Generators with a known mistake, by what is wrong with them.
    **options
        Go to the generators: `n_virtual=2`.
    """

    def rows(made) -> list[str]:
        return [
            format(a._replace(stage=a.stage if options else None) for a in order)
            for order in make_schedule(made, n_ranks, n_microbatches, **options).orders
        ]

    more = [f"{name} {value}" for name, value in options.items()]
    where = ", ".join([f"{n_ranks} ranks", f"{n_microbatches} micro-batches", *more])
    want = rows(known)
    wrong = {text: rows(mistaken) for text, mistaken in (mistakes or {}).items()}
    got = []
    for rank in range(n_ranks):
        given = check.call(function, rank, n_ranks, n_microbatches, **options)
        given = [] if given is None else given.split() if isinstance(given, str) else [str(a) for a in given]
        got.append(format(parse(" ".join(given))))
        suspects = {text: mistaken[rank] for text, mistaken in wrong.items()}
        check.equal(f"rank {rank} ({where})", got[-1], want[rank], suspects=suspects)
    if got == want:
        return
    try:
        findings = check_schedule(got, n_ranks, n_microbatches).findings
    except ValueError as error:
        findings = [error]
    for finding in findings[:1]:
        check.true("the checker", False, str(finding))


def judge_puzzle(check, number: int, schedule) -> None:
    """Check that a schedule solves a puzzle and reaches its target.

    Parameters
    ----------
    check : Check
    number : int
        In `PUZZLES`.
    schedule : str or list
    """
    puzzle = PUZZLES[number]
    if not isinstance(schedule, (str, list, tuple)):
        check.true(f"puzzle {number}", False, f"expected a text, a line for each rank, got {type(schedule).__name__}")
        return
    try:
        found = score(puzzle, schedule if isinstance(schedule, str) else list(schedule))
    except (ValueError, TypeError) as error:
        check.true(f"puzzle {number}", False, str(error))
        return
    check.true(f"puzzle {number} is solved", not found.problems, "; ".join(found.problems[:2]))
    if not found.problems:
        late = f"time {found.run.makespan:g}, expected {puzzle.target:g} or less (best known: {puzzle.best:g})"
        check.true(f"puzzle {number} reaches its target", found.ok, late)
