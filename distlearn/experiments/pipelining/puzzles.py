"""Puzzles about pipeline schedules: given stages, costs and memory, write the order of work that ends first.

A schedule is scored by simulation, so that its score is the same everywhere. The best known times were found by
constraint programming (OR-tools CP-SAT), which also proved them to be the least for the stages' placement that the
solution has.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...parallel.pipeline.schedule import Report, Schedule, Simulated, check_schedule, make_schedule, simulate


@dataclass(frozen=True)
class Puzzle:
    """Stages with costs, ranks with memory, and a time to reach.

    Attributes
    ----------
    title : str
    n_ranks, n_microbatches : int
    forward, backward : tuple of float
        Seconds of every stage for one micro-batch.
    room : tuple of int
        By rank: activations that there is room for, one for each micro-batch and stage.
    target : float
        Seconds in which a solution must end.
    best : float
        The least time known.
    placed : bool
        Rank r has stage r and no other; else the schedule says which rank has which stages.
    halves : bool
        Backward may come in halves, I and W, each half as long.
    transfer : float
        Seconds of a message.
    """

    title: str
    n_ranks: int
    n_microbatches: int
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    room: tuple[int, ...]
    target: float
    best: float
    placed: bool = True
    halves: bool = False
    transfer: float = 0.0

    def costs(self) -> dict:
        """Keyword arguments of `simulate`."""
        return {"forward": self.forward, "backward": self.backward, "transfer": self.transfer}


PUZZLES = {
    1: Puzzle("Half the memory", 3, 4, (1, 1, 1), (2, 2, 2), (3, 2, 1), target=18, best=18),
    2: Puzzle("Slow links", 3, 6, (1, 1, 1), (2, 2, 2), (5, 3, 1), target=29, best=28, transfer=1),
    3: Puzzle("Uneven stages", 2, 6, (1, 2, 1), (2, 4, 2), (4, 4), target=40, best=39, placed=False),
    4: Puzzle("Smaller bubble", 4, 6, (1,) * 4, (2,) * 4, (4, 3, 3, 3), target=23, best=22, halves=True),
    5: Puzzle(
        "Less memory and less time", 3, 4, (1,) * 6, (2,) * 6, (4,) * 3, target=31, best=29, placed=False, halves=True
    ),
}
"""The puzzles of lab 10, by number."""


@dataclass(frozen=True, repr=False)
class Score:
    """What a schedule is worth as the solution of a puzzle.

    Attributes
    ----------
    puzzle : Puzzle
    report : Report
        What the checker found.
    problems : list of str
        What is wrong, in words; empty if the schedule is a solution, whatever its time.
    run : Simulated or None
        Also of a schedule that needs too much memory or deadlocks; None if it cannot be simulated.
    memory : list of int
        By rank: the most activations that are held at one time.
    """

    puzzle: Puzzle
    report: Report
    problems: list[str]
    run: Simulated | None
    memory: list[int]

    @property
    def ok(self) -> bool:
        """Whether it is a solution that reaches the target."""
        return not self.problems and self.run.makespan <= self.puzzle.target

    @property
    def points(self) -> float:
        """100 times the best known time over this one's; 0 for what is not a solution."""
        return 0.0 if self.problems else 100 * self.puzzle.best / self.run.makespan

    def __str__(self) -> str:
        if self.problems:
            return "\n".join([f"{self.puzzle.title}: no solution yet", *(f"  {p}" for p in self.problems)])
        p = self.puzzle
        held = ", ".join(f"{n} of {room}" for n, room in zip(self.memory, p.room, strict=True))
        return (
            f"{p.title}: time {self.run.makespan:g} (target {p.target:g}, best known {p.best:g}), bubble "
            f"{self.run.bubble:.0%}, held {held}: {self.points:.0f} points"
        )

    __repr__ = __str__  # shown in a notebook


def score(puzzle: Puzzle, schedule) -> Score:
    """Check and simulate a schedule as the solution of a puzzle.

    Parameters
    ----------
    puzzle : Puzzle
    schedule : str, list or Schedule
        Any form that `make_schedule` takes.

    Returns
    -------
    score : Score

    Raises
    ------
    ValueError
        If it is not a schedule for this number of ranks and micro-batches.

    Examples
    --------
    >>> score(PUZZLES[1], "gpipe")
    Half the memory: no solution yet
      rank 0 holds 4 activations, there is room for 3
      rank 1 holds 4 activations, there is room for 2
      rank 2 holds 4 activations, there is room for 1
    """
    made = make_schedule(schedule, puzzle.n_ranks, puzzle.n_microbatches)
    report = check_schedule(made)
    problems = [str(f) for f in report.findings] or _breaks(puzzle, made)
    memory = report.in_flight
    if not report.findings:
        problems += [
            f"rank {rank} holds {n} activations, there is room for {room}"
            for rank, (n, room) in enumerate(zip(memory, puzzle.room, strict=True))
            if n > room
        ]
    can_run = made.n_stages == len(puzzle.forward) and {f.problem for f in report.findings} <= {"deadlock", "order"}
    run = simulate(made, **puzzle.costs(), allow_deadlock=True) if can_run else None
    return Score(puzzle, report, problems, run, memory)


def _breaks(puzzle: Puzzle, made: Schedule) -> list[str]:
    """Rules of the puzzle that a valid schedule breaks."""
    problems = []
    if made.n_stages != len(puzzle.forward):
        problems.append(f"it has {made.n_stages} stages, expected {len(puzzle.forward)}")
    elif puzzle.placed and not made.simple:
        problems.append("here rank r has stage r and no other")
    if not puzzle.halves and any(a.kind in "IW" for order in made.orders for a in order):
        problems.append("here backward is one action, B")
    return problems
