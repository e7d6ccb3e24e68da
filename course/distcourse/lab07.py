"""Data parallelism, for lab 07: one step of a given code against a serial one, its overlap, whole runs, real ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from distlearn import need, viz
from distlearn.comm import Network
from distlearn.comm.base import RankError, ignore_report
from distlearn.comm.waiting import count_cores  # noqa: F401  (for the notebook)
from distlearn.data import Batch, Batches, load, shard
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import RULES, SGD, Momentum, Optimizer
from distlearn.parallel import Serial, make_buckets
from distlearn.parallel.asynchronous.param_server import FlatModel
from distlearn.sim import Roofline, SimWorld
from distlearn.trace import Trace
from distlearn.train import Settings, build, evaluate, fit, train
from distlearn.viz.look import styled, write_title

from .flat import flat

# -- How much of the communication of a training step is exposed: one step of a given backward, on simulated ranks.


SLOW = Network(alpha=50e-6, beta=1e9)
"""50 microseconds to a message, and 1 GB/s."""

WIDTHS = (256,) * 11


@dataclass(repr=False)
class Overlap:
    """One step: forward, backward and the all-reduces of the gradients."""

    trace: Trace
    seconds: float
    communicating: float
    exposed: float
    gradients: list


def backward_step(
    backward,
    cap_bytes: float = np.inf,
    *,
    ranks=4,
    widths=WIDTHS,
    samples=128,
    frozen=(),
    network=SLOW,
    peak=40e9,
    steps=1,
) -> Overlap:
    """Run forward and a given backward on simulated ranks, in each step with the same buckets.

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
        dtype, rng = "float64" if samples < 100 else "float32", np.random.default_rng(comm.rank)
        model = MLP(widths, dtype=dtype)
        params = [p for i, p in enumerate(model.params) if i not in frozen]
        buckets = make_buckets(params, cap_bytes)
        for bucket in buckets:  # the last to be complete is neither first nor last
            bucket.params = [bucket.params[i] for i in np.random.default_rng(7).permutation(len(bucket.params))]
        x = rng.normal(size=(samples * (comm.rank < 4), widths[0])).astype(dtype)  # the part of a fifth rank is empty
        for _ in range(steps):
            for p in model.params:
                p.zero_grad()
            logits, saved = model.forward(x, clock=comm.clock)
            backward(comm, model, rng.normal(size=logits.shape).astype(dtype), saved, buckets)
        return [p.grad.copy() for p in model.params]

    world = SimWorld(ranks, network, Roofline(peak))
    gradients = world.run(on_rank)
    trace = world.trace
    communicating = trace.total(rank=0, lane="comm")
    return Overlap(trace, world.makespan, communicating, trace.exposed(), gradients)


def after_backward(comm, model, dlogits, saved, buckets) -> None:
    """Communicate when backward has ended: the naive way."""
    model.backward(dlogits, saved, clock=comm.clock)
    for bucket in buckets:
        comm.all_reduce(bucket.flat)


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
        By ranks: seconds of an all-reduce of each size in `MESSAGES`.
    trace : Trace
        Of a run on all ranks.
    """

    steps: dict
    all_reduces: dict
    trace: object

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


def all_reduce_seconds(comm, nbytes: int) -> float:
    """Return the median seconds of an all-reduce of float32."""
    x, times = np.zeros(nbytes // 4, "float32"), []
    for _ in range(9):
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
    return Measured(steps, costs, world.trace)


def fit_network(measured: Measured, p: int) -> Network:
    """Fit alpha and beta of T = 2 (p - 1) (alpha + m / (p beta)) to the all-reduces of p ranks.

    By factors, not differences: half of a measured time is as wrong as twice of it, so late messages do not pull alone.
    """
    seconds, sizes = np.array(measured.all_reduces[p]), np.array(MESSAGES)
    began = np.log([seconds[0], seconds[-1] / sizes[-1]])
    fit = need("scipy.optimize", "labs").least_squares
    least = began - np.log(100)  # a busy machine may show no slope at all, and so no end to beta
    found = fit(lambda x: np.log(np.exp(x) @ [np.ones(len(sizes)), sizes] / seconds), began, bounds=(least, np.inf))
    start, slope = np.exp(found.x).tolist()
    return Network(start / (2 * (p - 1)), 2 * (p - 1) / p / slope)


# -- Whole runs of lab 07: a given step in the library's training, large batches, local SGD on dealt data.


def train_digits_with(comm, settings: Settings, step=None, lr=None, rule=None):
    """Train as `train` does, but with a step, a learning-rate schedule or an update rule of its caller's own.

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


def local_run(train, every: int, by_class: bool, *, epochs=16, seed=0) -> float:
    """Train with a given local SGD on digits, dealt at random or by class, and return the test accuracy [%].

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
    """

    def on_rank(comm):
        data, loss = load("digits", dtype="float64").take(1280), SoftmaxCrossEntropy()
        model = MLP((64, 64, 10), seed=seed, dtype="float64")
        optimizer = Optimizer(model.params, SGD(), 0.3)
        order = np.argsort(data.y_train, kind="stable") if by_class else np.arange(1280)
        mine = order[shard(1280, comm.rank, comm.size)]
        deal = Batches(data.x_train[mine], data.y_train[mine], 32, seed=seed)
        batches = [batch for epoch in range(epochs) for batch in deal.epoch(epoch)]
        train(comm, model, loss, optimizer, batches, every)
        return evaluate(Serial(None, model, loss, optimizer), data.x_test, data.y_test)

    return 100 * SimWorld(4, collectives="formula").run(on_rank)[0]


# -- What answers to lab 07's exercises give, for their checks.


def gradient_of(rows) -> np.ndarray:
    """Return the mean gradient of a small network over some training digits, as one flat array."""
    digits, model = load("digits", dtype="float64"), FlatModel(MLP((64, 32, 10), dtype="float64"))
    model.gradient(digits.x_train[rows], digits.y_train[rows], SoftmaxCrossEntropy())
    return model.grad


def run_weighted_mean(answer, counts, dtype="float64"):
    rng = np.random.default_rng(sum(counts))
    return {"gradient": answer([(rng.normal(size=5) * (n > 0)).astype(dtype) for n in counts], counts)}


def run_data_parallel_step(answer, cuts, sizes=(6, 8, 4), lr=0.7, steps=1, momentum=0.0):
    """Take steps on ranks, of which rank r has rows cuts[r] to cuts[r + 1]; the change of parameters is over lr."""
    rng = np.random.default_rng(cuts[-1])
    x, y = rng.normal(size=(cuts[-1], sizes[0])), rng.integers(0, sizes[-1], cuts[-1])

    def on_rank(comm):
        model = MLP(sizes, "tanh", dtype="float64")
        optimizer = Optimizer(model.params, Momentum(momentum) if momentum else SGD(), lr)
        before = flat(model.params)
        for p in model.params:
            p.grad.fill(0.5)  # left by an earlier step
        a, b = cuts[comm.rank : comm.rank + 2]
        batch = Batch(x[a:b], y[a:b], cuts[-1])
        values = [answer(comm, model, SoftmaxCrossEntropy(), optimizer, batch) for _ in range(steps)]
        return values, (before - flat(model.params)) / lr

    world = SimWorld(len(cuts) - 1)
    found = {}
    for rank, (values, change) in enumerate(world.run(on_rank)):
        found[f"gradient of rank {rank}"] = change
        for step, value in enumerate(values):
            found[f"loss of rank {rank}" + f", step {step}" * (steps > 1)] = value
    least = len(cuts) > 2 and min(sum(s.nbytes for s in world.trace.select(rank=r)) for r in range(world.size))
    return found | {"all gradients are sent": bool(least >= change.nbytes * steps)}


def run_overlapped_backward(answer, ranks, cap_bytes, widths, frozen=()):
    step = backward_step(
        answer,
        cap_bytes,
        ranks=ranks,
        widths=widths,
        samples=32,
        frozen=frozen,
        network=Network(1e-6, 4e9),
        peak=5e9,
        steps=2,
    )
    found = {f"gradients of rank {r}": np.concatenate([g.ravel() for g in own]) for r, own in enumerate(step.gradients)}
    ends = [max((s.end for s in step.trace.select(rank=r, lane="compute")), default=0) for r in range(ranks)]
    calls = [step.trace.select(rank=r, lane="comm") for r in range(ranks)]
    if ranks > 1:  # one rank need not call
        found["all-reduces of each rank"] = [len(own) for own in calls]
        found["all-reduces that start in backward"] = [
            sum(span.start < end - 1e-12 for span in own) for own, end in zip(calls, ends, strict=True)
        ]
    return found | {
        "seconds of computing": step.trace.total(lane="compute"),
        "seconds of exposed communication": step.exposed,
    }


def run_predicted_speedup(answer, seconds, nbytes, ranks, cores, alpha, beta):
    return {"speed-up": answer(seconds, nbytes, ranks, cores, alpha, beta)}


def run_local_sgd(answer, ranks, steps, every, sizes=(5, 6, 3), momentum=0.5, lr=0.2):
    """Train on ranks, each on batches of its own."""

    def on_rank(comm):
        rng = np.random.default_rng([steps, comm.rank])
        model = MLP(sizes, "tanh", dtype="float64")
        for p in model.params:
            p.grad.fill(0.5)  # left by an earlier step
        optimizer = Optimizer(model.params, Momentum(momentum), lr)
        x, y = rng.normal(size=(steps, 4, sizes[0])), rng.integers(0, sizes[-1], (steps, 4))
        batches = [Batch(*xy, 4) for xy in zip(x, y, strict=True)]
        losses = answer(comm, model, SoftmaxCrossEntropy(), optimizer, batches, every)
        return flat(model.params), losses, len(batches)

    world = SimWorld(ranks)
    found = {}
    for rank, (params, losses, left) in enumerate(world.run(on_rank)):
        found |= {f"parameters of rank {rank}": params, f"losses of rank {rank}": losses, "batches left": left}
    sent = sum(span.nbytes for span in world.trace.select(rank=0, lane="comm"))
    return found | ({"averagings": sent / params.nbytes} if ranks > 1 else {})  # one rank need not call


def run_scaled_lr(answer, lr, batch_size, base_batch_size, warmup_steps=0):
    """Ask a schedule for its last step first, and for each twice, when another one has been made."""
    schedule = answer(lr, batch_size, base_batch_size, *([warmup_steps] if warmup_steps else []))
    answer(2 * lr, 7, 3, 5)
    if not callable(schedule):
        return {"schedule": f"a {type(schedule).__name__}"}
    steps = range(3 * max(warmup_steps, 1))
    backwards = [schedule(step) for step in reversed(steps)][::-1]
    return {"schedule": "a function", "rates": backwards, "rates, asked again": [schedule(step) for step in steps]}


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
        viz.plot_timeline(step.trace, start=0.0, end=longest, ax=ax, title=told, legend=i == 0)
        if i < len(steps) - 1:
            ax.set_xlabel("")
    if len(steps) > 1:
        told = ", ".join(f"{name} {1e3 * step.seconds:.2f} ms" for name, step in steps.items())
        write_title(axes[0].figure, f"A step: {told}")
    return axes
