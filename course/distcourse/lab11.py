"""Lab 11, staleness: simulated runs replayed with gradients, a race of policies, and a server that is tried out."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from distlearn.comm import Network
from distlearn.data import load
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.parallel.asynchronous.param_server import FlatModel, Speeds, asp, bsp
from distlearn.sim import Roofline, SimWorld
from distlearn.viz.look import COLORS, INK, LINES, styled, write_title

from .events import Events, simulate
from .exercise import named

# -- Simulated runs, replayed with real gradients.


def replay(events: Events, w, gradient, step):
    """Compute what a simulated run does to the weights: every gradient at the version that its worker had pulled.

    `gradient(w, i)` is the gradient of event i; `step(g, staleness)` is what it takes off the newest weights.
    Returns the time of every version, and all versions.
    """
    kept = np.flatnonzero(events.version > 0)
    first = np.flatnonzero(np.diff(events.version[kept], prepend=0))  # where each update's gradients begin
    used, stale, versions = events.used.tolist(), events.staleness.tolist(), [w]
    for group in np.split(kept, first[1:]):
        total = sum(step(gradient(versions[used[i]], i), stale[i]) for i in group.tolist())
        versions.append(versions[-1] - total)
    return np.append(0.0, events.time[kept][np.append(first[1:], len(kept)) - 1]), versions


class Trained(NamedTuple):
    """A run of `train`: its events, the loss of every gradient, and the time and the weights of every version."""

    events: Events
    losses: np.ndarray
    times: np.ndarray
    versions: list[np.ndarray]


def train(policy, speeds: Speeds, lr: float, gradients=800, *, batch=32, wrong=0.0, damped=False) -> Trained:
    """Train the network of `train_digits` with a policy, at the rate `lr` for every gradient.

    Parameters
    ----------
    lr : float or (k,) array
        Several rates are k runs with the same digits and labels: losses are then (gradients, k), weights (k, n).
    gradients : int
        In all.
    batch : int
        Digits of a gradient.
    wrong : float
        Share of the labels that are drawn at random, anew each time.
    damped : bool
        Whether the rate of a gradient is divided by its staleness over the mean staleness.
    """
    digits = load("digits", dtype="float32")
    start = FlatModel(make_model(speeds.seed)).data.astype("float32")
    events, rng = simulate(policy, speeds, gradients // speeds.workers), np.random.default_rng(speeds.seed)
    rows = rng.integers(0, len(digits.x_train), (len(events), batch))
    labels = np.where(rng.random(rows.shape) < wrong, rng.integers(0, 10, rows.shape), digits.y_train[rows])
    lr, mean = np.asarray(lr, "float32")[..., None], max(1.0, float(events.staleness.mean()))
    losses = np.full((len(events), *lr.shape[:-1]), np.nan)

    def gradient(w, i):
        losses[i], g = loss_and_gradient(w, digits.x_train[rows[i]], labels[i])
        return g

    def step(g, staleness):
        return lr * (mean / max(1, staleness) if damped else 1) * g

    with np.errstate(all="ignore"):  # it may diverge
        times, versions = replay(events, np.zeros_like(lr) + start, gradient, step)
    return Trained(events, losses, times, versions)


def logits_of(w, x):
    """Return the hidden units, the second layer's weights and the logits of `make_model`'s network; w is (..., n)."""
    W1, W2 = w[..., :2048].reshape(*w.shape[:-1], 64, 32), w[..., 2080:2400].reshape(*w.shape[:-1], 32, 10)
    hidden = np.maximum(x @ W1 + w[..., None, 2048:2080], 0)
    return hidden, W2, hidden @ W2 + w[..., None, 2400:]


def log_softmax(logits):
    """Return the logarithms of the probabilities."""
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def loss_and_gradient(w, x, y):
    """Return the mean loss of a few digits and its gradient, (..., n), for runs at several rates in one pass."""
    hidden, W2, logits = logits_of(w, x)
    log_p, at = log_softmax(logits), (..., np.arange(len(y)), y)
    d_logits = np.exp(log_p)
    d_logits[at] -= 1
    d_logits /= len(y)
    d_hidden = d_logits @ W2.swapaxes(-1, -2) * (hidden > 0)
    parts = (x.T @ d_hidden, d_hidden.sum(axis=-2), hidden.swapaxes(-1, -2) @ d_logits, d_logits.sum(axis=-2))
    return -log_p[at].mean(axis=-1), np.concatenate([g.reshape(*w.shape[:-1], -1) for g in parts], axis=-1)


WRONG = 0.3
"""Share of the labels that are drawn at random in the experiments on the floor of the loss."""

METHODS = ("1 worker", "16 synchronous", "16 asynchronous", "rate / staleness")


def expected_loss(w):
    """Return the loss on all training digits, on average over the labels that are drawn; at most 2.5."""
    digits = load("digits", dtype="float32")
    with np.errstate(all="ignore"):
        log_p = log_softmax(logits_of(w, digits.x_train)[2])
        right = log_p[..., np.arange(len(digits.y_train)), digits.y_train].mean(axis=-1)
        return np.fmin(-(1 - WRONG) * right - WRONG * log_p.mean(axis=(-1, -2)), 2.5)


@functools.cache
def floors(seed: int, method: str, rates: tuple) -> dict[float, float]:
    """Train on noisy labels by one of `METHODS`; return the loss by rate, a mean over the last quarter of the run."""
    policy = bsp() if method == "16 synchronous" else asp()
    workers = 1 if method == "1 worker" else 16
    run = train(policy, Speeds(workers, seed=seed), np.array(rates), 1600, batch=4, wrong=WRONG,
                damped=method == "rate / staleness")  # fmt: skip
    at = np.linspace(0.75, 1, 13)[1:] * (len(run.versions) - 1)
    losses = np.mean([expected_loss(run.versions[int(i)]) for i in at], axis=0)
    return dict(zip(rates, losses, strict=True))


# -- A race of policies: error against time, on workers that are even, slow or slow now and then, whose data differ.


WORKERS, DEADLINE, TARGET = 16, 300, 0.01
"""Of a race: how many compute, when it ends (a step of a worker that is not slow takes 1 s), the error to reach."""

WINDOW = 20
"""The error is a mean over so many seconds, or noise would decide when it reaches the target."""

TIMES = np.arange(WINDOW, DEADLINE + 1)
"""When such a window ends [s]."""

RATES = np.geomspace(0.0125, 0.1, 10)
"""Mean learning rates of a gradient that every entry is tried with."""

CURVATURE = np.geomspace(1.0, 0.03, 20)
NOISE, APART, SEEDS = 0.2, 1.2, 8
"""Noise of a gradient, relative to the root of the curvature; how far apart the workers' optima lie, in units of
the way to go; runs, each with other noise and optima. The error is 1 at the start."""

LONGEST = 1000
"""An entry says what to do for leads and stalenesses below this; beyond, its last answer holds."""

KINDS = ("always slow", "slow now and then", "both")
"""Mixes of workers, in the order of `draw_mixes`."""


class Mix(Speeds):
    """Workers of three kinds: first some that are always slow, then even ones, last some that are slow now and then."""

    def __init__(self, slow: int, delayed: int, factor: float, seed: int):
        super().__init__(WORKERS, slow=dict.fromkeys(range(slow), factor), seed=seed)
        self._delayed, self._even = Speeds(WORKERS, 1.45, law="occasional", seed=seed + 1), WORKERS - delayed

    def step_times(self, step: int) -> np.ndarray:
        """Return the seconds of step `step` of every worker, (workers,)."""
        delayed = np.arange(WORKERS) >= self._even
        return np.where(delayed, self._delayed.step_times(step), super().step_times(step))


@functools.cache
def draw_mixes(*seeds: int) -> list[Mix]:
    """Draw three mixes a seed: one to three workers always slow, by 2.5 to 6 times; four to eight delayed; both."""
    mixes = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        slow, delayed, both = (int(rng.integers(*ends)) for ends in ((1, 4), (4, 9), (1, 3)))
        factor, start = float(rng.uniform(2.5, 6)), int(rng.integers(1 << 30))
        mixes += [Mix(slow, 0, factor, start), Mix(0, delayed, factor, start + 10), Mix(both, 4, factor, start + 20)]
    return mixes


class Entry:
    """What enters the race: a policy of the parameter server, and the weight of a gradient by its staleness."""

    def __init__(self, quorum: int, waits: bool, starts, weight, name: str = "yours"):
        starts, weight = np.asarray(starts), np.asarray(weight, float)
        if not (hasattr(quorum, "__index__") and 1 <= quorum <= WORKERS):
            raise ValueError(f"race: quorum is {quorum!r}, expected a whole number from 1 to {WORKERS}")
        if starts.dtype != bool or starts.shape != (LONGEST,):
            raise ValueError(f"race: starts is {starts.dtype} {starts.shape}, expected True or False for each lead")
        if not starts[0] or (np.diff(starts.astype(int)) > 0).any():
            raise ValueError("race: starts must be True at lead 0 (else all wait) and, once False, stay False")
        if weight.shape != (LONGEST,):
            raise ValueError(
                f"race: weight has shape {weight.shape}, expected a number for each staleness: np.ones(1000)"
            )
        if not np.isfinite(weight).all():
            raise ValueError("race: weight must be a finite number for each staleness")
        if (weight < 0).any() or weight[0] == 0:
            raise ValueError("race: weight must be 0 or more for each staleness, and above 0 for staleness 0")
        self.waits, self.name, self._quorum = bool(waits), name, int(quorum)
        self._starts, self._weight = starts.tolist(), weight

    def __str__(self) -> str:
        return self.name

    def quorum(self, workers):
        """Return the gradients in an update, or all workers that are left."""
        return max(1, min(self._quorum, workers))

    def takes(self, staleness):
        """Take what has a weight."""
        return bool(self._weight[min(staleness, LONGEST - 1)] > 0)

    def may_start(self, lead):
        """Look the lead up."""
        return self._starts[min(lead, LONGEST - 1)]

    def weight(self, staleness):
        """Look the weight up."""
        return self._weight[np.minimum(staleness, LONGEST - 1)]


def make_entry(policy) -> Entry:
    """Ask a function for its entry: `policy(workers, lead, staleness) -> (quorum, waits, starts, weight)`."""
    steps = np.arange(LONGEST)
    answer = policy(WORKERS, steps, steps.copy())
    if not (isinstance(answer, (tuple, list)) and len(answer) == 4):
        count = f"{len(answer)} things" if isinstance(answer, (tuple, list)) else type(answer).__name__
        raise ValueError(f"race: the policy returns {count}, expected four: quorum, waits, starts, weight")
    return Entry(*answer)


def fault_of(entry: Entry) -> str:
    """Say what an entry has in common with a policy that loses, in a sentence."""
    old, young = entry.weight(100), entry.weight(0)
    if entry.waits and entry.quorum(WORKERS) == WORKERS:
        return "all workers wait for the slowest, as in BSP"
    if not entry.may_start(100):
        return "with a bound on the lead, a worker that is always slow holds up all others"
    if old < young:
        return "old gradients count less than fresh ones, and with them the data of slow workers: the result is biased"
    if old == young:
        return "a slow worker is in fewer updates than others: should each of its gradients weigh the same?"
    return "old gradients count more: too little for slow workers, or so much that a few gradients decide?"


@functools.cache
def rivals() -> list[Entry]:
    """Return the textbook's policies, the ones to beat."""
    steps = np.arange(LONGEST)
    always, same, fresh = steps >= 0, np.ones(LONGEST), np.where(steps == 0, 1, 0)
    return [
        Entry(WORKERS, True, always, same, "BSP"),
        Entry(1, False, steps <= 4, same, "SSP(4)"),
        Entry(1, False, steps <= 32, same, "SSP(32)"),
        Entry(WORKERS - 2, True, always, fresh, "backup(14 of 16)"),
        Entry(1, False, always, same, "ASP"),
        Entry(1, False, always, 1 / np.maximum(1, steps), "rate / staleness"),
    ]


@functools.cache
def error_curves(entry: Entry, mix: Mix) -> np.ndarray:
    """Train at all of `RATES` at once; return the error at `TIMES`, a mean over a window and the seeds."""
    events = simulate(entry, mix, round(1.3 * DEADLINE), DEADLINE)
    h, rng = CURVATURE, np.random.default_rng(mix.seed)
    start = np.sqrt(2 / len(h) / h)
    optimum = APART * start * rng.normal(size=(WORKERS, 1, SEEDS, len(h)))
    optimum -= optimum.mean(axis=0)  # together, zero is best
    noise = np.sqrt(h) * NOISE * rng.normal(size=(len(events), 1, SEEDS, len(h)))
    shift = noise - (h * optimum)[events.worker]
    taken = entry.weight(events.staleness[events.version > 0])
    rates = (RATES / taken.mean())[:, None, None]
    weight = [rates * one for one in entry.weight(np.arange(events.staleness.max() + 1))]
    with np.errstate(all="ignore"):  # an entry may diverge
        times, versions = replay(
            events,
            np.broadcast_to(start, (len(RATES), SEEDS, len(h))),
            lambda w, i: h * w + shift[i],
            lambda g, staleness: weight[staleness] * g,
        )
        at = np.searchsorted(times, np.arange(DEADLINE + 1), side="right") - 1
        error = np.array([(0.5 * versions[v] ** 2 @ h).mean(axis=-1) for v in at]).T
    return sliding_window_view(np.fmin(error, 1e3), WINDOW + 1, axis=-1).mean(axis=-1)


@dataclass
class Race:
    """The outcome of a race: errors by entry, (mixes, rates, times)."""

    curves: dict[str, np.ndarray]
    rivals: list[str]

    def best(self, name: str) -> tuple[np.ndarray, int]:
        """Return from when on the error stays below the target in each mix, at the best of `RATES`, and which that is.

        The deadline stands for runs that do not get there.
        """
        above = self.curves[name] > TARGET
        last = (above * np.arange(1, len(TIMES) + 1)).max(axis=-1)
        seconds = np.append(TIMES, DEADLINE)[last]
        rate = int(np.log(seconds).mean(axis=0).argmin())
        return seconds[:, rate], rate

    def score(self, name: str) -> float:
        """Return how many times faster than BSP an entry is at the target, a geometric mean over mixes."""
        return float(np.exp(np.log(self.best("BSP")[0] / self.best(name)[0]).mean()))

    @property
    def order(self) -> list[str]:
        """The entries, the best first."""
        return sorted(self.curves, key=self.score, reverse=True)

    def table(self) -> list[dict]:
        """Return a row for each entry, with the mean time on each kind of mix."""
        rows = []
        for name in self.order:
            seconds, rate = self.best(name)
            row = {"policy": name, "times faster than BSP": round(self.score(name), 2), "best rate": RATES[rate]}
            for k, kind in enumerate(KINDS):
                row[f"{kind} [s]"] = round(float(np.exp(np.log(seconds[k::3]).mean())))
            rows.append(row)
        return rows


def race(*entries: Entry, mixes: list[Mix]) -> Race:
    """Let entries and rivals train on the same mixes of workers, each with all of `RATES`."""
    curves = {e.name: np.array([error_curves(e, mix) for mix in mixes]) for e in (*rivals(), *entries)}
    return Race(curves, [rival.name for rival in rivals()])


@styled
def plot_race(race: Race):
    """Draw when each entry is at the target, a point for each mix, and below the errors by time on the third mix."""
    from matplotlib import pyplot as plt  # here, not above: pyplot chooses a backend when it is imported

    figure, (above, below) = plt.subplots(2, figsize=(6.4, 8.0))
    for i, name in enumerate(race.order):
        seconds, rate = race.best(name)
        style = {"color": INK, "linewidth": 2.8}
        if name in race.rivals:
            k = race.rivals.index(name)
            style = {"color": COLORS[k], "linestyle": LINES[(k + 1) % 6], "linewidth": 1.6}
        below.plot(TIMES, race.curves[name][2, rate], label=name, **style)
        for k, kind in enumerate(KINDS):
            at = seconds[k::3]
            label = None if i else kind
            above.plot(at, np.full(len(at), i + 0.2 * k - 0.2), "os^"[k], color=COLORS[k], label=label)
    scores = [f"{name}: {race.score(name):.2f}" for name in race.order]
    above.set(
        yticks=range(len(scores)),
        yticklabels=scores,
        xlabel=f"at the target [s] ({DEADLINE}: never)",
        xlim=(0, DEADLINE + 10),
    )
    above.invert_yaxis()
    above.legend(loc="lower left")
    write_title(above, f"{race.order[0]} is first, {race.score(race.order[0]):.2g} times as fast as BSP")
    below.axhline(TARGET, color=INK, linewidth=1)
    below.set(yscale="log", ylim=(TARGET / 6, 2), xlabel="time [s]", ylabel="error (line: target)")
    below.legend(ncols=2)
    write_title(below, "Errors on the first mix with both kinds")
    return figure


# -- Try a parameter server from another author: on a problem whose answer is known, and on the digits.


FAST = Network(alpha=2e-6, beta=10e9)
"""So quick that messages hardly matter beside the gradients."""


def try_server(train, size: int, steps: int, *, lr=0.1, slow=None, d=4, seed=3):
    """Run a server on a problem whose result reveals which gradients it applied: each worker pulls to its own target.

    The gradient of worker r in step k is (k + 1) (w - t_r). The server begins with ones, a worker with zeros.

    Parameters
    ----------
    size, steps : int
        Ranks; steps of each worker.
    slow : dict of int to float, optional
        By rank: how many times as long its gradients take.
    d : int
        Weights.
    seed : int
        Of the targets.

    Returns
    -------
    targets : (size, d) array
    ranks : list of (w, log, asked)
        By rank: the weights, what `train` returned, and for which steps it asked for a gradient.
    """
    targets = np.random.default_rng(seed).normal(size=(size, d))

    def on_rank(comm):
        w, asked = np.ones(d) if comm.rank == 0 else np.zeros(d), []

        def gradient(w, step):
            with comm.clock.span("gradient", flops=1e6):
                asked.append(step)
                return (w - targets[comm.rank]) * (1 + step)

        log = train(comm, w, gradient, lr, steps)
        return w, log, asked

    return targets, SimWorld(size, Network(alpha=20e-6, beta=1e9), Roofline(1e9), slowdown=slow).run(on_rank)


def work_out(targets, log, lr: float) -> np.ndarray:
    """Work out which weights a log of `try_server` must lead to.

    Parameters
    ----------
    targets : (size, d) array
    log : list of (str, int)
        Without fault: see `check_log`.

    Returns
    -------
    w : (d,) array
    """
    w, pulled, step = np.ones(targets.shape[1]), {}, Counter()
    for kind, worker in log:
        if kind == "pull":
            pulled[worker] = w.copy()
        else:
            step[worker] += 1
            w = w - lr * (pulled[worker] - targets[worker]) * step[worker]
    return w


def check_log(log, workers: int, steps: int) -> str:
    """Say what is wrong with a server's log, in a sentence; "" if nothing is."""
    if not isinstance(log, list):
        return f"the server returns {type(log).__name__}, expected its log, a list: is `return log` after the loop?"
    for entry in log:
        if not (isinstance(entry, (tuple, list)) and len(entry) == 2 and entry[0] in ("pull", "push")):
            return f'the log has {entry!r:.40}, expected pairs such as ("pull", 1)'
    pulled = set()
    for kind, worker in log:
        if kind == "push" and worker not in pulled:
            if ("pull", worker) not in map(tuple, log):
                return f"the log has pushes of worker {worker}, but no pull: log both, as they arrive"
            return f"worker {worker} pushes before it has pulled for the first time: pull, compute, push, in this order"
        pulled.add(worker)
    for worker in range(1, workers + 1):
        counts = [sum(tuple(entry) == (kind, worker) for entry in log) for kind in ("pull", "push")]
        if counts != [steps, steps]:
            told = f"{counts[0]} pulls and {counts[1]} pushes of worker {worker}, expected {steps} of each"
            return f"the log has {told}: every message of every step must be received and logged"
    return ""


# -- What checks take from answers.


def run_staleness_of(staleness_of, log=None, workers=0, length=0, seed=0):
    """Give a log in a short form ("a" is a pull of worker 0, "A" its push), or a random one, also with two pushes."""
    if log is None:
        rng, log, known = np.random.default_rng(seed), [], set()
        for worker in rng.integers(0, workers, length).tolist():
            log.append(("push" if worker in known and rng.random() < 0.5 else "pull", worker))
            known.add(worker)
    else:
        log = [("pull" if c.islower() else "push", ord(c.lower()) - ord("a")) for c in log]
    return {"staleness": staleness_of(tuple(log))}


def run_async_sgd(async_sgd, size, steps, lr, d, slow=0, times=1.0, seed=3):
    targets, ((w, log, _), *workers) = try_server(
        async_sgd, size, steps, lr=lr, slow={slow: times} if slow else None, d=d, seed=seed
    )
    fault = check_log(log, size - 1, steps)
    found = {
        "workers return": "None" if all(one[1] is None for one in workers) else "something",
        "log": fault or "no error",
    }
    if fault:
        return found
    log = list(map(tuple, log))
    found["weights minus those that the log leads to"] = off = (w - work_out(targets, log, lr)).round(9)
    found |= {f"steps that worker {rank} asks for": one[2] for rank, one in enumerate(workers, 1)}
    if slow and size > 2 and not off.any() and all(len(one[2]) == steps for one in workers):  # else times say little
        before, others = log[: log.index(("push", slow))], {*range(1, size)} - {slow}
        quick = min(before.count(("push", other)) for other in others) >= min(steps, int(times)) - 1
        found["others go on while a slow worker computes"] = quick
    return found


def run_delayed_descent(delayed_descent, w, lr, staleness, steps, cubic=0.0):
    curvature = np.linspace(1.0, 0.4, len(w)).astype(w.dtype)
    slope = w.dtype.type(cubic)
    versions = delayed_descent(lambda v: curvature * v + slope * v**3, w, lr, staleness, steps)
    return {"versions": np.array(versions) if isinstance(versions, (list, tuple)) else versions}


def run_ssp_ends(ssp_ends, seconds, bound):
    return {"ends": ssp_ends(seconds, bound)}


def run_backup_update(backup_update, arrivals, gamma, d, seed):
    got = backup_update(arrivals, np.random.default_rng(seed).normal(size=(len(arrivals), d)), gamma)
    return named(got, "gradient", "seconds", "late")


def run_my_policy(my_policy, mixes):
    """Race against the rivals, each of which must be beaten by a tenth; the seeds of the mixes are given."""
    try:
        mine = make_entry(my_policy)
    except ValueError as error:
        return {"entry": str(error).removeprefix("race: ")}
    outcome = race(mine, mixes=draw_mixes(*mixes))
    own, found = outcome.score("yours"), {"entry": "no error"}
    for name in outcome.rivals:
        other = outcome.score(name)
        told = f"{name} scores {other:.2f}, yours {own:.2f}: {fault_of(mine)}"
        found[f"against {name}"] = "a tenth better, or more" if own > 1.1 * other else told
    return found


def train_digits(comm, train, lr: float, steps: int, *, pause: dict[int, float] | None = None):
    """Train a network on the digits with a server; on rank 0 the log, on a worker (time, loss) pairs.

    Parameters
    ----------
    train : callable
        Gets all parameters as one flat array.
    steps : int
        Of each worker, on 32 samples each.
    pause : dict of int to float, optional
        By rank: how long it sleeps in every step [s].
    """
    digits, loss, flat = load("digits", dtype="float64"), SoftmaxCrossEntropy(), FlatModel(make_model())
    rng, seen = np.random.default_rng([0, comm.rank]), []

    def gradient(w, step):
        rows = rng.integers(0, len(digits.x_train), 32)
        with comm.clock.span("gradient", flops=flat.flops((32, 64))):
            if pause:
                comm.clock.sleep(pause[comm.rank])
            flat.load(w)
            seen.append((comm.clock.now(), flat.gradient(digits.x_train[rows], digits.y_train[rows], loss)))
        return flat.grad.copy()

    log = train(comm, flat.data, gradient, lr, steps)
    return log if comm.rank == 0 else seen


def make_model(seed: int = 0):
    """Return the network of `train_digits`, with 32 hidden units."""
    return MLP((64, 32, 10), seed=seed, dtype="float64")


def run_digits(train, workers: int, lr: float):
    """Run `train_digits` for 800 gradients on simulated workers, equally fast but for 20 %.

    Returns
    -------
    log : list of (str, int)
    losses : (800,) array
        In the order of time.
    """
    world = SimWorld(workers + 1, FAST, Roofline(1e9), jitter=0.2)
    with np.errstate(all="ignore"):  # it may diverge
        log, *seen = world.run(train_digits, train, lr, 800 // workers)
    return log, np.array([loss for _, loss in sorted(point for one in seen for point in one)])
