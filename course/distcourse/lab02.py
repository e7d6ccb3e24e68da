"""What update rules and batch sizes buy: steps and samples to a target loss, each at its own best learning rate."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np

from distlearn.comm.base import ignore_report
from distlearn.data import Batch, available, load
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import Serial
from distlearn.shares import shares
from distlearn.train.fit import DivergedError
from distlearn.viz.look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title

from .exercise import named
from .flat import as_one
from .noise_scale import NoiseScale

# -- A network, its data and the loss to be reached; and the search for the learning rate that reaches it soonest.


MOST = 1500
"""Samples that a task uses: enough for a noise scale of a hundred."""


@dataclass(frozen=True)
class TargetTask:
    """A small network to be trained until its loss on the training samples is `target`."""

    name: str
    x: np.ndarray
    y: np.ndarray
    target: float
    hidden: tuple[int, ...] = (32,)

    def trainer(self, rule, lr: float, seed: int = 0) -> Serial:
        """Return a freshly initialized network with its optimizer."""
        model = MLP((self.x.shape[1], *self.hidden, int(self.y.max()) + 1), seed=seed)
        return Serial(None, model, SoftmaxCrossEntropy(), Optimizer(model.params, rule, lr))

    def draw(self, batch: int, rng) -> Batch:
        """Return a batch of samples drawn with replacement, which makes them independent; or simply all of them."""
        rows = slice(None) if batch >= len(self.x) else rng.integers(len(self.x), size=batch)
        return Batch(self.x[rows], self.y[rows], min(batch, len(self.x)))

    def loss(self, trainer) -> float:
        """Return the loss on all samples."""
        return trainer.loss(trainer.model.forward(self.x)[0], self.y)[0]


TARGETS = {"digits": 0.3, "mnist": 0.4, "fashion-mnist": 0.65, "digits, 0-4 or 5-9": 0.25}


def target_task(name: str = "digits") -> TargetTask:
    """Return a task by the name of its data; one that is not on this machine is replaced, nothing is downloaded.

    Parameters
    ----------
    name : {"digits", "mnist", "fashion-mnist", "digits, 0-4 or 5-9"}
        The last one is another question about scikit-learn's digits, and stands in for data that are missing.
    """
    if name in ("mnist", "fashion-mnist"):
        origin = {found.name: found.origin for found in available()}
        if origin.get(name) not in ("folder", "cache"):
            return target_task("digits, 0-4 or 5-9")
    data = load("digits" if name.startswith("digits") else name)
    x, y = data.x_train[:MOST], data.y_train[:MOST]
    return TargetTask(name, x, (y < 5).astype(y.dtype) if "0-4" in name else y, TARGETS[name])


def steps_to_target(task: TargetTask, batch: int, lr: float, rule=None, *, seed: int = 0, most: float = 5000) -> float:
    """Return the steps after which the loss on all samples is at most the target, to 3 %; infinite if not in `most`.

    Parameters
    ----------
    batch : int
        Samples in a batch; as many as the task has, or more, are all of them.
    rule : Rule, optional
        `SGD` by default.
    seed : int
        Of the weights and of the samples drawn.
    most : float
        Steps after which the run ends.
    """
    trainer, rng, look = task.trainer(SGD() if rule is None else rule, lr, seed), np.random.default_rng(seed), 1
    with np.errstate(all="ignore"):  # a learning rate that is too high overflows
        for step in range(1, int(most) + 1):
            value = trainer.step(task.draw(batch, rng))
            if not math.isfinite(value):
                return math.inf
            if step >= look and value < 2 * task.target:  # a batch far above it: all samples are, too
                if task.loss(trainer) <= task.target:
                    return step
                look = math.ceil(step * 1.03)
    return math.inf


def tune(score, start: float, most: float = math.inf) -> dict[float, float]:
    """Search the best learning rate in steps of a factor of two: up from `start`, then down, until it gets worse."""
    scores = {start: score(start, most)}
    for factor in (2.0, 0.5):
        best = min(scores, key=scores.get)
        while True:
            lr = best * factor
            scores[lr] = score(lr, min(most, scores[best]))
            lost = math.isinf(scores[best]) and start / 64 < lr < start * 64  # nothing known to be better than: go on
            if not (scores[lr] < scores[best] or lost):
                break
            best = lr
    return dict(sorted(scores.items()))


# -- Steps and samples to a target by batch size, the hyperbola they lie on, and the noise scale that predicts it.


class Hyperbola(NamedTuple):
    """Steps and samples to a target by batch size B: S = steps (1 + critical / B), E = S B.

    Attributes
    ----------
    steps : float
        The fewest, with a batch of any size.
    samples : float
        The fewest, with batches of one.

    References
    ----------
    S. McCandlish, J. Kaplan, D. Amodei et al. (2018), An empirical model of large-batch training, arXiv:1812.06162,
    equation 2.11: (S / S_min - 1)(E / E_min - 1) = 1.
    """

    steps: float
    samples: float

    @property
    def critical(self) -> float:
        """The critical batch size: twice the fewest steps, and twice the fewest samples."""
        return self.samples / self.steps

    def at(self, batch):
        """Return the steps with a batch size (or an array of them)."""
        return self.steps + self.samples / np.asarray(batch, float)


class Sweep(NamedTuple):
    """What `sweep_batches` measured.

    Attributes
    ----------
    lrs : list of float
        The best learning rate of each batch size.
    runs : (batches, seeds) array
        Steps to the target with it.
    """

    task: TargetTask
    batches: list[int]
    lrs: list[float]
    runs: np.ndarray

    @property
    def steps(self):
        """The mean over the seeds, by batch size."""
        return self.runs.mean(axis=1)


def sweep_batches(task: TargetTask, batches, *, lr: float, report=ignore_report) -> Sweep:
    """Measure the steps to the target loss for several batch sizes, each with the learning rate that is best for it.

    Parameters
    ----------
    batches : sequence of int
        In increasing order; the search for the learning rate starts where that of the batch before ended.
    lr : float
        Where the search starts, on a grid of powers of two.
    report : callable
        Gets `report(batch sizes done, in all)`.
    """
    # a learning rate is judged by the mean over the seeds of weights and samples
    seeds, most, lrs, runs, batches = 3, 3000, [], [], list(batches)
    for batch in batches:
        found = {}

        def score(lr, limit, batch=batch, found=found):
            found[lr], left = [], seeds * limit  # steps of all seeds: with more, another rate is better
            for seed in range(seeds):
                found[lr].append(steps_to_target(task, batch, lr, seed=seed, most=min(most, left)))
                left -= found[lr][-1]
                if left < 0:
                    return math.inf
            return float(np.mean(found[lr]))

        scores = tune(score, lrs[-1] if lrs else lr, most)
        lrs.append(min(scores, key=scores.get))
        runs.append(found[lrs[-1]])
        if not math.isfinite(scores[lrs[-1]]):
            raise ValueError(f"sweep_batches: a batch of {batch} does not reach {task.target} in {most} steps")
        report(len(runs), len(batches))
    return Sweep(task, batches, lrs, np.array(runs, float))


def step_seconds(task: TargetTask, batch: int, rule) -> float:
    """Measure the time of a training step, the median of several [s]."""
    trainer, rng, times = task.trainer(rule, 0.1), np.random.default_rng(0), []
    for _ in range(30):
        start = perf_counter()
        trainer.step(task.draw(batch, rng))
        times.append(perf_counter() - start)
    return float(np.median(times))


def noise_run(comm, task: TargetTask, estimator, *, lr: float, steps: int, seed: int = 0):
    """Train data-parallel on batches of 64, and hand the ranks' gradients to an estimator of the noise in every step.

    Parameters
    ----------
    estimator : callable
        estimator(gradients, b) -> (trace, squared_norm), from an array (ranks, parameters) of the ranks' mean gradients
        over b samples each.
    lr : float
        Of plain SGD.

    Returns
    -------
    estimates : (steps, 2) array
        What the estimator returned.
    noise : NoiseScale
        A reference, from the same gradients. Rank 0 alone has both; the others return no rows.
    """
    batch = 64  # of all ranks together
    serial, noise, rng = task.trainer(SGD(), lr, seed), NoiseScale(), np.random.default_rng(seed)
    params, mine, estimates = as_one(serial.model.params), shares(batch, comm.size)[comm.rank], []
    for _ in range(steps):
        whole = task.draw(batch, rng)  # the same on every rank
        serial.optimizer.zero_grad()
        out, saved = serial.model.forward(whole.x[mine])
        serial.model.backward(serial.loss(out, whole.y[mine])[1], saved)
        gradients = comm.all_gather(params.grad)
        mean = gradients.mean(axis=0)
        if comm.rank == 0:
            noise.add((gradients**2).sum(axis=1).mean(), (mean**2).sum(), n=batch, parts=comm.size)
            estimates.append(estimator(gradients, batch // comm.size))
        params.grad[...] = mean
        serial.optimizer.step()
    return np.array(estimates, float).reshape(-1, 2), noise


# -- What answers to lab 02's exercises give, for their checks.


def _steps(rule, memory, shape, lr, steps=3, first=0, dtype="float64", seed=1, **options) -> dict:
    """Take some steps of a rule with so many arrays in its state; they are not 0 where a run goes on (first)."""
    rng = np.random.default_rng(seed)
    data, *grads = rng.normal(size=(1 + steps, *shape)).astype(dtype)
    state = (rng.uniform(0.5, 2.0, size=(memory, *shape)) * (first > 0)).astype(dtype)
    found = {"data": [], **({"state": []} if memory else {}), "grad": "as it was"}
    for step, grad in enumerate(grads, first):
        given = grad.copy()
        rule(data, given, (*state,) if memory > 1 else state[0] if memory else None, lr, step, *options.values())
        found["data"].append(data.copy())
        if memory:
            found["state"].append(state.copy())
        if not np.array_equal(given, grad):
            found["grad"] = "changed"
    return {name: value if name == "grad" else np.array(value) for name, value in found.items()}


def run_momentum(sgd, momentum, nesterov, of, **case):
    rule, memory = {"sgd": (sgd, 0), "momentum": (momentum, 1), "nesterov": (nesterov, 1)}[of]
    return {f"{name} of {of}": value for name, value in _steps(rule, memory, **case).items()}


def run_adaptive(adagrad, rmsprop, of, **case):
    rule = {"adagrad": adagrad, "rmsprop": rmsprop}[of]
    return {f"{name} of {of}": value for name, value in _steps(rule, 1, **case).items()}


def run_adam(adam, **case):
    found = _steps(adam, 2, **case)
    m, s = found.pop("state").swapaxes(0, 1)
    return found | {"m": m, "s": s}


def run_noise(noise, gradients, b):
    return named(noise(gradients, b), "trace", "squared norm")


def run_fit(fit, batches, steps):
    return named(fit(batches, steps), "S_min", "E_min")


def run_best_batch(best_batch, **case):
    return {"batch": best_batch(*case.values())}


# -- A schedule of the learning rate, against tuned rivals.


RIVALS = {
    "a constant rate": lambda step, steps: 1.0,
    "a tenth of it from half way on": lambda step, steps: 1.0 if 2 * step < steps else 0.1,
    "a linear fall to 0": lambda step, steps: 1 - step / steps,
}
"""By name: the factor of the base rate at a step, of so many."""


def bowl_losses(schedule, steps: int, noise: float = 1.0) -> tuple[float, np.ndarray]:
    """Descend into a bowl of 20 weights along noisy gradients, at the best of 41 base rates for this schedule.

    Curvatures go from 1 to 50, weights start at 1, and `noise` is the standard deviation of each gradient's elements.
    Return the base rate, and the loss before each step and after the last, as its exact mean over the noise. A rate at
    which the loss ever doubles is lost.
    """
    factors = [schedule(step, steps) for step in range(steps)]
    # the largest rate of the run is searched, so that a schedule and a multiple of it are the same
    h, rates = np.geomspace(1, 50, 20), np.geomspace(0.02, 2, 41) / 50 / (max(factors) or 1)
    squares, losses = np.ones((41, 20)), [np.full(41, h.sum() / 2)]
    with np.errstate(all="ignore"):
        for factor in factors:
            lr = rates[:, None] * factor
            squares = (1 - lr * h) ** 2 * squares + (lr * noise) ** 2
            losses.append(squares @ h / 2)
    kept = (np.array(losses) < 2 * losses[0]).all(axis=0)
    best = np.where(kept, losses[-1], np.inf).argmin()
    return float(rates[best]), np.array(losses)[:, best]


@functools.cache
def best_rival(steps: int, noise: float) -> tuple[str, float]:
    """Return the rival with the least loss at the end, and that loss."""
    ends = {name: bowl_losses(rival, steps, noise)[1][-1] for name, rival in RIVALS.items()}
    return min(ends.items(), key=lambda end: end[1])


def run_schedule(schedule, steps, noise):
    """Compare the loss that a schedule reaches in a bowl with that of the best of `RIVALS`."""
    factors, wanted = [schedule(step, steps) for step in range(steps)], "at most 0.9 times the best rival's"
    for step, f in enumerate(factors):
        if not (np.isscalar(f) and np.isreal(f) and 0 <= f < np.inf):
            return {"loss at the end": f"none: step {step} gets {f!r:.40}, expected a number, 0 or more"}
    rival, end = best_rival(steps, noise)
    ratio = bowl_losses(lambda step, _: factors[step], steps, noise)[1][-1] / end
    told = f"{ratio:.2f} times that of {rival}; "
    if ratio <= 0.9:
        told = wanted
    elif factors[-1] >= max(factors):
        told += "noise counts most at the end, so the rate must fall"
    elif [schedule(step, 2 * steps) for step in range(steps)] == factors:
        told += "a longer run can fall more slowly: use `steps`"
    else:
        told += (
            f"yours ends at {factors[-1] / max(factors):.2g} of its largest rate: try another end, or another way there"
        )
    return {"loss at the end": told}


# -- Update rules side by side: on a ravine, in their first steps, and on a task, each at its own best learning rate.


@dataclass(frozen=True)
class FunctionRule:
    """A rule for `Optimizer` made of one function and the number of arrays that it remembers.

    Attributes
    ----------
    function : callable
        function(data, grad, state, lr, step), which changes `data` and `state` in place.
    memory : int
        Arrays in the state, zeros at first: none (the state is None), one, or several (a tuple).

    Examples
    --------
    >>> FunctionRule(print, 2).init(np.zeros(1))
    (array([0.]), array([0.]))
    """

    function: object
    memory: int = 0

    def init(self, data):
        """Return None, an array of zeros, or a tuple of them."""
        arrays = tuple(np.zeros_like(data) for _ in range(self.memory))
        return arrays if self.memory > 1 else arrays[0] if arrays else None

    def update(self, data, grad, state, lr, step):
        """Call the function."""
        self.function(data, grad, state, lr, step)


CURVATURES = np.array([1.0, 20.0])
"""Of the ravine."""


def descend(rule, lr: float, *, steps: int = 60, angle=0.0) -> np.ndarray:
    """Walk down a ravine, the loss half the sum of `CURVATURES` times weight squared; return all positions.

    Parameters
    ----------
    angle : float
        By which the ravine is turned against the axes [degrees]; the start is turned with it.

    Returns
    -------
    path : (steps + 1, 2) array
        In the ravine's own directions.

    Raises
    ------
    DivergedError
        At the first loss that is 100 times the first one.
    """
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    turn, h, start = np.array([[c, -s], [s, c]]), CURVATURES, np.array([-1.0, 0.4])
    w = turn @ start
    path, state = [start], rule.init(w)
    limit = 50 * float(h @ path[0] ** 2)
    for step in range(steps):
        rule.update(w, turn @ (h * path[-1]), state, lr, step)
        path.append(turn.T @ w)
        loss = float(h @ path[-1] ** 2) / 2
        if not loss < limit:
            told = f"the loss became {loss:.3g} at step {step + 1}: training diverged with a rate of {lr:g}"
            raise DivergedError(told)
    return np.array(path)


def ravine_steps(rule, *, angle: float = 0.0) -> int:
    """Return the fewest steps until the loss in a ravine stays below a thousandth of the first, over many rates."""
    most = best = 300
    for lr in np.geomspace(1e-3, 4, 70):
        try:  # to the end: a path may pass the minimum and come back
            losses = descend(rule, float(lr), steps=most, angle=angle) ** 2 @ CURVATURES
        except DivergedError:
            continue
        above = np.flatnonzero(losses > 1e-3 * losses[0])
        best = min(best, int(above[-1]) + 1)
    return best


def first_steps(rule, steps: int = 100) -> np.ndarray:
    """Return the length of each step in units of the learning rate, for gradients that are pure noise plus a drift.

    Each of 2,000 weights has gradients drawn from a normal distribution of mean 1 and deviation 1; the length is the
    root of the mean square over the weights.
    """
    rng, w = np.random.default_rng(0), np.zeros(2000)
    state, lengths = rule.init(w), []
    for step in range(steps):
        before = w.copy()
        rule.update(w, rng.normal(1.0, 1.0, 2000), state, 1.0, step)
        lengths.append(float(np.sqrt(np.mean((w - before) ** 2))))
    return np.array(lengths)


# -- Paths down a ravine, and steps and samples by batch.


@styled
def plot_paths(paths, *, title=None):
    """Draw paths of two weights on the level lines of a ravine.

    Parameters
    ----------
    paths : dict of str to (steps + 1, 2) array
        Positions, by the name of the rule (see `lab02.descend`).
    """
    (ax,) = new_axes(figsize=(8.4, 3.4))
    points = np.concatenate(list(paths.values()))
    (left, low), (right, high) = points.min(axis=0), points.max(axis=0)
    x = np.linspace(left - 0.1, max(right, 0) + 0.15, 200)
    y = np.linspace(min(low, -0.1) - 0.1, high + 0.1, 200)
    loss = (CURVATURES[0] * x[None, :] ** 2 + CURVATURES[1] * y[:, None] ** 2) / 2
    levels = np.geomspace(0.002, loss.max(), 10)
    ax.contour(x, y, loss, levels=levels, colors="0.82", linewidths=0.8, linestyles="-")
    for i, (name, path) in enumerate(paths.items()):
        ax.plot(*path.T, color=COLORS[i % 6], marker=MARKERS[i % 6], linestyle=LINES[i % 6], ms=3.5, lw=1.2, label=name)
    ax.plot([0], [0], "*", color=INK, markersize=12)
    ax.set(xlabel="along the flat direction", ylabel="along the steep direction")
    ax.grid(False)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    write_title(ax, f"{len(paths)} paths to the minimum, the star", title)
    return ax


@styled
def plot_hyperbola(sweep, fit, predicted):
    """Draw steps and samples to the target by batch size, the fitted hyperbola and the predicted one.

    Parameters
    ----------
    sweep : Sweep
        See `lab02.sweep_batches`.
    fit, predicted : Hyperbola
        Of the measurements, and from one run.

    Returns
    -------
    axes : tuple of Axes
        Left steps by batch size, every seed a point; right samples by steps, the means.
    """
    left, right = new_axes(2, figsize=(9.6, 3.9))
    sizes = np.array(sweep.batches, float)
    batch = np.geomspace(sizes[0] / 1.5, sizes[-1] * 1.5, 100)
    curves = {"fit": (fit, COLORS[0], "-"), "predicted": (predicted, COLORS[1], LINES[1])}
    for name, (curve, colour, line) in curves.items():
        label = f"{name}: critical batch {curve.critical:.0f}"
        left.plot(batch, curve.at(batch), color=colour, linestyle=line, label=label)
        right.plot(curve.at(batch), batch * curve.at(batch), color=colour, linestyle=line, label=label)
    seeds = sweep.runs.shape[1]
    left.plot(np.repeat(sizes, seeds), sweep.runs.ravel(), "o", color=INK, markersize=4, label="measured")
    left.axvline(fit.critical, color=MUTED, linewidth=1, linestyle=":")
    steps = sweep.steps
    right.plot(steps, steps * sizes, "o", color=INK)
    for b, s in zip(sweep.batches, steps, strict=True):
        right.annotate(f"{b}", (s, s * b), xytext=(6, 3), textcoords="offset points", fontsize=9)
    left.set(xscale="log", yscale="log", xlabel="batch size [samples]", ylabel="steps to the target")
    right.set(xscale="log", yscale="log", xlabel="steps (numbers: batch size)", ylabel="samples to the target")
    for axis in (left.xaxis, left.yaxis, right.xaxis, right.yaxis):
        _plain(axis)
    left.legend()
    write_title(left, f"{sweep.task.name}: critical batch {fit.critical:.0f}")
    write_title(right, "Few steps or few samples")
    return left, right


def _plain(axis) -> None:
    """Label a logarithmic axis with plain numbers; few of them where it covers much."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 40 * low else (1,)))
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_minor_formatter(NullFormatter())
