"""Pipelines: schedules as puzzles with a score, on real ranks, without a flush, and with normalisation."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from distlearn.data import Batch, load
from distlearn.nn import MLP, BatchNorm, LayerNorm, Linear, ReLU, Sequential, SoftmaxCrossEntropy
from distlearn.nn.layer import Layer, Param
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import PipeDream, Pipeline
from distlearn.parallel.pipeline.schedule import (
    Report,
    Schedule,
    Simulated,
    check_schedule,
    format,
    ideal_bubble,
    make_schedule,
    measured_bubble,
    parse,
    simulate,
)
from distlearn.parallel.pipeline.schedule.timing import stage_costs
from distlearn.sim import SimWorld
from distlearn.trace import Trace
from distlearn.train import fit
from distlearn.viz.look import COLORS, LINES, MARKERS, new_axes, styled, write_title
from distlearn.viz.units import share_axis

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
    strategy = Pipeline(comm, model, _mean, optimizer, schedule=made, stages=stages)
    m = made.n_microbatches
    batch = Batch(np.zeros((m, 1), "float32"), np.zeros(m, int), m)
    strategy.predict(batch.x)  # agrees on shapes
    comm.barrier()
    start = comm.clock.now()
    strategy.step(batch)
    return start, strategy.peak_in_flight


def _mean(output, labels, n):
    return float(output.sum()) / n, np.full_like(output, 1 / n)


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
        `forward=`, `backward=`, `weight_share=` as for `simulate`.
    """
    made = make_schedule(schedule)
    simulated = simulate(made, transfer=transfer, **costs)
    by_kind = stage_costs(made, **costs)
    seconds = [tuple(unit * t for t in three) for three in zip(*(by_kind[kind] for kind in "FIW"), strict=True)]
    found = world.run(_first_ranks, made.n_ranks, made.csv, seconds)[: made.n_ranks]
    start = min(begin for begin, _ in found)
    spans = [s for s in world.trace.select(lane="stage") if s.start >= start]
    return Measured(simulated, Trace(spans), [held for _, held in found])


def _first_ranks(comm, n_ranks: int, *args):
    part = comm.split(0 if comm.rank < n_ranks else None)
    return None if part is None else run_stand_ins(part, *args)


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
    """What a schedule is worth as the solution of a puzzle."""

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

    more = [f"{name} {value}" for name, value in options.items()]
    label = getattr(function, "__name__", type(function).__name__)
    where = ", ".join([_several(n_ranks, "rank"), _several(n_microbatches, "micro-batch", "es"), *more])
    want = rows(known)
    wrong = {text: rows(mistaken) for text, mistaken in (mistakes or {}).items()}
    got = []
    for rank in range(n_ranks):
        given = check.call(function, rank, n_ranks, n_microbatches, **options)
        given = [] if given is None else given.split() if isinstance(given, str) else [str(a) for a in given]
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


def _several(n: int, what: str, plural: str = "s") -> str:
    return f"{n} {what}{plural * (n != 1)}"


def judge_puzzle(check, number: int, schedule) -> None:
    """Check that a schedule solves a puzzle and reaches its target.

    Parameters
    ----------
    number : int
        In `PUZZLES`.
    """
    puzzle = PUZZLES[number]
    if not isinstance(schedule, (str, list, tuple)):
        check.true(f"puzzle {number}", False, f"expected a text, one line per rank, got {type(schedule).__name__}")
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
        check.true("it can be trained with", False, str(error))
        return
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

    def history(stashing=True, onto_old=False):
        """Weights at the end, from a list of all versions; staleness; versions needed; mini-batches in flight."""
        versions, used, staleness, needed, flying = [start], {}, [], [1], [0]
        for action in order:
            i = int(action[1:])
            if action[0] == "F":
                used[i] = len(versions) - 1
            else:
                at = used.pop(i)
                old = versions[at if stashing else -1]
                staleness.append(len(versions) - 1 - at)
                versions.append((old if onto_old else versions[-1]) - lr * gradient(i, old))
            needed.append(len({*used.values(), len(versions) - 1}))
            flying.append(len(used))
        return versions[-1], staleness, max(needed), max(flying)

    want, staleness, needed, flying = history()
    w, stale, versions = check.call(function, order, start, gradient, lr)
    where = " ".join(order[:10]) + (" ..." if len(order) > 10 else "")
    suspects = {
        "the gradient is taken at the newest weights": history(stashing=False)[0],
        "the update is applied to the old weights": history(onto_old=True)[0],
    }
    with check.group(where, most=3):
        check.close(f"w ({where})", w, want, suspects=suspects)
        check.equal(f"staleness ({where})", np.ravel(stale).tolist(), staleness)
        suspects = {"mini-batches with the same weights share a version": flying, "the newest counts, too": needed - 1}
        check.equal(f"versions ({where})", int(versions), needed, suspects=suspects)


# -- What micro-batches change: layers that normalise over a batch see another batch.


NORMS = {"none": None, "layer": LayerNorm, "batch": BatchNorm}
DTYPE = "float64"
"""In float32 a rounding error that crosses a ReLU would change a loss as micro-batches do."""
ROWS, TRAINED = 64, 1024
"""Samples of a batch, and of the training set: every batch is whole."""


class Normalised(NamedTuple):
    """One run of `normalisation_study`."""

    norm: str
    n_microbatches: int
    seed: int
    loss: float
    """Mean training loss of the last epoch."""
    accuracy: float
    """On the test set."""


def normalisation_study(norms, n_microbatches, seeds, *, lr: float = 0.1, epochs: int = 6) -> list[Normalised]:
    """Train a network with some normalisation on a pipeline of two ranks, its batches in more and more micro-batches.

    Parameters
    ----------
    norms : sequence of str
        Of "none", "layer" and "batch": by what every hidden layer is normalised.
    n_microbatches, seeds : sequence of int
        64 samples are in a batch.
    """
    return [
        Normalised(norm, m, seed, *SimWorld(2).run(_train, norm, m, seed, lr, epochs)[0])
        for norm in norms
        for m in n_microbatches
        for seed in seeds
    ]


def _train(comm, norm: str, m: int, seed: int, lr: float, epochs: int) -> tuple[float, float]:
    rng, layers = np.random.default_rng(seed), []
    for _ in range(2):
        layers += [Linear(64, 64, rng, dtype=DTYPE), *([NORMS[norm](64, dtype=DTYPE)] if NORMS[norm] else []), ReLU()]
    model = Sequential(*layers, Linear(64, 10, rng, dtype=DTYPE))
    optimizer = Optimizer(model.params, SGD(), lr)
    strategy = Pipeline(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=m)
    history = fit(strategy, load("digits", dtype=DTYPE).take(TRAINED), epochs=epochs, batch_size=ROWS, seed=seed)
    steps = TRAINED // ROWS
    return float(np.mean(history.losses[-steps:])), history.last.test


# -- PipeDream with and without weight stashing, beside serial training on the same mini-batches.


STAGES, STASHED_ROWS = 8, 16
"""Layers of the network, each a stage, and samples of a mini-batch."""
WAYS = {"serial": (1, True), "stashing": (STAGES, True), "no stashing": (STAGES, False)}
"""By name: ranks, and whether they stash weights. Serial training is the pipeline of one rank."""


class StashRun(NamedTuple):
    """One run of `stash_study`."""

    way: str
    lr: float
    seed: int
    losses: list[float]
    """Mean training loss of every epoch; NaN once it overflowed."""
    staleness: int
    """Most updates between forward and backward of a mini-batch on the first stage."""
    trace: Trace


def stash_study(lrs, seeds, *, ways=tuple(WAYS), epochs: int = 6, report=None) -> list[StashRun]:
    """Train a network of eight layers on the digits with mini-batches of 16: serially, with and without stashing.

    All runs of a seed start from the same weights and see the same mini-batches in the same order.

    Parameters
    ----------
    ways : sequence of str
        Of "serial", "stashing" and "no stashing".
    report : callable, optional
        Gets `report(done, total)`.
    """
    cases = [(way, lr, seed) for way in ways for lr in lrs for seed in seeds]
    runs = []
    for way, lr, seed in cases:
        size, stashing = WAYS[way]
        world = SimWorld(size)
        with np.errstate(all="ignore"):
            losses, staleness = world.run(_train_stashing, stashing, lr, seed, epochs)[0]
        runs.append(StashRun(way, lr, seed, losses, staleness, world.trace))
        if report is not None:
            report(len(runs), len(cases))
    return runs


def _train_stashing(comm, stashing: bool, lr: float, seed: int, epochs: int):
    digits, rng = load("digits"), np.random.default_rng(seed + 100)
    model = MLP((64, *(32,) * (STAGES - 1), 10), seed=seed)
    m = len(digits.x_train) // STASHED_ROWS
    optimizer = Optimizer(model.params, SGD(), lr)
    strategy = PipeDream(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=m, stashing=stashing)
    losses = []
    for _ in range(epochs):
        rows = rng.permutation(len(digits.x_train))[: m * STASHED_ROWS]
        losses.append(strategy.step(Batch(digits.x_train[rows], digits.y_train[rows], m * STASHED_ROWS)))
    return losses, max(strategy.staleness.values())


# -- The pipeline bubble against the number of micro-batches: what theory says, and what was measured.


@styled
def plot_bubble(
    n_ranks: int | Sequence[int],
    n_microbatches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64),
    *,
    n_virtual: int | Sequence[int] = 1,
    measured: Mapping[str, Mapping[int, float]] | None = None,
    ax=None,
    title: str | None = None,
):
    """Draw the bubble against the number of micro-batches: what theory says as lines, what was measured as points.

    Parameters
    ----------
    n_ranks : int or sequence of int
        p.
    n_microbatches : sequence of int
        m, in any order.
    n_virtual : int or sequence of int
        v, stages of a rank: 1 for GPipe and 1F1B, more for interleaved schedules (whose m is a multiple of p).
    measured : dict of str to dict of int to float, optional
        By name, the share of time spent waiting (from 0 to 1) for each number of micro-batches.
    ax : Axes, optional
        Where to draw.
    title : str, optional
        By default how many micro-batches bring the bubble below a tenth.

    References
    ----------
    See `ideal_bubble`.
    """
    ranks, virtual = np.atleast_1d(n_ranks).tolist(), np.atleast_1d(n_virtual).tolist()
    m = np.unique(np.asarray(list(n_microbatches), int))
    if m.size == 0 or m[0] < 1:
        raise ValueError(f"plot_bubble: n_microbatches is {list(n_microbatches)}, expected numbers of 1 or more")
    ax = new_axes(figsize=(7.6, 3.8))[0] if ax is None else ax
    for i, (p, v) in enumerate((p, v) for p in ranks for v in virtual):
        at = m[m % p == 0] if v > 1 else m
        label = f"{p} rank{'s' * (p > 1)}"
        label += f", {v} stage{'s' * (v > 1)} each" if max(virtual) > 1 else ""
        ax.plot(
            at, [ideal_bubble(p, n, v) for n in at.tolist()], color=COLORS[i % len(COLORS)],
            linestyle=LINES[i % len(LINES)], label=label,
        )  # fmt: skip
    for i, (label, shares) in enumerate((measured or {}).items()):
        marker = MARKERS[i % len(MARKERS)]
        look = {"color": COLORS[i % len(COLORS)], "marker": marker, "linestyle": "", "markersize": 7, "zorder": 3}
        ax.plot(list(shares), list(shares.values()), label=label, **look)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_locator(FixedLocator(m.tolist() if m.size <= 10 else [2**k for k in range(20)]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("micro-batches")
    share_axis(ax.yaxis, "bubble")
    ax.set_ylim(bottom=0)
    ax.legend()
    write_title(ax, _enough(ranks[-1], virtual[0]), title)
    return ax


def _enough(p: int, v: int) -> str:
    """Say how many micro-batches make the bubble small: (p - 1) / (v m + p - 1) <= 1 / 10."""
    if p == 1:
        return "One rank has no bubble"
    m = -(-9 * (p - 1) // v)
    return f"{p} ranks: a bubble of 10% takes {m} micro-batches" + (f" with {v} stages each" if v > 1 else "")
