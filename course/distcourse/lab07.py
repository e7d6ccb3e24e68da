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
from distlearn.optim import RULES, SGD, Optimizer
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


def library_backward(comm, model, dlogits, saved, buckets) -> None:
    """Communicate each bucket as soon as it is full."""
    home = {id(p): b for b in buckets for p in b.params}
    missing, works = {id(b): len(b.params) for b in buckets}, []

    def ready(param):
        bucket = home.get(id(param))
        if bucket is not None:
            missing[id(bucket)] -= 1
            if not missing[id(bucket)]:
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


def measure_engines(world, cases: dict, ranks=(1, 2, 4), repetitions: int = 3, report=None) -> Measured:
    """Measure training steps and all-reduces on the first ranks of a world.

    Parameters
    ----------
    report : callable, optional
        Gets `report(done, total)`.
    """
    total, done = len(ranks) * (len(cases) * repetitions + len(MESSAGES)), 0
    steps = {case: {p: [] for p in ranks} for case in cases}
    costs = {p: [] for p in ranks}
    for p in ranks:
        for call, out, *args in [
            *[(step_seconds, steps[case][p], s) for case, s in cases.items() for _ in range(repetitions)],
            *[(all_reduce_seconds, costs[p], nbytes) for nbytes in MESSAGES],
        ]:
            out.append(world.run(first_ranks, p, call, *args)[0])
            done += 1
            if report is not None:
                report(done, total)
    world.run(step_seconds, next(iter(cases.values())))
    return Measured(tuple(ranks), steps, costs, world.trace)


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
    return fit(
        strategy,
        data,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        seed=settings.seed,
        evaluate_every=settings.evaluate_every,
        report=comm.report,
    )


def plan_accuracy(settings: Settings, batch_sizes, plan=None, *, seeds=3, report=None) -> np.ndarray:
    """Return the test accuracy by batch size and seed; a run whose loss is NaN counts as guessing.

    Parameters
    ----------
    plan : callable, optional
        `plan(batch_size)` returns the learning-rate plan; the rate of the settings by default.
    report : callable, optional
        Gets `report(runs done, runs in all)`.

    Returns
    -------
    accuracy : (batch sizes, seeds) array
        In per cent.
    """
    report, found = report or ignore_report, np.full((len(batch_sizes), seeds), 10.0)
    for i, batch_size in enumerate(batch_sizes):
        for seed in range(seeds):
            run = settings.but(batch_size=batch_size, seed=seed)
            try:
                history = SimWorld(1).run(train_digits_with, run, lr=plan and plan(batch_size))[0]
                found[i, seed] = 100 * history.last.test_accuracy
            except RankError:  # the loss was no longer finite
                pass
            report(i * seeds + seed + 1, found.size)
    return found


def time_to_accuracy(settings: Settings, ranks: int, accuracy: float = 0.9) -> tuple[int, float]:
    """Return after how many epochs, and simulated seconds, a run first reaches a validation accuracy."""
    world = SimWorld(ranks, Network(20e-6, 1e9), Roofline(2e9))
    history = world.run(train_digits_with, settings.but(evaluate_every=1))[0]
    first = np.flatnonzero(history.column("val_accuracy") >= accuracy)
    if not len(first):
        raise ValueError(f"time_to_accuracy: {settings.epochs} epochs end below {accuracy:.0%}; train longer")
    return history.epochs[first[0]].epoch, history.epochs[first[0]].seconds


def local_run(train, every: int, by_class: bool, *, ranks=4, epochs=16, seed=0) -> tuple[float, float]:
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

    world = SimWorld(ranks)
    accuracy = world.run(on_rank)[0]
    given = sum(span.nbytes for span in world.trace.select(rank=0, lane="comm"))
    return given * 2 * (ranks - 1) / ranks / 1e6, 100 * accuracy  # what a ring sends


# -- A given training step against a serial one: the checks of lab 07's exercises, and the mistakes that they name.


SIZES = (6, 8, 4)


def gradient_of(rows, n_hidden: int = 32) -> np.ndarray:
    """Return the mean gradient of a small network over some training digits, as one flat array."""
    digits, model = load("digits", dtype="float64"), MLP((64, n_hidden, 10), dtype="float64")
    logits, saved = model.forward(digits.x_train[rows])
    model.backward(SoftmaxCrossEntropy()(logits, digits.y_train[rows])[1], saved)
    return flat(model.params, "grad")


def serial_step(comm, model, loss, optimizer, batch) -> float:
    """Take the step of a single rank."""
    return Serial(model, loss, optimizer).step(batch)


def run_step(step, x, y, cuts, sizes=SIZES, steps=1, frozen=()):
    """Take steps of SGD on ranks; rank r has rows cuts[r] to cuts[r + 1]."""

    def on_rank(comm):
        model = MLP(sizes, "tanh", dtype="float64")
        for i in frozen:
            model.params[i].frozen = True
        sgd = Optimizer([p for p in model.params if not p.frozen], SGD(), lr=1.0)
        before = [p.data.copy() for p in model.params]
        for p in model.params:
            p.grad.fill(0.5)  # left by an earlier step
        a, b = cuts[comm.rank : comm.rank + 2]
        batch = Batch(x[a:b], y[a:b], cuts[-1] - cuts[0])
        for _ in range(steps):
            value = step(comm, model, SoftmaxCrossEntropy(), sgd, batch)
        return value, np.concatenate([(b - p.data).ravel() for b, p in zip(before, model.params, strict=True)])

    return SimWorld(len(cuts) - 1).run(on_rank)


def judge_step(check, step, cuts, sizes=SIZES, seed=2) -> None:
    """Compare a data-parallel step with a serial one on every rank; add the outcome to a lab's check.

    Parameters
    ----------
    step : callable
        `step(comm, model, loss, optimizer, batch) -> loss of the global batch`.
    cuts : list of int
        Rank r has rows cuts[r] to cuts[r + 1].
    sizes : tuple of int
        Widths of the network.
    """
    rng, ranks = np.random.default_rng(seed), len(cuts) - 1
    x, y = rng.normal(size=(cuts[-1], sizes[0])), rng.integers(0, sizes[-1], cuts[-1])
    ((value, want),) = run_step(serial_step, x, y, [0, cuts[-1]], sizes)
    parts = {rank: run_step(serial_step, x, y, [a, b], sizes)[0] for rank, (a, b) in enumerate(pairwise(cuts)) if b > a}
    share = np.diff(cuts) / cuts[-1]
    taken = run_step(step, x, y, cuts, sizes)
    moved = [got.any() for _, got in taken]
    unsummed = any(moved) and not any(np.allclose(got, want, rtol=1e-10) for _, got in taken)
    for rank, (total, got) in enumerate(taken):
        where = f"rank {rank} of {ranks}"
        loss, grad = parts.get(rank, (0.0, np.zeros_like(want)))
        wrong = {
            "the parameters have not moved: it takes both model.backward and optimizer.step()": np.zeros_like(want),
            "gradients of an earlier step are still there: call zero_grad()": want + 0.5 * ranks,
        }
        losses = {}
        if rank not in parts and unsummed:  # else it is the update that is missing
            told = "this rank's part is empty, so its gradient comes from the others: sum over ranks before the step"
            wrong = {told: np.zeros_like(want)} | wrong
        if ranks > 1:
            wrong |= {
                "a mean of means: pass batch.n to the loss, and only sum": sum(g for _, g in parts.values()) / ranks,
                "a sum of means: pass batch.n to the loss": sum(g for _, g in parts.values()),
                "this rank's own part only: sum over ranks after backward, before the step": share[rank] * grad,
                "this rank's own part and an earlier step's gradients: zero_grad(), and sum": share[rank] * grad + 0.5,
                "the mean over this rank's own part: batch.n, and a sum over ranks": grad,
            }
            losses = {
                "this rank's own part of the loss: sum it over ranks, too": share[rank] * loss,
                "the mean over this rank's own part": loss,
            }
        factors = {"ranks": ranks} if ranks > 1 else None
        check.close(f"gradient, {where}", got, want, rtol=1e-10, factors=factors, suspects=wrong)
        check.close(f"loss, {where}", total, value, rtol=1e-10, factors=factors, suspects=losses)


def judge_backward(check, backward, ranks=3, cap_bytes=3000, widths=(16, 24, 24, 10), frozen=()) -> None:
    """Compare a given overlapped backward with the library's; add the outcome to a lab's check.

    Parameters
    ----------
    backward, ranks, cap_bytes, widths, frozen
        For `backward_step`.
    """
    case = {"ranks": ranks, "widths": widths, "samples": 32, "frozen": frozen, "network": Network(1e-6, 4e9)}
    got, want, late = (
        backward_step(f, cap_bytes, peak=5e9, **case) for f in (backward, library_backward, after_backward)
    )
    of = f"{ranks} rank{'s' * (ranks > 1)}, {len(frozen)} frozen" if frozen else f"{ranks} rank{'s' * (ranks > 1)}"
    alone = backward_step(lambda comm, model, dy, saved, buckets: model.backward(dy, saved), cap_bytes, **case)
    flat = [
        np.stack([np.concatenate([g.ravel() for g in rank]) for rank in step.gradients]) for step in (got, want, alone)
    ]
    wrong = {"each rank has its own: not summed over the ranks": flat[2]} if ranks > 1 else None
    check.close(f"gradients, {of}", flat[0], flat[1], rtol=1e-10, factors={"ranks": ranks}, suspects=wrong)
    computing = [step.trace.total(lane="compute") for step in (got, want)]
    timed = np.isclose(*computing)
    check.true(f"backward takes time, {of}", timed, "pass clock=comm.clock to backward")
    calls = [len(step.trace.select(rank=0, lane="comm")) for step in (got, want)]
    check.equal(f"all-reduces, {of}: one per bucket", *calls)
    if timed and ranks > 1 and calls[1] > 1:
        told = "start each all-reduce in on_grad, and wait only after backward"
        early = got.exposed < 0.999 * late.exposed
        check.true(f"it overlaps, {of}", early, told)
        if early and calls[0] == calls[1]:
            told = f"{1e6 * got.exposed:.1f} µs exposed, {1e6 * want.exposed:.1f} are possible"
            check.true(f"nothing waits without need, {of}", got.exposed <= want.exposed * (1 + 1e-9) + 1e-12, told)


def average_locally(train, ranks, steps, every, sizes=(5, 6, 3), seed=3):
    """Run a given local SGD."""

    def on_rank(comm):
        rng = np.random.default_rng([seed, comm.rank])
        model = MLP(sizes, "tanh", dtype="float64")
        for p in model.params:
            p.grad.fill(0.5)  # left by an earlier step
        sgd = Optimizer(model.params, SGD(), 0.3)
        x, y = rng.normal(size=(steps, 4, sizes[0])), rng.integers(0, sizes[-1], (steps, 4))
        batches = [Batch(*xy, 4) for xy in zip(x, y, strict=True)]
        losses = train(comm, model, SoftmaxCrossEntropy(), sgd, batches, every)
        return flat(model.params), losses

    world = SimWorld(ranks)
    found = world.run(on_rank)
    given = sum(span.nbytes for span in world.trace.select(rank=0, lane="comm"))
    return found, given / found[0][0].nbytes


def _locally(
    comm,
    model,
    loss,
    optimizer,
    batches,
    every,
    *,
    first=1,
    last=True,
    mean=True,
    clear=True,
    gradients=False,
    own_batch=True,
) -> list:
    """Train alone and average, right or in the usual wrong ways."""
    losses = []
    for step, batch in enumerate(batches, first):
        if clear:
            optimizer.zero_grad()
        logits, saved = model.forward(batch.x)
        value, dlogits = loss(logits, batch.y, batch.n * (1 if own_batch else comm.size))
        model.backward(dlogits, saved)
        losses.append(value)
        now = step % every == 0 or (last and step == len(batches) - 1 + first)
        if now and gradients:
            _average(comm, [p.grad for p in model.params], mean)
        optimizer.step()
        if now and not gradients:
            _average(comm, [p.data for p in model.params], mean)
    return losses


def _average(comm, arrays, mean) -> None:
    for a in arrays:
        a[...] = comm.all_gather(a).sum(axis=0) / (comm.size if mean else 1)


def judge_local_sgd(check, train, ranks, steps, every, sizes=(5, 6, 3), seed=3) -> None:
    """Compare a given local SGD with a reference; add the outcome to a lab's check.

    Parameters
    ----------
    ranks, steps, every, sizes, seed
        For `average_locally`.
    """
    case = ranks, steps, every, sizes, seed
    got, averaged = average_locally(train, *case)
    want, _ = average_locally(_locally, *case)
    expected = steps // every + (steps % every > 0)
    of = f"{ranks} ranks, {steps} steps, every {every}"
    kinds = {
        "not averaged after the last step": {"last": False},
        "steps are counted from 0: average after the first `every`, not before": {"first": 0},
        "steps are counted from 0: the first average comes too soon, the last never": {"first": 0, "last": False},
        "a sum, not a mean: divide by comm.size": {"mean": False},
        "the gradients of earlier steps are still in it: zero_grad()": {"clear": False},
        "the gradients were averaged: average the parameters, after the step": {"gradients": True},
        "divided by more than this rank's own batch: batch.n is its size": {"own_batch": False},
    }
    others = {
        told: average_locally(lambda *args, how=how: _locally(*args, **how), *case)[0] for told, how in kinds.items()
    }
    others["never averaged: each rank has its own"] = average_locally(
        lambda comm, *rest: _locally(comm, *rest[:4], 10**9, last=False), *case
    )[0]
    for rank in range(ranks):
        wrong = {told: them[rank][0] for told, them in others.items()} if ranks > 1 else {}
        check.close(
            f"parameters, rank {rank} of {of}", got[rank][0], want[rank][0], rtol=1e-10, atol=1e-13, suspects=wrong
        )
    losses = [result[1] for result in got]
    if any(value is None for value in losses):
        check.true(f"losses, {of}", False, "the function returns None: is `return losses` there?")
    else:
        check.close(f"losses, {of}", np.array(losses), np.array([result[1] for result in want]), rtol=1e-10)
    if ranks > 1:
        told = f"all parameters were averaged {averaged:g} times, expected {expected}"
        check.true(f"averagings, {of}", np.isclose(averaged, expected), told)


# -- Time lines of one training step, one below the other on the same axis: how much communication is exposed.


@styled
def plot_overlap(steps, *, axes=None, title=None):
    """Draw steps one below the other, each with its exposed communication.

    Parameters
    ----------
    steps : dict of str to Overlap
        What `lab07.backward_step` returns, by name.
    """
    if axes is None:
        from matplotlib import pyplot as plt  # here, not above: pyplot chooses a backend when it is imported

        _, axes = plt.subplots(len(steps), 1, figsize=(8.4, 0.4 + 2.1 * len(steps)), squeeze=False)
        axes = list(axes[:, 0])
    longest = max(step.seconds for step in steps.values())
    for i, (ax, (name, step)) in enumerate(zip(axes, steps.items(), strict=True)):
        told = f"{name}: {1e3 * step.exposed:.2f} of {1e3 * step.communicating:.2f} ms of communication exposed"
        plot_timeline(step.trace, start=0.0, end=longest, ax=ax, title=told, legend=i == 0)
        if i < len(steps) - 1:
            ax.set_xlabel("")
    told = ", ".join(f"{name} {1e3 * step.seconds:.2f} ms" for name, step in steps.items())
    write_title(axes[0].figure, f"A step: {told}", title)
    return tuple(axes)
