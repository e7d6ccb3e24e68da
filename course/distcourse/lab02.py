"""What update rules and batch sizes buy: steps and samples to a target loss, each at its own best learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from threadpoolctl import threadpool_limits

from distlearn.comm.base import ignore_report
from distlearn.data import Batch, available, load
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import SGD, NoiseScale, Optimizer
from distlearn.parallel import DataParallel, Serial
from distlearn.shares import shares
from distlearn.train.fit import DivergedError
from distlearn.viz.look import COLORS, INK, LINES, MARKERS, MUTED, new_axes, styled, write_title

from .flat import flat

# -- A network, its data and the loss to be reached; and the search for the learning rate that reaches it soonest.


MOST = 4000
"""Samples that a task uses: enough for a noise scale of a few hundred."""
LOST = 1.5
"""A learning rate is given up where it needs so many times the steps of the best one so far."""


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
        return Serial(model, SoftmaxCrossEntropy(), Optimizer(model.params, rule, lr))

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
    if name not in TARGETS:
        raise ValueError(f"target_task: name is {name!r}, expected one of {', '.join(map(repr, TARGETS))}")
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
    # one thread: products this small gain nothing from more; and a learning rate that is too high overflows
    with threadpool_limits(1), np.errstate(all="ignore"):
        for step in range(1, int(most) + 1):
            if not math.isfinite(trainer.step(task.draw(batch, rng))):
                return math.inf
            if step >= look:
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
            scores[lr] = score(lr, min(most, LOST * scores[best]))
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


def fit_hyperbola(batches, steps) -> Hyperbola:
    """Fit S = S_min + E_min / B with the least squared relative error.

    Examples
    --------
    >>> fit = fit_hyperbola([1, 10, 100], [1010, 110, 20])
    >>> round(fit.steps), round(fit.samples)
    (10, 1000)
    """
    batches, steps = np.asarray(batches, float), np.asarray(steps, float)
    if len(batches) < 2 or not (np.isfinite(steps) & (steps > 0) & (batches > 0)).all():
        raise ValueError(f"fit_hyperbola: steps are {steps.tolist()}, expected finite ones of two batch sizes or more")
    columns = np.stack([1 / steps, 1 / (batches * steps)], axis=1)
    return Hyperbola(*np.linalg.lstsq(columns, np.ones(len(steps)), rcond=None)[0].tolist())


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


def sweep_batches(
    task: TargetTask, batches, *, lr: float = 0.1, seeds: int = 3, most: float = 3000, report=ignore_report
) -> Sweep:
    """Measure the steps to the target loss for several batch sizes, each with the learning rate that is best for it.

    Parameters
    ----------
    batches : sequence of int
        In increasing order; the search for the learning rate starts where that of the batch before ended.
    lr : float
        Where the search starts, on a grid of powers of two.
    seeds : int
        How many, of weights and samples; a learning rate is judged by the mean over them.
    most : float
        Steps after which a run is lost.
    report : callable
        Gets `report(batch sizes done, in all)`.
    """
    lrs, runs, batches = [], [], list(batches)
    for batch in batches:
        found = {}

        def score(lr, limit, batch=batch, found=found):
            enough = min(most, 2 * limit)
            found[lr] = [steps_to_target(task, batch, lr, seed=seed, most=enough) for seed in range(seeds)]
            return float(np.mean(found[lr]))

        scores = tune(score, lrs[-1] if lrs else lr, most)
        lrs.append(min(scores, key=scores.get))
        runs.append(found[lrs[-1]])
        if not math.isfinite(scores[lrs[-1]]):
            raise ValueError(f"sweep_batches: a batch of {batch} does not reach {task.target} in {most} steps")
        report(len(runs), len(batches))
    return Sweep(task, batches, lrs, np.array(runs, float))


def step_seconds(task: TargetTask, batch: int, rule=None, *, repeat: int = 30) -> float:
    """Measure the time of a training step on one thread, the median of several [s]."""
    trainer, rng, times = task.trainer(SGD() if rule is None else rule, 0.1), np.random.default_rng(0), []
    with threadpool_limits(1):
        for _ in range(repeat):
            start = perf_counter()
            trainer.step(task.draw(batch, rng))
            times.append(perf_counter() - start)
    return float(np.median(times))


def noise_run(comm, task: TargetTask, estimator, *, batch: int = 64, lr: float, steps: int, seed: int = 0):
    """Train data-parallel, and hand the gradients of all ranks to an estimator of the noise in every step.

    Parameters
    ----------
    estimator : callable
        estimator(gradients, b) -> (trace, squared_norm), from an array (ranks, parameters) of the ranks' mean gradients
        over b samples each.
    batch : int
        Of all ranks together; a multiple of their number.
    lr : float
        Of plain SGD.

    Returns
    -------
    estimates : (steps, 2) array
        What the estimator returned; rank 0 alone calls it, the others return no rows.
    noise : NoiseScale
        The library's, from the same steps.
    """
    if batch % comm.size:
        raise ValueError(f"noise_run: batch is {batch}, expected a multiple of the {comm.size} ranks")
    serial, noise, rng = task.trainer(SGD(), lr, seed), NoiseScale(), np.random.default_rng(seed)
    strategy = DataParallel(comm, serial.model, serial.loss, serial.optimizer, noise_scale=noise)
    estimates, losses = [], []
    for _ in range(steps):
        whole = task.draw(batch, rng)  # the same on every rank
        mine = shares(batch, comm.size)[comm.rank]
        gradients = comm.all_gather(_gradient(serial, whole.x[mine], whole.y[mine]))
        if comm.rank == 0:
            estimates.append(estimator(gradients, batch // comm.size))
        losses.append(strategy.step(Batch(whole.x[mine], whole.y[mine], batch)))
    return np.array(estimates, float).reshape(-1, 2), noise, losses


def _gradient(trainer, x, y):
    """The mean gradient over some samples, as one vector."""
    trainer.optimizer.zero_grad()
    out, saved = trainer.model.forward(x)
    trainer.model.backward(trainer.loss(out, y)[1], saved)
    return flat(trainer.model.params, "grad")


# -- Checks of a student's update rule against the library's.


def judge_rule(
    check, function, rule, memory, mistakes=None, *, shape=(2, 3), steps=3, lr=0.1, seed=1, first=0, **options
):
    """Compare a function with the signature of `Rule.update` with a rule, over some steps on random gradients.

    Parameters
    ----------
    check : Check
        Of the cell, which reports.
    function : callable
        function(data, grad, state, lr, step), which changes `data` and `state` in place.
    rule : Rule
        Of the library.
    memory : int
        Arrays in the state.
    mistakes : dict of str to callable, optional
        Wrong functions by what is wrong with them.
    first : int
        Number of the first step, for a run that goes on; the state is then not zero.
    **options
        Keyword arguments of the function.
    """
    rng, name = np.random.default_rng(seed), type(rule).__name__
    start, grads = rng.normal(size=shape), rng.normal(size=(steps, *shape))
    kept = rng.uniform(0.5, 2.0, size=(memory, *shape)) * (first > 0)

    def fresh():
        arrays = tuple(a.copy() for a in kept)
        return start.copy(), arrays if memory > 1 else arrays[0] if arrays else None

    def outcome(update, step, **more):
        """Data after a step, by another rule from the same start."""
        data, state = fresh()
        with np.errstate(all="ignore"):
            for k in range(step + 1):
                update(data, grads[k].copy(), state, lr, first + k, **more)
        return data

    data, state = fresh()
    twin, other = fresh()
    for k in range(steps):
        grad, before = grads[k].copy(), data.copy()
        check.call(function, data, grad, state, lr, first + k, inplace=True, **options)
        rule.update(twin, grads[k], other, lr, first + k)
        suspects = {"data has not changed: `data = ...` makes a new array, `data -= ...` changes this one": before}
        suspects |= {text: outcome(wrong, k) for text, wrong in (mistakes or {}).items()}
        suspects |= {"this walks uphill: subtract": 2 * before - twin}
        where = f"{name}, step {first + k}"
        check.close(f"data ({where})", data, twin, suspects=suspects)
        check.true(f"grad is unchanged ({where})", np.array_equal(grad, grads[k]), "do not write into grad")
        mine = state if memory > 1 else (state,) * memory
        theirs = other if memory > 1 else (other,) * memory
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            check.close(f"state {i} ({where})", a, b)
        if not all(np.allclose(a, b) for a, b in [(data, twin), *zip(mine, theirs, strict=True)]):
            return  # the steps after a wrong one are wrong, too


def eps_under_root(rho, eps):
    """Return the update of RMSprop, or of Adagrad (rho None), with eps under the root, where it does not belong."""

    def update(data, grad, state, lr, step):
        state[...] = state + grad**2 if rho is None else rho * state + (1 - rho) * grad**2
        data -= lr * grad / np.sqrt(state + eps)

    return update


# -- Update rules side by side: on a ravine, in their first steps, and on a task, each at its own best learning rate.


@dataclass(frozen=True)
class FunctionRule:
    """A rule made of one function and the number of arrays that it remembers."""

    function: object
    memory: int

    def init(self, data):
        """Return None, an array of zeros, or a tuple of them."""
        arrays = tuple(np.zeros_like(data) for _ in range(self.memory))
        return arrays if self.memory > 1 else arrays[0] if arrays else None

    def update(self, data, grad, state, lr, step):
        """Call the function."""
        self.function(data, grad, state, lr, step)


def make_rule(function, memory: int = 0) -> FunctionRule:
    """Make a rule for `Optimizer` of a function with the signature of `Rule.update`.

    Parameters
    ----------
    function : callable
        function(data, grad, state, lr, step), which changes `data` and `state` in place.
    memory : int
        Arrays in the state, zeros at first: none (the state is None), one, or several (a tuple).

    Examples
    --------
    >>> make_rule(print, 2).init(np.zeros(1))
    (array([0.]), array([0.]))
    """
    return FunctionRule(function, memory)


def descend(rule, lr: float, *, steps: int = 60, curvatures=(1.0, 20.0), start=(-1.0, 0.4), angle=0.0) -> np.ndarray:
    """Walk down a ravine, the loss half the sum of curvature times weight squared; return all positions.

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
    turn, h = np.array([[c, -s], [s, c]]), np.array(curvatures, float)
    w = turn @ np.array(start, float)
    path, state = [np.array(start, float)], rule.init(w)
    limit = 50 * float(h @ path[0] ** 2)
    for step in range(steps):
        rule.update(w, turn @ (h * path[-1]), state, lr, step)
        path.append(turn.T @ w)
        loss = float(h @ path[-1] ** 2) / 2
        if not loss < limit:
            told = f"the loss became {loss:.3g} at step {step + 1}: training diverged with a rate of {lr:g}"
            raise DivergedError(told)
    return np.array(path)


def ravine_steps(rule, *, angle: float = 0.0, share: float = 1e-3) -> int:
    """Return the fewest steps until the loss in a ravine stays below a share of the first, over many rates."""
    best, h = 300, np.array([1.0, 20.0])
    for lr in np.geomspace(1e-3, 4, 70):
        try:
            losses = descend(rule, float(lr), steps=best, angle=angle) ** 2 @ h
        except DivergedError:
            continue
        above = np.flatnonzero(losses > share * losses[0])
        best = min(best, int(above[-1]) + 1)
    return best


def first_steps(rule, steps: int = 100, *, n: int = 2000, seed: int = 0) -> np.ndarray:
    """Return the length of each step in units of the learning rate, for gradients that are pure noise plus a drift.

    Each of n weights has gradients drawn from a normal distribution of mean 1 and deviation 1; the length is the root
    of the mean square over the weights.
    """
    rng, w = np.random.default_rng(seed), np.zeros(n)
    state, lengths = rule.init(w), []
    for step in range(steps):
        before = w.copy()
        rule.update(w, rng.normal(1.0, 1.0, n), state, 1.0, step)
        lengths.append(float(np.sqrt(np.mean((w - before) ** 2))))
    return np.array(lengths)


class RuleRun(NamedTuple):
    """What `compare_rules` found about one rule."""

    scores: dict[float, float]
    losses: np.ndarray
    arrays: int

    @property
    def lr(self) -> float:
        """The best learning rate."""
        return min(self.scores, key=self.scores.get)

    @property
    def steps(self) -> float:
        """Steps to the target with it, the mean over the seeds."""
        return self.scores[self.lr]


def compare_rules(
    task: TargetTask, rules, starts, *, batch: int = 32, seeds: int = 3, most: int = 400, report=ignore_report
) -> dict:
    """Tune the learning rate of every rule by itself, then record its loss; return a `RuleRun` by name.

    Parameters
    ----------
    starts : dict of str to float
        Where the search for each rule's learning rate starts.
    seeds : int
        How many.
    most : int
        Steps after which a run is lost.
    report : callable
        Gets `report(rules done, rules in all, rule=)`.
    """
    runs = {}
    for name, rule in rules.items():

        def score(lr, limit, rule=rule):
            most_now = min(most, 2 * limit)
            return float(np.mean([steps_to_target(task, batch, lr, rule, seed=s, most=most_now) for s in range(seeds)]))

        scores = tune(score, starts[name], most)
        best = min(scores, key=scores.get)
        if not math.isfinite(scores[best]):
            raise ValueError(f"compare_rules: {name} does not reach a loss of {task.target} in {most} steps")
        losses = [_losses(task, rule, best, batch, seed, steps=120) for seed in range(seeds)]
        runs[name] = RuleRun(scores, np.array(losses), getattr(rule, "memory", 0))
        report(len(runs), len(rules), rule=name)
    return runs


def _losses(task, rule, lr, batch, seed, steps) -> list[float]:
    """The loss of every step, averaged over the last ones."""
    trainer, rng, smooth, losses = task.trainer(rule, lr, seed), np.random.default_rng(seed), None, []
    with threadpool_limits(1):
        for _ in range(steps):
            loss = trainer.step(task.draw(batch, rng))
            smooth = loss if smooth is None else 0.85 * smooth + 0.15 * loss
            losses.append(smooth)
    return losses


# -- Update rules and batch sizes: paths down a ravine, first steps, loss by rule, steps and samples by batch.


@styled
def plot_paths(paths, *, curvatures=(1.0, 20.0), ax=None, title=None):
    """Draw paths of two weights on the level lines of a ravine.

    Parameters
    ----------
    paths : dict of str to (steps + 1, 2) array
        Positions, by the name of the rule (see `lab02.descend`).
    """
    if not paths:
        raise ValueError("plot_paths: no paths, expected at least one")
    ax = new_axes(figsize=(8.4, 3.4))[0] if ax is None else ax
    points = np.concatenate(list(paths.values()))
    (left, low), (right, high) = points.min(axis=0), points.max(axis=0)
    x = np.linspace(left - 0.1, max(right, 0) + 0.15, 200)
    y = np.linspace(min(low, -0.1) - 0.1, high + 0.1, 200)
    loss = (curvatures[0] * x[None, :] ** 2 + curvatures[1] * y[:, None] ** 2) / 2
    levels = np.geomspace(0.002, loss.max(), 10)
    ax.contour(x, y, loss, levels=levels, colors="0.82", linewidths=0.8, linestyles="-")
    for i, (name, path) in enumerate(paths.items()):
        ax.plot(*path.T, color=COLORS[i % 6], marker=MARKERS[i % 6], linestyle=LINES[i % 6], ms=3.5, lw=1.2, label=name)
    ax.plot([0], [0], "*", color=INK, markersize=12)
    ax.set(xlabel="weight 1 (flat direction)", ylabel="weight 2 (steep direction)")
    ax.grid(False)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    write_title(ax, f"{len(paths)} paths to the minimum, the star", title)
    return ax


@styled
def plot_first_steps(lengths, *, ax=None, title=None):
    """Draw the length of every step in units of the learning rate.

    Parameters
    ----------
    lengths : dict of str to (steps,) array
        See `lab02.first_steps`.
    """
    if not lengths:
        raise ValueError("plot_first_steps: no lengths, expected at least one curve")
    ax = new_axes()[0] if ax is None else ax
    for i, (name, values) in enumerate(lengths.items()):
        ax.plot(np.arange(1, len(values) + 1), values, color=COLORS[i % 6], linestyle=LINES[i % 6], label=name)
    ax.set(xscale="log", xlabel="step", ylabel="length of the step [learning rates]")
    ax.set_ylim(bottom=0)
    ax.legend()
    longest = max(lengths, key=lambda name: np.max(lengths[name]))
    write_title(ax, f"Longest step: {longest}, {np.max(lengths[longest]):.1f} learning rates", title)
    return ax


@styled
def plot_rules(runs, *, axes=None, title=None):
    """Draw the loss of several rules at their best learning rates, and how much depends on the learning rate.

    Parameters
    ----------
    runs : dict of str to RuleRun
        See `lab02.compare_rules`.

    Returns
    -------
    axes : tuple of Axes
        Left the smoothed loss by step, the mean over the seeds; right the steps to the target by learning rate, as a
        multiple of the best one. A cross at the top: the target was not reached.
    """
    if not runs:
        raise ValueError("plot_rules: no runs, expected at least one")
    left, right = new_axes(2, figsize=(10.4, 3.9)) if axes is None else axes
    top = 4 * max(run.steps for run in runs.values())
    for i, (name, run) in enumerate(runs.items()):
        look = {"color": COLORS[i % 6], "linestyle": LINES[(i + i // 6) % 6]}
        left.plot(np.arange(1, run.losses.shape[1] + 1), run.losses.mean(axis=0), label=name, **look)
        rates = np.array(list(run.scores)) / run.lr
        steps = np.array(list(run.scores.values()))
        reached = np.isfinite(steps)
        right.plot(
            rates[reached], steps[reached], marker=MARKERS[(i + i // 6) % 6], label=f"{name} ({run.lr:.3g})", **look
        )
        right.plot(rates[~reached], [top * 0.93**i] * (~reached).sum(), marker="x", linestyle="", color=look["color"])
    left.set(xlabel="step", ylabel="training loss, smoothed", yscale="log")
    right.set(xlabel="learning rate / best one", ylabel="steps to the target (x: not reached)", yscale="log")
    right.set_xscale("log", base=2)
    for axis in (left.yaxis, right.yaxis):
        _plain(axis)
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="rule (best rate)")
    best = min(runs, key=lambda name: runs[name].steps)
    write_title(left, f"First at the target: {best}, {runs[best].steps:.0f} steps", title)
    write_title(right, "" if title else "What the learning rate decides")
    return left, right


@styled
def plot_hyperbola(sweep, fit, *, predicted=None, axes=None, title=None):
    """Draw steps and samples to the target by batch size, the fitted hyperbola and the predicted one.

    Parameters
    ----------
    sweep : Sweep
        See `lab02.sweep_batches`.
    fit : Hyperbola
        Of the measurements.

    Returns
    -------
    axes : tuple of Axes
        Left steps by batch size, every seed a point; right samples by steps, the means.
    """
    left, right = new_axes(2, figsize=(9.6, 3.9)) if axes is None else axes
    sizes = np.array(sweep.batches, float)
    batch = np.geomspace(sizes[0] / 1.5, sizes[-1] * 1.5, 100)
    curves = {"fit": (fit, COLORS[0], "-")}
    if predicted is not None:
        curves["predicted"] = (predicted, COLORS[1], LINES[1])
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
    write_title(left, f"{sweep.task.name}: critical batch {fit.critical:.0f}", title)
    write_title(right, "" if title else "Few steps or few samples")
    return left, right


def _plain(axis) -> None:
    """Label a logarithmic axis with plain numbers; few of them where it covers much."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 40 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())
