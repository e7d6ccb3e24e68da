"""Pipelines: schedules as puzzles with a score, on real ranks, without a flush, and with normalisation."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from distlearn.data import Batch, load
from distlearn.nn import MLP, BatchNorm, LayerNorm, Linear, ReLU, Sequential, SoftmaxCrossEntropy
from distlearn.nn.layer import Layer, Param
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import PipeDream, Pipeline
from distlearn.parallel.pipeline.schedule import (
    SCHEDULES,
    Schedule,
    Simulated,
    actions_of,
    check_schedule,
    format,
    make_schedule,
    measured_bubble,
    parse,
    simulate,
)
from distlearn.parallel.pipeline.schedule.timing import stage_costs
from distlearn.sim import SimWorld
from distlearn.trace import Trace
from distlearn.train import fit

from .exercise import named
from .lab07 import first_ranks

# -- Schedules on real ranks: stages that take a given time, and what was measured beside what was simulated.


class StandIn(Layer):
    """A layer that takes a given time and passes its input on: a stand-in for work on an accelerator."""

    # The process sleeps meanwhile, as it would while a GPU computes, so that more ranks than cores do not take turns.

    splits = True

    def __init__(self, forward: float, input_gradient_seconds: float, weight_gradient_seconds: float):
        self.seconds = forward, input_gradient_seconds, weight_gradient_seconds
        self.b = Param(np.zeros(1, "float32"), "b")
        self.params = [self.b]

    def forward(self, x):
        time.sleep(self.seconds[0])
        return x + self.b.data, None

    def backward(self, dy, saved, later=None):
        time.sleep(self.seconds[1] + (self.seconds[2] if later is None else 0))
        if later is not None:
            later.append((time.sleep, self.seconds[2]))
        return dy


class Measured(NamedTuple):
    """One step of a schedule on real ranks, beside the simulated one."""

    simulated: Simulated
    trace: Trace
    """Of the step."""
    in_flight: list[int]
    """By rank: the most micro-batches (per stage) whose activations were held at one time."""

    @property
    def makespan(self) -> float:
        """Seconds from the first start of an action to the last end."""
        return max(s.end for s in self.trace) - min(s.start for s in self.trace)

    @property
    def bubble(self) -> float:
        """Share of the ranks' time in which they ran no action."""
        return measured_bubble(self.trace)


def run_stand_ins(comm, schedule: str, seconds) -> tuple[float, int]:
    """Train one step on stand-ins; return when it began, and this rank's activations in flight."""
    made = make_schedule(schedule)
    model = Sequential(*(StandIn(*three) for three in seconds))
    stages = [slice(i, i + 1) for i in range(len(seconds))]
    optimizer = Optimizer(model.params, SGD(), 0.1)
    loss = lambda output, labels, n: (float(output.sum()) / n, np.full_like(output, 1 / n))  # noqa: E731
    strategy = Pipeline(comm, model, loss, optimizer, schedule=made, stages=stages)
    m = made.n_microbatches
    batch = Batch(np.zeros((m, 1), "float32"), np.zeros(m, int), m)
    strategy.predict(batch.x)  # agrees on shapes
    comm.barrier()
    start = comm.clock.now()
    strategy.step(batch)
    return start, strategy.peak_in_flight


def measure_schedule(world, schedule, *, unit: float = 0.01, transfer: float = 0.0, **costs) -> Measured:
    """Run one step of a schedule on the ranks of a world, with stages that take as long as in the simulation.

    Parameters
    ----------
    world : EngineWorld
        With as many ranks as the schedule, or more: the others do nothing.
    schedule : str, list or Schedule
        Any form that `make_schedule` takes without further arguments.
    unit : float
        Real seconds of one second of the costs.
    transfer : float
        Of the simulation alone: real messages take what they take.
    **costs
        `forward=`, `backward=` as for `simulate`.
    """
    made = make_schedule(schedule)
    simulated = simulate(made, transfer=transfer, **costs)
    by_kind = stage_costs(made, **costs)
    seconds = [tuple(unit * t for t in three) for three in zip(*(by_kind[kind] for kind in "FIW"), strict=True)]
    found = world.run(first_ranks, made.n_ranks, run_stand_ins, made.csv, seconds)[: made.n_ranks]
    start = min(begin for begin, _ in found)
    spans = [s for s in world.trace.select(lane="stage") if s.start >= start]
    return Measured(simulated, Trace(spans), [held for _, held in found])


# -- Puzzles about pipeline schedules: given stages, costs and memory, write the order of work that ends first.


@dataclass(frozen=True)
class Puzzle:
    """Stages with costs, ranks with memory, and a time to reach.

    Attributes
    ----------
    forward, backward : tuple of float
        Seconds of every stage for one micro-batch.
    room : tuple of int
        By rank: activations that there is room for, one for each micro-batch and stage.
    target : float
        Seconds in which a solution must end.
    best : float
        The least time of any schedule.
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
    4: Puzzle(
        "Less memory and less time", 3, 4, (1,) * 6, (2,) * 6, (4,) * 3, target=31, best=29, placed=False, halves=True
    ),
}
"""The puzzles of lab 10, by number.

The CP-SAT solver of OR-tools (9.15) proves in 20 s that no schedule ends before `best`, in puzzles 3 and 4 with any
placement of the stages.
"""


@dataclass(frozen=True, repr=False)
class Score:
    """What a schedule is worth as the solution of a puzzle."""

    puzzle: Puzzle
    problems: list[str]
    run: Simulated | None
    memory: list[int]

    @property
    def ok(self) -> bool:
        """Whether it is a solution that reaches the target."""
        return not self.problems and self.run.makespan <= self.puzzle.target

    @property
    def points(self) -> float:
        """100 times the best time over this one's; 0 for what is not a solution."""
        return 0.0 if self.problems else 100 * self.puzzle.best / self.run.makespan

    def __str__(self) -> str:
        if self.problems:
            return "\n".join([f"{self.puzzle.title}: no solution yet", *(f"  {p}" for p in self.problems)])
        p = self.puzzle
        held = ", ".join(f"{n} of {room}" for n, room in zip(self.memory, p.room, strict=True))
        return (
            f"{p.title}: time {self.run.makespan:g} (target {p.target:g}, best {p.best:g}), bubble "
            f"{self.run.bubble:.0%}, held {held}: {self.points:.0f} points"
        )

    __repr__ = __str__  # shown in a notebook


def score(puzzle: Puzzle, schedule) -> Score:
    """Check and simulate a schedule as the solution of a puzzle.

    Parameters
    ----------
    schedule : str, list or Schedule
        Any form that `make_schedule` takes.

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
    return Score(puzzle, problems, run, memory)


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


# -- What checks take from answers: orders of actions, puzzles' solutions, a stage that stashes its weights.


def _orders(generator, p: int, m: int, *more) -> dict:
    """The actions of each rank as texts, and what is wrong with them by themselves."""
    rows = []
    for rank in range(p):
        given = generator(rank, p, m, *more)
        given = [] if given is None else given.split() if isinstance(given, str) else list(given)
        other = next((a for a in given if not isinstance(a, str) or " " in a), None)
        if other is not None:  # what the library yields, or a whole line
            return {"actions": f"a {type(other).__name__}, not the text of one action"}
        try:
            rows.append(format(parse(" ".join(given))))
        except ValueError as error:
            return {"actions": str(error)}
    try:
        findings = check_schedule(rows, p, m).findings
    except ValueError as error:
        findings = [error]
    said = {"actions": "a text for each", "the checker says": str(findings[0]) if findings else "nothing"}
    return said | {f"rank {rank}": row for rank, row in enumerate(rows)}


def run_generators(one_f_one_b, p, m):
    return _orders(one_f_one_b, p, m)


def run_interleaved(interleaved, p, m, v):
    return _orders(interleaved, p, m, v)


def run_predicted(predicted, held_by_1f1b, of, **case):
    got = {"predicted": predicted, "held_by_1f1b": held_by_1f1b}[of](*case.values())
    if of == "held_by_1f1b":
        return {"held": _listed(got)}
    return named(got, "seconds", "bubble")


def run_run_stage(run_stage, order, lr, seed):
    """Run an order on a quadratic function for every mini-batch."""
    rng, order = np.random.default_rng(seed), order.split()
    start, steep, low = rng.normal(size=3), rng.uniform(0.5, 2, size=(20, 3)), rng.normal(size=(20, 3))
    got = run_stage(order, start, lambda i, w: steep[i] * (w - low[i]), lr)
    found = named(got, "weights", "staleness", "versions")
    return found | {"staleness": _listed(found["staleness"])}


def _listed(numbers):
    """A tuple or an array as a list."""
    return list(numbers) if isinstance(numbers, (tuple, np.ndarray)) else numbers


def _solved(number: int, schedule, seed) -> dict:
    """Whether a schedule is a solution of a puzzle that reaches the target; with a seed, what a model learns by it."""
    puzzle, name = PUZZLES[number], f"puzzle {number}"
    try:
        if isinstance(schedule, str) and schedule.strip() in SCHEDULES:
            raise ValueError(f"{schedule.strip()!r} is the name of a schedule of the library")
        if not isinstance(schedule, (str, list, tuple)):
            raise TypeError(f"a {type(schedule).__name__}, not a text with one line per rank")
        made = make_schedule(schedule)
        found = score(puzzle, made)
    except (ValueError, TypeError) as error:
        return {name: str(error)}
    if found.problems:
        return {name: "; ".join(found.problems[:2])}
    if not found.ok:
        return {name: f"time {found.run.makespan:g}, the target is {puzzle.target:g}{longest_wait(found.run)}"}
    return {name: "solved"} | ({} if seed is None else {f"{name}, losses of three steps": losses_by(made, seed)})


def longest_wait(run: Simulated) -> str:
    """Say between which of its actions a rank waits longest, and for what; "" if none does."""
    made, actions = run.schedule, sorted(actions_of(run.trace), key=lambda a: (a.rank, a.start))
    waits = [(b.start - a.end, a, b) for a, b in pairwise(actions) if a.rank == b.rank]
    seconds, before, after = max(waits, key=lambda wait: wait[0])
    if not seconds:
        return ""
    missing = made.producer(after.action)
    return (
        f"; rank {after.rank} waits longest after {made.short(before.action)}: {seconds:g} "
        f"for {made.short(missing)} of rank {made.rank_of(missing.stage)}"
    )


def losses_by(made: Schedule, seed: int):
    """Train a small model for three steps with a schedule, on simulated ranks."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(17, 5)), rng.integers(0, 3, 17)

    def train(comm):
        model = MLP((5, *(4,) * made.n_stages, 3), seed=seed, dtype="float64")
        optimizer = Optimizer(model.params, SGD(), 0.3)
        strategy = Pipeline(comm, model, SoftmaxCrossEntropy(), optimizer, schedule=made)
        return np.array([strategy.step(Batch(x, y, len(x))) for _ in range(3)])

    return SimWorld(made.n_ranks).run(train)[0]


def run_half_the_memory(half_the_memory, seed=None):
    return _solved(1, half_the_memory(), seed)


def run_slow_and_uneven(slow_links, uneven_stages, puzzle=None, seed=None):
    """Whether texts solve their puzzles: one puzzle, or without a number both."""
    answers, found = {2: slow_links, 3: uneven_stages}, {}
    for number in answers if puzzle is None else [puzzle]:
        found |= _solved(number, answers[number](), seed)
    return found


def run_halved(less_of_both, seed=None):
    return _solved(4, less_of_both(), seed)


# -- What micro-batches change: layers that normalise over a batch see another batch.


NORMS = {"layer": LayerNorm, "batch": BatchNorm}
DTYPE = "float64"
"""In float32 a rounding error that crosses a ReLU would change a loss as micro-batches do."""
ROWS, TRAINED = 64, 1024
"""Samples of a batch, and of the training set: every batch is whole."""


def train_normalised(norm: str, n_microbatches: int, seed: int) -> dict:
    """Train with a normalisation of `NORMS`, every batch in so many micro-batches.

    It is a pipeline of one rank: how many share the layers changes nothing of what they compute.
    """

    def train(comm):
        rng, layers, kind = np.random.default_rng(seed), [], NORMS[norm]
        for _ in range(2):
            layers += [Linear(64, 64, rng, dtype=DTYPE), kind(64, dtype=DTYPE), ReLU()]
        model = Sequential(*layers, Linear(64, 10, rng, dtype=DTYPE))
        optimizer = Optimizer(model.params, SGD(), 0.1)
        strategy = Pipeline(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=n_microbatches)
        return fit(strategy, load("digits", dtype=DTYPE).take(TRAINED), epochs=2, batch_size=ROWS, seed=seed)

    return {"test accuracy [%]": 100 * SimWorld(1).run(train)[0].last.test}


# -- PipeDream with and without weight stashing, beside serial training on the same mini-batches.


STAGES, STASHED_ROWS = 8, 16
"""Layers of the network, each a stage, and samples of a mini-batch."""
WAYS = {"serial": (1, True), "stashing": (STAGES, True), "no stashing": (STAGES, False)}
"""By name: ranks, and whether they stash weights. Serial training is the pipeline of one rank."""
CHANCE = float(np.log(10))
"""Loss of a guess among ten digits."""


def train_stale(way: str, rate: float, seed: int) -> dict:
    """Train a network of eight layers on the digits for 3 epochs with mini-batches of 16, in one of `WAYS`.

    All runs of a seed start from the same weights and see the same mini-batches in the same order. Return the mean
    training loss of the last epoch (that of a guess if it overflowed), and the most updates between forward and
    backward of a mini-batch on the first stage.
    """
    size, stashing = WAYS[way]
    digits, rng = load("digits"), np.random.default_rng(seed + 100)
    m = len(digits.x_train) // STASHED_ROWS
    rows = [rng.permutation(len(digits.x_train))[: m * STASHED_ROWS] for _ in range(3)]

    def train(comm):
        model = MLP((64, *(128,) * (STAGES - 1), 10), seed=seed)
        optimizer = Optimizer(model.params, SGD(), rate)
        strategy = PipeDream(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=m, stashing=stashing)
        losses = [strategy.step(Batch(digits.x_train[own], digits.y_train[own], len(own))) for own in rows]
        return losses[-1], max(strategy.staleness.values())

    with np.errstate(all="ignore"):
        loss, staleness = SimWorld(size, eager_limit=8192).run(train)[0]  # all messages: none waits for its receiver
    return {"training loss": float(np.nan_to_num(loss, nan=CHANCE)), "staleness": staleness}
