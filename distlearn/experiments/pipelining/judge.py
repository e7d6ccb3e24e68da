"""Checks of students' schedules: order by order against a known one, or as the solution of a puzzle."""

from __future__ import annotations

import numpy as np

from ...data import Batch
from ...nn import MLP, SoftmaxCrossEntropy
from ...optim import SGD, Optimizer
from ...parallel import Pipeline
from ...parallel.pipeline.schedule import check_schedule, format, make_schedule, parse
from ...sim import SimWorld
from .puzzles import PUZZLES, score


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
    check : Check
    number : int
        In `PUZZLES`.
    schedule : str or list
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
    check : Check
    schedule : str or list
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
    check : Check
    function : callable
        function(order, w, gradient, lr) -> (weights, staleness of every B, most versions needed at one time).
    order : list of str
    lr : float
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
