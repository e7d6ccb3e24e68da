"""Pipelines: schedules as puzzles with a score, on real ranks, without a flush, and with normalisation."""

from __future__ import annotations

import time
from dataclasses import dataclass
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
    4: Puzzle("Smaller bubble", 4, 6, (1,) * 4, (2,) * 4, (4, 3, 3, 3), target=23, best=22, halves=True),
    5: Puzzle(
        "Less memory and less time", 3, 4, (1,) * 6, (2,) * 6, (4,) * 3, target=31, best=29, placed=False, halves=True
    ),
}
"""The puzzles of lab 10, by number.

The CP-SAT solver of OR-tools (9.15) proves in 20 s that no schedule ends before `best`, in puzzles 3 and 5 with any
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


# -- Checks of students' schedules: order by order against a known one, or as the solution of a puzzle.


def judge_orders(check, function, known, n_ranks: int, n_microbatches: int, mistakes=None, **options) -> None:
    """Compare a generator of one rank's actions with a known one: one line, which shows the first rank that is wrong.

    Parameters
    ----------
    check : Check
        Of the cell, which reports.
    function : callable
        function(rank, n_ranks, n_microbatches, **options) yields texts such as "F0", or returns a list of them.
    known : callable
        Of the library.
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

    more = [f"{name} = {value}" for name, value in options.items()]
    label = getattr(function, "__name__", type(function).__name__)
    where = ", ".join([f"p = {n_ranks}", f"m = {n_microbatches}", *more])
    want = rows(known)
    wrong = {text: rows(mistaken) for text, mistaken in (mistakes or {}).items()}
    got = []
    for rank in range(n_ranks):
        given = check.call(function, rank, n_ranks, n_microbatches, **options)
        given = [] if given is None else given.split() if isinstance(given, str) else list(given)
        other = next((a for a in given if not isinstance(a, str)), None)
        if other is not None:  # what the library yields, too
            told = f'it yields {type(other).__name__}s, such as {other!r}: write texts, such as "F0"'
            return check.true(f"{label}, {where}", False, told)
        got.append(format(parse(" ".join(given))))
    if got == want:
        return check.true(f"{label}, {where}", True)
    rank = next(r for r in range(n_ranks) if got[r] != want[r])
    # a mistake that explains every rank first; what the checker says if none explains this one
    suspects = {text: found[rank] for text, found in sorted(wrong.items(), key=lambda item: item[1] != got)}
    try:
        findings = check_schedule(got, n_ranks, n_microbatches).findings
    except ValueError as error:
        findings = [error]
    suspects |= {f"the checker says: {finding}": got[rank] for finding in findings[:1]}
    check.equal(f"{label}, {where}: rank {rank}", got[rank], want[rank], suspects=suspects)


def check_predicted(check, predicted, held_by_1f1b, p: int, m: int, v: int, f: float, b: float) -> None:
    """Time, bubble and memory of a pipeline by formulas, against the simulation."""
    run = simulate("interleaved" if v > 1 else "1f1b", p, m, forward=f, backward=b, **{"n_virtual": v} if v > 1 else {})
    seconds, bubble = check.call(predicted, p, m, v, f, b)
    work, fill, where = m * (f + b), (p - 1) * (f + b), f", p = {p}, m = {m}, v = {v}"
    faster, slower = "with v stages a rank the pipeline fills v times as fast", "divide by v: more stages fill faster"
    times = {
        faster: work + fill,
        slower: work + fill * v,
        "backward takes time, too: f + b": (work + fill / v) * f / (f + b),
        "f and b are arguments": 3 * (m + (p - 1) / v),
        "time comes first, then bubble": run.bubble,
        "this is the work alone": work,
        "the pipeline also empties": work + fill * f / (f + b),
        "p - 1 ranks must be passed, not p": work + p * (f + b) / v,
    }
    check.close("seconds" + where, seconds, run.makespan, suspects=times)
    part = {
        "divide by the whole time, not by the work": fill / v / work,
        "a share, from 0 to 1, not in percent": 100 * run.bubble,
        faster: fill / (work + fill),
        slower: fill * v / (work + fill * v),
    }
    check.close("bubble" + where, bubble, run.bubble, suspects=part)
    held = {
        "later ranks wait for fewer others, and hold fewer": [p] * p,
        "a list, a number for each rank": [p],
        "never more than there are micro-batches": [p - r for r in range(p)],
        "the first turn's forward is held, too": [min(p - 1 - r, m) for r in range(p)],
    }
    got, want = np.ravel(check.call(held_by_1f1b, p, m)).tolist(), simulate("1f1b", p, m).in_flight
    check.equal(f"held, p = {p}, m = {m}", got, want, suspects=held)


def judge_puzzle(check, number: int, schedule) -> None:
    """Check that a schedule solves a puzzle and reaches its target.

    Parameters
    ----------
    number : int
        In `PUZZLES`.
    """
    puzzle = PUZZLES[number]
    try:
        if isinstance(schedule, str) and schedule.strip() in SCHEDULES:
            raise ValueError(f"{schedule.strip()!r} is the name of a schedule of the library: write its lines")
        if not isinstance(schedule, (str, list, tuple)):
            raise TypeError(f"expected a text, one line per rank, got {type(schedule).__name__}")
        found = score(puzzle, schedule if isinstance(schedule, str) else list(schedule))
    except (ValueError, TypeError) as error:
        return check.true(f"puzzle {number}", False, str(error))
    check.true(f"puzzle {number} is solved", not found.problems, "; ".join(found.problems[:2]))
    if not found.problems:
        late = f"time {found.run.makespan:g}, expected {puzzle.target:g} or less (best: {puzzle.best:g})"
        check.true(f"puzzle {number} reaches its target", found.ok, late)


def judge_training(check, schedule, seed: int) -> None:
    """Check that a model trained with a schedule learns what a serial one does.

    Parameters
    ----------
    seed : int
        Of the model and of the data.
    """
    try:
        made = check_schedule(schedule).require()
    except (ValueError, TypeError) as error:
        return check.true("it can be trained with", False, str(error))
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(17, 5)), rng.integers(0, 3, 17)

    def train(comm, schedule):
        model = MLP((5, *(4,) * made.n_stages, 3), seed=seed, dtype="float64")
        optimizer = Optimizer(model.params, SGD(), 0.3)
        strategy = Pipeline(comm, model, SoftmaxCrossEntropy(), optimizer, schedule=schedule)
        return [strategy.step(Batch(x, y, len(x))) for _ in range(3)]

    forward = [f"{s}F0" for s in range(made.n_stages)]
    serial = SimWorld(1).run(train, [" ".join([*forward, *(f.replace("F", "B") for f in reversed(forward))])])[0]
    check.close("loss of three steps", np.array(SimWorld(made.n_ranks).run(train, made)[0]), np.array(serial))


def judge_stage(check, function, order: list[str], *, lr: float, seed: int) -> None:
    """Check a function that runs one stage without a flush and stashes weights.

    Parameters
    ----------
    function : callable
        function(order, w, gradient, lr) -> (weights, staleness of every B, most versions needed at one time).
    seed : int
        Of the weights, and of one quadratic function for every mini-batch.
    """
    rng, m = np.random.default_rng(seed), len(order) // 2
    start, steep, low = rng.normal(size=3), rng.uniform(0.5, 2, size=(m, 3)), rng.normal(size=(m, 3))

    def gradient(i, w):
        return steep[i] * (w - low[i])

    def history(rate=lr, stashing=True, onto_old=False, oldest=False, digits=None):
        """Weights at the end, from all versions; versions used; staleness; versions needed; mini-batches in flight."""
        versions, used, ats, staleness, needed, flying = [start], {}, [], [], [1], [0]
        for action in order:
            i = int(action[1:][:digits])
            if action[0] == "F":
                used[i] = len(versions) - 1
            else:
                at = used.pop(min(used) if oldest else i, 0)
                old = versions[at if stashing else -1]
                ats.append(at)
                staleness.append(len(versions) - 1 - at)
                versions.append((old if onto_old else versions[-1]) - rate * gradient(i, old))
            needed.append(len({*used.values(), len(versions) - 1}))
            flying.append(len(used))
        return versions[-1], ats, staleness, max(needed), max(flying)

    want, ats, staleness, needed, flying = history()
    w, stale, versions = check.call(function, order, start, gradient, lr)
    where = " ".join(order[:10]) + (" ..." if len(order) > 10 else "")
    of_another = "these are another mini-batch's weights: B's may come in any order"
    weights = {
        "the gradient is taken at the newest weights": history(stashing=False)[0],
        "the update is applied to the old weights": history(onto_old=True)[0],
        "F10 is mini-batch 10, not 1: action[1:] has all digits": history(digits=1)[0],
        "a step goes against the gradient: w - lr * gradient": history(rate=-lr)[0],
        "the step is lr times the gradient": history(rate=1)[0],
        of_another: history(oldest=True)[0],
    }
    late = {
        "these are the versions used: how many updates came since?": ats,
        "a mini-batch's own update does not count": [n + 1 for n in staleness],
        of_another: history(oldest=True)[2],
    }
    kept = {
        "mini-batches with the same weights share a version": flying,
        "mini-batches with the same weights share a version, and the newest may be one of theirs": flying + 1,
        "the newest counts, too": needed - 1,
    }
    with check.group(where, most=3):
        check.close(f"w ({where})", w, want, suspects=weights)
        check.equal(f"staleness ({where})", np.ravel(stale).tolist(), staleness, suspects=late)
        check.equal(f"versions ({where})", int(versions), needed, suspects=kept)


# -- What micro-batches change: layers that normalise over a batch see another batch.


NORMS = {"layer": LayerNorm, "batch": BatchNorm}
DTYPE = "float64"
"""In float32 a rounding error that crosses a ReLU would change a loss as micro-batches do."""
ROWS, TRAINED = 64, 1024
"""Samples of a batch, and of the training set: every batch is whole."""


def train_normalised(norm: str, n_microbatches: int, seed: int, *, epochs: int = 4) -> dict:
    """Train with a normalisation of `NORMS`, every batch in so many micro-batches.

    It is a pipeline of one rank: how many share the layers changes nothing of what they compute. Return the mean
    training loss of the last epoch, and the test accuracy in percent.
    """

    def train(comm):
        rng, layers, kind = np.random.default_rng(seed), [], NORMS[norm]
        for _ in range(2):
            layers += [Linear(64, 64, rng, dtype=DTYPE), kind(64, dtype=DTYPE), ReLU()]
        model = Sequential(*layers, Linear(64, 10, rng, dtype=DTYPE))
        optimizer = Optimizer(model.params, SGD(), 0.1)
        strategy = Pipeline(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=n_microbatches)
        return fit(strategy, load("digits", dtype=DTYPE).take(TRAINED), epochs=epochs, batch_size=ROWS, seed=seed)

    history = SimWorld(1).run(train)[0]
    loss = float(np.mean(history.losses[-(TRAINED // ROWS) :]))
    return {"loss": loss, "test accuracy [%]": 100 * history.last.test}


# -- PipeDream with and without weight stashing, beside serial training on the same mini-batches.


STAGES, STASHED_ROWS = 8, 16
"""Layers of the network, each a stage, and samples of a mini-batch."""
WAYS = {"serial": (1, True), "stashing": (STAGES, True), "no stashing": (STAGES, False)}
"""By name: ranks, and whether they stash weights. Serial training is the pipeline of one rank."""
CHANCE = float(np.log(10))
"""Loss of a guess among ten digits."""


def train_stale(way: str, rate: float, seed: int) -> dict:
    """Train a network of eight layers on the digits for 6 epochs with mini-batches of 16, in one of `WAYS`.

    All runs of a seed start from the same weights and see the same mini-batches in the same order. Return the mean
    training loss of the last epoch (that of a guess if it overflowed), and the most updates between forward and
    backward of a mini-batch on the first stage.
    """
    size, stashing = WAYS[way]
    digits, rng = load("digits"), np.random.default_rng(seed + 100)
    m = len(digits.x_train) // STASHED_ROWS
    rows = [rng.permutation(len(digits.x_train))[: m * STASHED_ROWS] for _ in range(6)]

    def train(comm):
        model = MLP((64, *(32,) * (STAGES - 1), 10), seed=seed)
        optimizer = Optimizer(model.params, SGD(), rate)
        strategy = PipeDream(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=m, stashing=stashing)
        losses = [strategy.step(Batch(digits.x_train[own], digits.y_train[own], len(own))) for own in rows]
        return losses[-1], max(strategy.staleness.values())

    with np.errstate(all="ignore"):
        loss, staleness = SimWorld(size).run(train)[0]
    return {"training loss": float(np.nan_to_num(loss, nan=CHANCE)), "staleness": staleness}
