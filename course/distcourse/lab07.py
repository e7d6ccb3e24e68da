"""Data parallelism, for lab 07: one step of a given code against a serial one, its overlap, whole runs, real ranks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

from distlearn.comm import Network
from distlearn.comm.base import RankError, ignore_report
from distlearn.comm.waiting import count_cores  # noqa: F401  (for the notebook)
from distlearn.data import Batch, Batches, load, shard
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import RULES, SGD, Momentum, Optimizer
from distlearn.parallel import Serial, make_buckets
from distlearn.sim import Roofline, SimWorld
from distlearn.trace import Trace
from distlearn.train import Settings, build, evaluate, fit, train
from distlearn.viz.look import styled, write_title
from distlearn.viz.timeline import plot_timeline

from .flat import flat

# -- How much of the communication of a training step is exposed: one step of a given backward, on simulated ranks.


SLOW = Network(alpha=50e-6, beta=1e9)
"""50 microseconds to a message, and 1 GB/s."""

WIDTHS = (64, *(256,) * 10, 10)


@dataclass
class Overlap:
    """One step: forward, backward and the all-reduces of the gradients."""

    trace: Trace
    seconds: float
    communicating: float
    exposed: float
    gradients: list


def backward_step(
    backward, cap_bytes: float = 2**19, *, ranks=4, widths=WIDTHS, samples=128, frozen=(), network=SLOW, peak=40e9
) -> Overlap:
    """Run forward and a given backward on simulated ranks.

    Parameters
    ----------
    backward : callable
        `backward(comm, model, dlogits, saved, buckets)`; afterwards the buckets hold sums over ranks.
    cap_bytes : float
        Largest size of a bucket; infinity for one bucket.
    widths : tuple of int
        Of the network's layers.
    samples : int
        Of each rank.
    frozen : tuple of int
        Which of the model's parameters are frozen: they are in no bucket.
    peak : float
        How fast a rank computes [flop/s].
    """

    def on_rank(comm):
        model, rng = MLP(widths, dtype="float64" if samples < 100 else "float32"), np.random.default_rng(comm.rank)
        params = [p for i, p in enumerate(model.params) if i not in frozen]
        buckets = make_buckets(params, int(min(cap_bytes, 1 << 40)))
        for bucket in buckets:  # in no order that an answer could rely on
            bucket.params = [bucket.params[i] for i in np.random.default_rng(1).permutation(len(bucket.params))]
        dtype = model.params[0].data.dtype
        logits, saved = model.forward(rng.normal(size=(samples, widths[0])).astype(dtype), clock=comm.clock)
        backward(comm, model, rng.normal(size=logits.shape).astype(dtype), saved, buckets)
        return [p.grad.copy() for p in model.params]

    world = SimWorld(ranks, network, Roofline(peak))
    with threadpool_limits(1):  # small products are slower on several cores
        gradients = world.run(on_rank)
    trace = world.trace
    return Overlap(trace, world.makespan, trace.total(rank=0, lane="comm"), trace.exposed(), gradients)


def after_backward(comm, model, dlogits, saved, buckets) -> None:
    """Communicate when backward has ended: the naive way."""
    model.backward(dlogits, saved, clock=comm.clock)
    for bucket in buckets:
        comm.all_reduce(bucket.flat)


def library_backward(comm, model, dlogits, saved, buckets, wait=False) -> None:
    """Communicate each bucket as soon as it is full, and, if told so, wait in backward for the one before."""
    home = {id(p): b for b in buckets for p in b.params}
    missing, works = {id(b): len(b.params) for b in buckets}, []

    def ready(param):
        bucket = home.get(id(param))
        if bucket is not None:
            missing[id(bucket)] -= 1
            if not missing[id(bucket)]:
                if wait and works:
                    works[-1].wait()
                works.append(comm.iall_reduce(bucket.flat))

    model.backward(dlogits, saved, on_grad=ready, clock=comm.clock)
    for work in works:
        work.wait()


# -- Training steps and all-reduces measured on engines, and the network that fits them.


MESSAGES = (2**10, 2**15, 2**18, 2**20, 2**21)
"""Sizes of the all-reduces that are timed [bytes]."""


@dataclass
class Measured:
    """What was measured on engines.

    Attributes
    ----------
    steps : dict of str to dict of int to list of float
        By case and ranks: seconds of a step, for each repetition.
    all_reduces : dict of int to list of float
        By ranks: seconds of an all-reduce of each size in `messages`.
    trace : Trace
        Of a run on all ranks.
    messages : tuple of int
        [bytes]
    """

    ranks: tuple[int, ...]
    steps: dict
    all_reduces: dict
    trace: object
    messages: tuple[int, ...] = MESSAGES

    def median(self, case: str) -> dict[int, float]:
        """Return the median seconds of a step by ranks."""
        return {p: float(np.median(times)) for p, times in self.steps[case].items()}


def first_ranks(comm, p: int, fn, *args):
    """Run fn on the first p ranks; the others do nothing."""
    part = comm.split(0 if comm.rank < p else None)
    return None if part is None else fn(part, *args)


def step_seconds(comm, settings) -> float:
    """Return the seconds of a training step."""
    history = train(comm, settings).history
    return history.last.seconds / len(history.losses)


def all_reduce_seconds(comm, nbytes: int, calls: int = 15) -> float:
    """Return the median seconds of an all-reduce of float32."""
    x, times = np.zeros(nbytes // 4, "float32"), []
    for _ in range(calls):
        comm.barrier()
        start = comm.clock.now()
        comm.all_reduce(x)
        times.append(comm.clock.now() - start)
    return float(np.median(times))


def measure_engines(world, cases: dict, report=ignore_report) -> Measured:
    """Measure training steps, three times each, and all-reduces on the first 1, 2 and 4 ranks of a world.

    Parameters
    ----------
    report : callable, optional
        Gets `report(done, total)`.
    """
    ranks = 1, 2, 4
    total, done = len(ranks) * (3 * len(cases) + len(MESSAGES)), 0
    steps = {case: {p: [] for p in ranks} for case in cases}
    costs = {p: [] for p in ranks}
    for p in ranks:
        for call, out, *args in [
            *[(step_seconds, steps[case][p], s) for case, s in cases.items() for _ in range(3)],
            *[(all_reduce_seconds, costs[p], nbytes) for nbytes in MESSAGES],
        ]:
            out.append(world.run(first_ranks, p, call, *args)[0])
            done += 1
            report(done, total)
    world.run(step_seconds, next(iter(cases.values())))
    return Measured(ranks, steps, costs, world.trace)


def fit_network(measured: Measured, p: int) -> Network:
    """Fit alpha and beta of T = 2 (p - 1) (alpha + n / (p beta)) to the all-reduces of p ranks."""
    seconds = np.array(measured.all_reduces[p])
    slope, start = np.polyfit(measured.messages, seconds, 1, w=1 / seconds)
    return Network(max(start, 1e-7) / (2 * (p - 1)), 2 * (p - 1) / p / max(slope, 1e-12))


# -- Whole runs of lab 07: a given step in the library's training, large batches, local SGD on dealt data.


def train_digits_with(comm, settings: Settings, step=None, lr=None, rule=None):
    """Train as `train` does, but with a step, a learning-rate plan or an update rule of its caller's own.

    Parameters
    ----------
    step : callable, optional
        `step(comm, model, loss, optimizer, batch) -> loss of the global batch`.
    """
    data = load(settings.data, dtype=settings.dtype)
    data = data if settings.n_train is None else data.take(settings.n_train)
    strategy = build(comm, settings, data)
    strategy.optimizer = Optimizer(strategy.model.params, rule or RULES[settings.optimizer](), lr or settings.lr)
    if step is not None:
        parts = strategy.comm, strategy.model, strategy.loss, strategy.optimizer
        strategy.step = lambda batch: step(*parts, batch)
    names = ("epochs", "batch_size", "seed", "evaluate_every")
    return fit(strategy, data, **{name: getattr(settings, name) for name in names}, report=comm.report)


def final_accuracy(settings: Settings, lr=None) -> float:
    """Return the test accuracy after a run [%]; one whose loss becomes infinite counts as guessing."""
    try:
        with np.errstate(all="ignore"):  # of runs that are lost
            return 100 * SimWorld(1).run(train_digits_with, settings, lr=lr)[0].last.test_accuracy
    except RankError:
        return 10.0


def local_run(train, every: int, by_class: bool, *, epochs=16, seed=0) -> tuple[float, float]:
    """Train with a given local SGD on digits, dealt at random or by class.

    Parameters
    ----------
    train : callable
        `train(comm, model, loss, optimizer, batches, every) -> losses`.
    every : int
        Steps between two averagings.
    by_class : bool
        Whether rank 0 has the smallest digits and the last rank the largest.
    seed : int
        Of the weights and of the order of the batches.

    Returns
    -------
    megabytes : float
        That each rank sends.
    accuracy : float
        On the test set, in per cent.
    """

    def on_rank(comm):
        data, loss = load("digits", dtype="float64").take(1280), SoftmaxCrossEntropy()
        model = MLP((64, 64, 10), seed=seed, dtype="float64")
        optimizer = Optimizer(model.params, SGD(), 0.2)
        order = np.argsort(data.y_train, kind="stable") if by_class else np.arange(1280)
        mine = order[shard(1280, comm.rank, comm.size)]
        deal = Batches(data.x_train[mine], data.y_train[mine], 16, seed=seed)
        batches = [batch for epoch in range(epochs) for batch in deal.epoch(epoch)]
        train(comm, model, loss, optimizer, batches, every)
        return evaluate(Serial(model, loss, optimizer), data.x_test, data.y_test)

    world = SimWorld(4)
    accuracy = world.run(on_rank)[0]
    given = sum(span.nbytes for span in world.trace.select(rank=0, lane="comm"))
    return given * 2 * 3 / 4 / 1e6, 100 * accuracy  # what a ring sends


# -- Checks of lab 07's exercises, and the mistakes that they name.


def gradient_of(rows) -> np.ndarray:
    """Return the mean gradient of a small network over some training digits, as one flat array."""
    digits, model = load("digits", dtype="float64"), MLP((64, 32, 10), dtype="float64")
    logits, saved = model.forward(digits.x_train[rows])
    model.backward(SoftmaxCrossEntropy()(logits, digits.y_train[rows])[1], saved)
    return flat(model.params, "grad")


def check_mean(check, weighted_mean, counts, rng, dtype="float64"):
    """The mean gradient of all samples, from those of parts."""
    n, p = sum(counts), len(counts)
    samples = rng.normal(size=(n, 5)).astype(dtype)
    cut = np.split(samples, np.cumsum(counts)[:-1])
    means = [part.mean(axis=0) if len(part) else np.zeros(5, dtype) for part in cut]
    weights = {
        "a mean of means: every part weighs the same": np.full(p, 1 / p),
        "the parts' gradients are added up, not weighted": np.ones(p),
        "weighted by the counts, but not divided by their sum": np.array(counts),
        "weighted, and then divided by the number of parts, too": np.array(counts) / n / p,
        "the counts of all parts, not of three": np.array(counts) / n * (np.arange(p) < 3),
        "the last part is missing": np.array(counts) / n * (np.arange(p) < p - 1),
        "each part has its own count": np.full(p, counts[0] / n),
        "the weight of a part is its share, not the reciprocal": n / np.maximum(counts, 1),
        "n is the sum of the counts, not 12": np.array(counts) / 12,
    }
    got = check.call(weighted_mean, means, counts)
    suspects = {text: w @ np.array(means, float) for text, w in weights.items()}
    name = f"counts {counts}" + (f", {dtype}" if dtype != "float64" else "")
    atol = 1e-2 if dtype == "float16" else None
    check.close(name, got, samples.mean(axis=0), atol=atol, dtype=dtype, suspects=suspects)


def serial_step(comm, model, loss, optimizer, batch) -> float:
    """Take the step of a single rank."""
    return Serial(model, loss, optimizer).step(batch)


def gradients_of(model, loss, batch, n=None, clear=True) -> float:
    """Clear, forward, loss, backward; return the loss."""
    for p in model.params if clear else ():
        p.grad.fill(0)
    logits, saved = model.forward(batch.x)
    value, dlogits = loss(logits, batch.y, n or batch.n)
    model.backward(dlogits, saved)
    return value


def run_step(step, x, y, cuts, sizes, lr, steps=1, rule=None):
    """Take steps on ranks; rank r has rows cuts[r] to cuts[r + 1]. Loss and change of each rank, and the trace."""

    def on_rank(comm):
        model = MLP(sizes, "tanh", dtype="float64")
        optimizer = Optimizer(model.params, rule or SGD(), lr)
        before = flat(model.params)
        for p in model.params:
            p.grad.fill(0.5)  # left by an earlier step
        a, b = cuts[comm.rank : comm.rank + 2]
        batch = Batch(x[a:b], y[a:b], cuts[-1] - cuts[0])
        for _ in range(steps):
            value = step(comm, model, SoftmaxCrossEntropy(), optimizer, batch)
        return value, (before - flat(model.params)) / lr

    world = SimWorld(len(cuts) - 1)
    return world.run(on_rank), world.trace


def check_step(check, step, cuts, sizes=(6, 8, 4), seed=2, lr=0.7) -> None:
    """A data-parallel step on every rank against a serial one; rank r has rows cuts[r] to cuts[r + 1]."""
    rng, ranks = np.random.default_rng(seed), len(cuts) - 1
    x, y = rng.normal(size=(cuts[-1], sizes[0])), rng.integers(0, sizes[-1], cuts[-1])

    def run(step, cuts=(0, cuts[-1]), **options):
        return run_step(step, x, y, cuts, sizes, lr, **options)

    value, want = run(serial_step)[0][0]
    parts = {rank: run(serial_step, [a, b])[0][0] for rank, (a, b) in enumerate(pairwise(cuts)) if b > a}
    share = np.diff(cuts) / cuts[-1]
    taken, trace = run(step, cuts)
    moved = [got.any() for _, got in taken]
    right = [np.shape(got) == want.shape and np.allclose(got, want, rtol=1e-10) for _, got in taken]
    factors = {"ranks": ranks} if ranks > 1 else None
    for rank, (total, got) in enumerate(taken):
        where = f"rank {rank} of {ranks}"
        loss, grad = parts.get(rank, (0.0, np.zeros_like(want)))
        wrong = {
            "the parameters have not moved: it takes both model.backward and optimizer.step()": np.zeros_like(want),
            "gradients of an earlier step are still there: call zero_grad()": want + 0.5 * ranks,
            "the learning rate is the optimizer's: call optimizer.step()": want / lr,
            "the optimizer took a step twice": 2 * want,
        }
        losses = {}
        if rank not in parts and any(moved) and not any(right):  # else it is the update that is missing
            told = "this rank's part is empty, so its gradient comes from the others: sum over ranks before the step"
            wrong = {told: np.zeros_like(want)} | wrong
        if ranks > 1:
            ends = np.cumsum([n for a, b in pairwise(sizes) for n in (a * b, b)])
            wrong |= {
                "a mean of means: pass batch.n to the loss, and only sum": sum(g for _, g in parts.values()) / ranks,
                "a sum of means: pass batch.n to the loss": sum(g for _, g in parts.values()),
                "this rank's own part only: sum over ranks after backward, before the step": share[rank] * grad,
                "this rank's own part and an earlier step's gradients: zero_grad(), and sum": share[rank] * grad + 0.5,
                "the mean over this rank's own part: batch.n, and a sum over ranks": grad,
                "a step with this rank's own part, and another with the sum": share[rank] * grad + want,
            }
            wrong |= {
                f"only {k + 1} of {len(ends)} parameters are summed over ranks: all of model.params": np.where(
                    np.arange(want.size) < end, want, share[rank] * grad
                )
                for k, end in enumerate(ends[:-1])
            }
            losses = {
                "this rank's own part of the loss: sum it over ranks, too": share[rank] * loss,
                "the mean over this rank's own part": loss,
                "the sum of the ranks' means: pass batch.n to the loss": sum(v for v, _ in parts.values()),
                "the mean of the ranks' means: pass batch.n to the loss": sum(v for v, _ in parts.values()) / ranks,
            }
        check.close(f"gradient, {where}", got, want, rtol=1e-10, factors=factors, suspects=wrong)
        check.close(f"loss, {where}", total, value, rtol=1e-10, factors=factors, suspects=losses)
    if not all(right):
        return
    rule = {"steps": 2, "rule": Momentum(0.8)}
    hand = "a step by hand: the optimizer has a rule and a rate of its own, call optimizer.step()"
    got, want = run(step, cuts, **rule)[0][0][1], run(serial_step, **rule)[0][0][1]
    wrong = {hand: run(serial_step, steps=2)[0][0][1]}  # plain SGD, whatever the optimizer's rule is
    check.close(f"two steps of Momentum, {ranks} ranks", got, want, rtol=1e-10, suspects=wrong)
    if ranks > 1:
        gave = min(sum(s.nbytes for s in trace.select(rank=rank, lane="comm")) for rank in range(ranks))
        told = f"{gave} bytes, and the gradients have {want.nbytes}: sum those, do not collect the samples"
        check.true(f"gradients are communicated, {ranks} ranks", gave >= want.nbytes, told)


def check_backward(check, backward, ranks=3, cap_bytes=3000, widths=(16, 24, 24, 10), frozen=()) -> None:
    """An overlapped backward against the library's: gradients, calls, and the exposed communication."""
    fast, ways = Network(1e-6, 4e9), [backward, library_backward, after_backward]
    ways.append(lambda comm, model, dy, saved, buckets: model.backward(dy, saved))
    ways.append(lambda *args: library_backward(*args, wait=True))
    got, want, late, alone, waiting = (
        backward_step(f, cap_bytes, ranks=ranks, widths=widths, samples=32, frozen=frozen, network=fast, peak=5e9)
        for f in ways
    )
    of = f"{ranks} rank{'s' * (ranks > 1)}" + f", {len(frozen)} frozen" * bool(frozen)
    found, right, own = (
        np.stack([np.concatenate([g.ravel() for g in rank]) for rank in step.gradients]) for step in (got, want, alone)
    )
    calls = [len(step.trace.select(rank=0, lane="comm")) for step in (got, want)]
    wrong = {}
    if ranks > 1:
        wrong["each rank has its own: not summed over the ranks"] = own
        some = np.where(np.isclose(found, own), own, right)
        if 0 < calls[0] < calls[1]:
            wrong[f"{calls[0]} of {calls[1]} buckets were summed: every one, as soon as it is full"] = some
    check.close(f"gradients, {of}", found, right, rtol=1e-10, factors={"ranks": ranks}, suspects=wrong)
    timed = np.isclose(*(step.trace.total(lane="compute") for step in (got, want)))
    check.true(f"backward takes time, {of}", timed, "pass clock=comm.clock to backward")
    check.equal(f"all-reduces, {of}: one per bucket", *calls)
    if not timed or ranks == 1 or calls[0] != calls[1] or calls[1] == 1:
        return
    early = got.exposed < 0.999 * late.exposed
    check.true(f"it overlaps, {of}", early, "start each all-reduce in on_grad, and wait only after backward")
    if early:
        told = f"{1e6 * got.exposed:.1f} µs exposed, {1e6 * want.exposed:.1f} are possible"
        if np.isclose(got.seconds, waiting.seconds):
            told += ": on_grad waits for the bucket before; wait only after backward"
        check.true(f"nothing waits without need, {of}", got.exposed <= want.exposed * (1 + 1e-9) + 1e-12, told)


def check_speedup(check, predicted_speedup, seconds, nbytes, ranks, cores, alpha, beta):
    """The predicted speed-up, and what it would be with one term wrong."""

    turns, messages, moving = max(1, ranks / cores), 2 * (ranks - 1), nbytes / ranks / beta

    def speedup(turns=turns, messages=messages, start=alpha, moving=moving):
        return seconds / (seconds / ranks * turns + messages * (start + moving))

    want = speedup()
    got = check.call(predicted_speedup, seconds, nbytes, ranks, cores, alpha, beta)
    doublings = int(np.ceil(np.log2(ranks)))
    suspects = {
        "time on p ranks over time on one": 1 / want,
        "this is the time, not the speed-up": seconds / want,
        "each of the 2 (ranks - 1) messages pays the latency": speedup(start=0),
        "each of the 2 (ranks - 1) messages pays the latency, not one": seconds
        / (seconds / ranks * turns + alpha + messages * moving),
        "each message of a ring has nbytes / ranks bytes": speedup(moving=nbytes / beta),
        "a message takes alpha and its bytes over beta: add": speedup(start=0, moving=max(alpha, moving)),
        "bytes count, too: nbytes / (ranks beta) for each message": speedup(moving=0),
        "communication is missing": speedup(messages=0),
        "2 (ranks - 1) messages, not 2 ranks": speedup(messages=2 * ranks),
        "2 (ranks - 1) messages, not ranks - 1: reduce, then gather": speedup(messages=ranks - 1),
        "2 (ranks - 1) messages: a ring, not a tree": speedup(messages=2 * doublings),
        "beta is bytes per second: divide by it": speedup(moving=nbytes / ranks * beta),
        "beta is an argument, not 1e9": speedup(moving=nbytes / ranks / 1e9),
        "more ranks than cores take turns": speedup(turns=1),
        "with more cores than ranks, none takes turns": speedup(turns=ranks / cores),
        "turns are at least 1: max, not min": speedup(turns=min(1, ranks / cores)),
        "ranks / cores turns, not a whole number of them": speedup(turns=max(1, ranks // cores)),
        "ranks / cores turns, not rounded up": speedup(turns=max(1, -(-ranks // cores))),
        "each rank has a ranks-th of the work": speedup(turns=ranks * turns),
        "communication and computing add up: nothing overlaps": seconds
        / max(seconds / ranks * turns, messages * (alpha + moving)),
    }
    check.close(f"{ranks} ranks on {cores} cores, {nbytes:.3g} bytes, α = {alpha:g} s", got, want, suspects=suspects)


def average_locally(train, ranks, steps, every, sizes, seed):
    """Run a given local SGD; its parameters and losses by rank, and how often it averaged."""

    def on_rank(comm):
        rng = np.random.default_rng([seed, comm.rank])
        model = MLP(sizes, "tanh", dtype="float64")
        for p in model.params:
            p.grad.fill(0.5)  # left by an earlier step
        optimizer = Optimizer(model.params, Momentum(0.5), 0.2)  # a rule of its own: no update by hand is this one
        x, y = rng.normal(size=(steps, 4, sizes[0])), rng.integers(0, sizes[-1], (steps, 4))
        batches = [Batch(*xy, 4) for xy in zip(x, y, strict=True)]
        losses = train(comm, model, SoftmaxCrossEntropy(), optimizer, batches, every)
        return flat(model.params), losses

    world = SimWorld(ranks)
    found = world.run(on_rank)
    given = sum(span.nbytes for span in world.trace.select(rank=0, lane="comm"))
    return found, given / found[0][0].nbytes


def _locally(
    comm, model, loss, optimizer, batches, every, *,
    first=1, last=True, by=None, clear=True, of="data", n=1, hand=None, lost=False, instead=None,
):  # fmt: skip
    """Train alone and average, right or in the usual wrong ways."""
    losses, by, every = [], by or comm.size, instead or every
    for step, batch in enumerate(batches, first):
        losses.append(gradients_of(model, loss, batch, n * batch.n, clear))
        arrays = [getattr(p, of) for p in model.params]
        if of == "data":
            _update(model, optimizer, hand)
        if step % every == 0 or (last and step == len(batches) - 1 + first):
            for a in arrays:
                a[...] = (a if lost else comm.all_gather(a).sum(axis=0)) / by
        if of == "grad":
            _update(model, optimizer, hand)
    return losses


def _update(model, optimizer, hand) -> None:
    if hand is None:
        return optimizer.step()
    for p in model.params:
        p.data -= hand * p.grad


def check_local_sgd(check, train, ranks, steps, every, sizes=(5, 6, 3), seed=3) -> None:
    """Local SGD against a reference on every rank: parameters, losses, and how often it averaged."""
    case = ranks, steps, every, sizes, seed
    got, averaged = average_locally(train, *case)
    want, _ = average_locally(_locally, *case)
    expected = steps // every + (steps % every > 0)
    of = f"{ranks} ranks, {steps} steps, every {every}"
    kinds = {
        "not averaged after the last step": {"last": False},
        "steps are counted from 0: average after the first `every`, not before": {"first": 0},
        "steps are counted from 0: the first average comes too soon, the last never": {"first": 0, "last": False},
        "a sum, not a mean: divide by comm.size": {"by": 1},
        "the gradients of earlier steps are still in it: zero_grad()": {"clear": False},
        "the gradients were averaged: average the parameters, after the step": {"of": "grad"},
        "divided by more than this rank's own batch: batch.n is its size": {"n": ranks},
        "a step by hand, with the rate alone: call optimizer.step()": {"hand": 0.2},
        "a step by hand, with a rate of 0.3: call optimizer.step()": {"hand": 0.3},
        "divided by the ranks, but not summed: all_reduce works in place, on p.data itself": {"lost": True},
        "never averaged: each rank has its own": {"instead": 10**9, "last": False},
        "averaged at the end only: after every `every` steps, too": {"instead": 10**9},
        "averaged after every step: only after every `every` of them": {"instead": 1},
    }
    kinds |= {f"divided by {k}: comm.size says how many ranks there are": {"by": k} for k in (2, 3, 4) if k != ranks}
    others = {
        told: average_locally(lambda *args, how=how: _locally(*args, **how), *case)[0] for told, how in kinds.items()
    }
    for rank in range(ranks):
        wrong = {told: them[rank][0] for told, them in others.items()} if ranks > 1 else {}
        where = f"parameters, rank {rank} of {of}"
        check.close(where, got[rank][0], want[rank][0], rtol=1e-10, atol=1e-13, suspects=wrong)
    losses, right = [result[1] for result in got], np.array([result[1] for result in want])
    if any(value is None for value in losses):
        check.true(f"losses, {of}", False, "the function returns None: is `return losses` there?")
    else:
        wrong = {
            "the loss of every step: a list, with one number for each batch": right[:, -1:],
            "the loss of every step, not of the last": right[:, -1],
            "this rank's own losses, not the sum of all ranks'": np.tile(right.sum(axis=0), (ranks, 1)),
            "this rank's own losses, not the mean of all ranks'": np.tile(right.mean(axis=0), (ranks, 1)),
            "the mean of the losses: return all of them": right.mean(axis=1),
        }
        check.close(f"losses, {of}", np.array(losses), right, rtol=1e-10, suspects=wrong)
    if ranks > 1:
        told = f"all parameters were averaged {averaged:g} times, expected {expected}"
        check.true(f"averagings, {of}", np.isclose(averaged, expected), told)


def check_plan(check, scaled_lr, lr, batch_size, base, warmup_steps=0):
    """A learning-rate plan, asked for the last step first and for each one twice."""
    k, steps = batch_size / base, 3 * max(warmup_steps, 1)
    t = np.arange(steps, dtype=float)

    climb = np.minimum(1, t / warmup_steps) if warmup_steps else np.ones(steps)

    def rates(k=k, climbed=climb, start=lr):
        return start + (k * lr - start) * climbed

    plan = check.call(scaled_lr, lr, batch_size, base, *([warmup_steps] if warmup_steps else []))
    name = f"rate {lr:g}, batch {batch_size}, base {base}, warm-up {warmup_steps}"
    check.true("it returns a function", callable(plan), "define a function inside, and return it")
    if not callable(plan):
        return
    suspects = {
        "k is batch over base batch, not the reverse": rates(1 / k),
        "scaled with the square root of k": rates(k**0.5),
        "k need not be whole: / instead of //": rates(batch_size // base),
        "k may be less than 1: a smaller batch has a smaller rate": rates(max(1, k)),
        "never scaled": rates(1),
        "k times the rate: multiply, do not add": rates(1 + k),
    }
    if warmup_steps:
        suspects |= {
            "scaled, but without warm-up": np.full(steps, k * lr),
            "warm-up starts from 0, wanted from lr": rates(start=0),
            "one step too early: step 0 has lr itself": rates(climbed=np.minimum(1, (t + 1) / warmup_steps)),
            "one step too late: step W has the full rate": rates(climbed=np.clip((t - 1) / warmup_steps, 0, 1)),
            "W steps are wanted, and this takes W - 1": rates(climbed=np.minimum(1, t / max(warmup_steps - 1, 1))),
            "it keeps climbing after the warm-up": rates(climbed=t / warmup_steps),
            "it jumps at the end of the warm-up: climb linearly": rates(climbed=t >= warmup_steps),
            "warm-up takes warmup_steps steps, not 10": rates(climbed=np.minimum(1, t / 10)),
            "at step t the rate depends on t, not on how often the plan was asked": rates(climbed=climb[::-1]),
            "the climb is linear": lr * k**climb,
        }
    first = [float(plan(int(step))) for step in t[::-1]][::-1]
    check.close(name, first, rates(), suspects=suspects)
    again = [float(plan(int(step))) for step in t]
    check.true(f"{name}, asked again", np.allclose(again, first), "use `step`, and change nothing outside the function")


# -- Time lines of one training step, one below the other on the same axis: how much communication is exposed.


@styled
def plot_overlap(steps):
    """Draw steps one below the other, each with its exposed communication.

    Parameters
    ----------
    steps : dict of str to Overlap
        What `lab07.backward_step` returns, by name.
    """
    from matplotlib import pyplot as plt  # here, not above: pyplot chooses a backend when it is imported

    _, axes = plt.subplots(len(steps), 1, figsize=(8.4, 0.4 + 2.1 * len(steps)), squeeze=False)
    axes = tuple(axes[:, 0])
    longest = max(step.seconds for step in steps.values())
    for i, (ax, (name, step)) in enumerate(zip(axes, steps.items(), strict=True)):
        told = f"{name}: {1e3 * step.exposed:.2f} of {1e3 * step.communicating:.2f} ms of communication exposed"
        plot_timeline(step.trace, start=0.0, end=longest, ax=ax, title=told, legend=i == 0)
        if i < len(steps) - 1:
            ax.set_xlabel("")
    if len(steps) > 1:
        told = ", ".join(f"{name} {1e3 * step.seconds:.2f} ms" for name, step in steps.items())
        write_title(axes[0].figure, f"A step: {told}")
    return axes
