"""Experiments on asynchrony: one call, one result, one figure each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from distlearn.comm import Network
from distlearn.comm.base import ignore_report
from distlearn.data import load
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import Adagrad
from distlearn.parallel.asynchronous.param_server import (
    Backup,
    Policy,
    Rate,
    Run,
    Speeds,
    asp,
    backup,
    bsp,
    constant,
    inverse,
    simulate,
)
from distlearn.parallel.asynchronous.param_server.worker import FlatModel
from distlearn.sim import Roofline, SimWorld

from .asynchrony import Task, run_policy
from .lab11_figures import (  # noqa: F401  (as lab cells name them)
    plot_backups,
    plot_bounds,
    plot_floors,
    plot_loss_by_rate,
    plot_losses,
    plot_race,
)

# -- Backup workers under two assumptions about late ones: cancelled at once for free, or finishing what they began.


def backup_seconds(speeds: Speeds, shares, *, steps: int = 150, cancelled: bool = False) -> np.ndarray:
    """Return the mean time between updates, by the share of the workers that is waited for.

    Parameters
    ----------
    shares : sequence of float
        From 0 (excluded) to 1.
    steps : int
        Of each worker.
    cancelled : bool
        True: a late worker drops its step at the update and begins the next one with all others; that costs nothing.
        False: it ends the step that it is in, its gradient is dropped on arrival, and only then it begins anew.

    Returns
    -------
    seconds : (shares,) array

    References
    ----------
    J. Chen, X. Pan, R. Monga, S. Bengio, R. Jozefowicz (2016), Revisiting distributed synchronous SGD,
    arXiv:1604.00981, section 3: late gradients are dropped when they arrive.

    Examples
    --------
    >>> often = Speeds(100, law="occasional")
    >>> for cancelled in (True, False):
    ...     all_but_10, everyone = backup_seconds(often, [0.9, 1.0], cancelled=cancelled)
    ...     print(f"{everyone / all_but_10:.1f} times faster")
    9.3 times faster
    2.6 times faster
    """
    if cancelled:
        in_order = np.sort(speeds.table(steps), axis=1)
        return np.array([in_order[:, Backup(share).quorum(speeds.workers) - 1].mean() for share in shares])
    runs = [simulate(backup(share), speeds, steps) for share in shares]
    return np.array([run.seconds / run.updates for run in runs])


# -- A race of policies on a noisy quadratic: error against time, on workers that are even, straggling or heavy-tailed.


WORKERS, DEADLINE, TARGET = 16, 300.0, 0.01
"""Of a race: how many compute, when it ends (a step of a worker that is not slow takes 1 s), the error to reach."""

TIMES = np.linspace(0.0, DEADLINE, 601)
"""When the error is looked at [s]."""

CURVATURE = np.geomspace(1.0, 0.03, 20)
NOISE = 0.2
"""Of one gradient, relative to the root of the curvature; the error is 1 at the start."""

HOPELESS = 1e3
"""The error that is noted for a run that diverges."""

LONGEST = 1000
"""An entry says what to do for leads and stalenesses below this; beyond, its last answer holds."""


class Mix(Speeds):
    """Workers of three kinds: even ones, some that are always slow, some whose steps have a heavy tail."""

    def __init__(self, even: int, slow: int, heavy: int, factor: float = 4.0, seed: int = 0):
        first = even + slow
        super().__init__(first + heavy, slow=dict.fromkeys(range(even, first), factor), seed=seed)
        self.kinds, self.factor = (even, slow, heavy), factor
        self._tail = Speeds(heavy, law="pareto", seed=seed + 1) if heavy else None

    def __str__(self) -> str:
        names = ("even", f"slow by {self.factor:.1f}", "heavy-tailed")
        return ", ".join(f"{count} {name}" for count, name in zip(self.kinds, names, strict=True) if count)

    def wave(self, step: int) -> np.ndarray:
        """Return the seconds of step `step` of every worker, (workers,)."""
        seconds = super().wave(step)
        if self._tail is not None:
            seconds[-self.kinds[2] :] = self._tail.wave(step)
        return seconds


def practice_mixes() -> list[Mix]:
    """Return the mixes to try a policy on: all even, two stragglers, half of the workers heavy-tailed."""
    return [Mix(WORKERS, 0, 0), Mix(WORKERS - 2, 2, 0), Mix(WORKERS // 2, 0, WORKERS // 2)]


def hidden_mixes(seed: int) -> list[Mix]:
    """Draw three mixes: mostly even, with one to three stragglers, with four to twelve heavy-tailed workers."""
    rng = np.random.default_rng(seed)
    slow, heavy, both = int(rng.integers(1, 4)), int(rng.integers(4, 13)), int(rng.integers(1, 3))
    factor, start = float(rng.uniform(2.5, 6)), int(rng.integers(1 << 30))
    return [
        Mix(WORKERS - slow, slow, 0, factor, start),
        Mix(WORKERS - heavy, 0, heavy, factor, start + 10),
        Mix(WORKERS - both - 4, both, 4, factor, start + 20),
    ]


class Entry:
    """A policy with a learning rate for each staleness, as plain numbers: what enters the race."""

    def __init__(self, quorum: int, waits: bool, starts, rate, name: str = "yours"):
        starts, rate = np.asarray(starts), np.asarray(rate, float)
        if not (hasattr(quorum, "__index__") and 1 <= quorum <= WORKERS):
            raise ValueError(f"race: quorum is {quorum!r}, expected a whole number from 1 to {WORKERS}")
        if starts.dtype != bool or starts.ndim != 1:
            raise ValueError(f"race: starts is {starts.dtype} {starts.shape}, expected True or False for each lead")
        if not starts[0] or (np.diff(starts.astype(int)) > 0).any():
            raise ValueError("race: starts must be True at lead 0 (else all wait) and, once False, stay False")
        if rate.ndim != 1:
            raise ValueError(
                f"race: rate has shape {rate.shape}, expected a number for each staleness: np.full(1000, ...)"
            )
        if not (np.isfinite(rate) & (rate >= 0)).all() or not rate[0] > 0:
            raise ValueError("race: rate must be 0 or more for each staleness, and above 0 for staleness 0")
        self.quorum, self.waits, self.starts, self.rate, self.name = int(quorum), bool(waits), starts, rate, name

    def __str__(self) -> str:
        return self.name

    def takes(self, staleness):
        """Take what has a learning rate."""
        return self.rate_of(staleness) > 0

    def may_start(self, lead):
        """Look the lead up."""
        return self.starts[np.minimum(lead, len(self.starts) - 1)]

    def rate_of(self, staleness):
        """Look the learning rate up."""
        return self.rate[np.minimum(staleness, len(self.rate) - 1)]

    def policy(self) -> _Policy:
        """Return it as the `Policy` that the event simulation asks."""
        return _Policy(self)


class _Policy:
    """An entry as a `Policy`."""

    def __init__(self, entry: Entry):
        self.name, self.waits, self._quorum = entry.name, entry.waits, int(entry.quorum)
        self.takes, self.may_start = entry.takes, entry.may_start

    def __str__(self) -> str:
        return self.name

    def quorum(self, workers):
        """Return the gradients in an update, or all workers that are left."""
        return max(1, min(self._quorum, workers))


def make_entry(policy, name: str = "yours") -> Entry:
    """Ask a function for its entry: `policy(workers, lead, staleness) -> (quorum, waits, starts, rate)`."""
    steps = np.arange(LONGEST)
    answer = policy(WORKERS, steps, steps.copy())
    if not (isinstance(answer, (tuple, list)) and len(answer) == 4):
        count = f"{len(answer)} things" if isinstance(answer, (tuple, list)) else type(answer).__name__
        raise ValueError(f"race: the policy returns {count}, expected four: quorum, waits, starts, rate")
    return Entry(*answer, name=name)


def references(lr: float = 0.05) -> list[Entry]:
    """Return the policies to beat, all at one learning rate per gradient."""
    steps = np.arange(LONGEST)
    always, same = steps >= 0, np.full(LONGEST, lr)
    return [
        Entry(WORKERS, True, always, same, "BSP"),
        Entry(1, False, steps <= 4, same, "SSP(4)"),
        Entry(3 * WORKERS // 4, True, always, np.where(steps == 0, lr, 0), "backup(0.75)"),
        Entry(1, False, always, same, "ASP"),
    ]


def error_curve(entry: Entry, mix: Mix, seed: int) -> np.ndarray:
    """Train once; return the error at `TIMES`."""
    events = simulate(entry.policy(), mix, round(1.3 * DEADLINE))
    kept = (events.version > 0) & (events.time <= DEADLINE)
    used, version, time = events.used[kept], events.version[kept], events.time[kept]
    rate = entry.rate_of(events.staleness[kept])[:, None]
    h, rng = CURVATURE, np.random.default_rng([mix.seed, seed])
    noise = np.sqrt(h) * NOISE * rng.normal(size=(len(used), len(h)))
    first = np.flatnonzero(np.diff(version, prepend=0))  # where each update's gradients begin
    last = np.append(first[1:], len(version))
    w = np.empty((len(first) + 1, len(h)))
    w[0] = np.sqrt(2 / len(h) / h)
    with np.errstate(all="ignore"):  # an entry may diverge
        for v, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            step = rate[a:b] * (h * w[used[a:b]] + noise[a:b])
            w[v + 1] = w[v] - (step[0] if b - a == 1 else step.sum(axis=0))
        error = np.nan_to_num(0.5 * (w * w) @ h, nan=HOPELESS, posinf=HOPELESS)
    made = np.append(0.0, time[last - 1])
    return np.minimum(error, HOPELESS)[np.searchsorted(made, TIMES, side="right") - 1]


@dataclass
class Race:
    """The outcome of a race."""

    mixes: list[Mix]
    curves: dict[str, np.ndarray]
    references: list[str]
    times: np.ndarray = field(default_factory=lambda: TIMES)
    target: float = TARGET

    def seconds(self, name: str) -> np.ndarray:
        """Return when the mean error of an entry reaches the target in each mix; the deadline where it does not."""
        reached = self.curves[name].mean(axis=1) <= self.target
        return np.where(reached.any(axis=1), self.times[reached.argmax(axis=1)], DEADLINE)

    def floor(self, name: str) -> np.ndarray:
        """Return the mean error of an entry over the last quarter of the race, in each mix."""
        return self.curves[name][..., -len(self.times) // 4 :].mean(axis=(1, 2))

    def score(self, name: str) -> float:
        """Return how many times sooner than BSP an entry reaches the target, a geometric mean over mixes."""
        return float(np.exp(np.log(self.seconds("BSP") / self.seconds(name)).mean()))

    def table(self) -> list[dict]:
        """Return a row for each entry, the best first."""
        rows = []
        for name in sorted(self.curves, key=self.score, reverse=True):
            seconds = self.seconds(name)
            row = {"policy": name, "times sooner than BSP": round(self.score(name), 2)}
            for mix, t in zip(self.mixes, seconds, strict=True):
                row[f"{mix} [s]"] = round(float(t)) if t < DEADLINE else f"not in {DEADLINE:.0f}"
            rows.append(row | {"error at the end": f"{self.floor(name).mean():.2g}"})
        return rows


def race(*entries: Entry, mixes=None, seeds: int = 3, report=None) -> Race:
    """Let entries and the references train on the same mixes of workers.

    Parameters
    ----------
    mixes : list of Mix, optional
        `practice_mixes()` by default.
    seeds : int
        Runs of each entry on each mix.
    report : callable, optional
        Gets `report(done, total)`.
    """
    report, mixes = report or ignore_report, practice_mixes() if mixes is None else mixes
    known = references()
    both, curves = [*known, *entries], {}
    for done, entry in enumerate(both, 1):
        curves[entry.name] = np.array([[error_curve(entry, mix, seed) for seed in range(seeds)] for mix in mixes])
        report(done, len(both))
    return Race(mixes, curves, [entry.name for entry in known])


# -- Asynchronous training beside its control, synchronous at the same rate per gradient: by rate, and to the floor.


WINDOW = 10
"""Points of a curve over which `error_floor` takes a mean."""
DIVERGED = 10.0
"""The loss that is noted for a run whose loss was no longer finite."""


@dataclass(frozen=True)
class Method:
    """How gradients are computed and applied."""

    workers: int
    policy: Policy
    rate: Rate = constant
    adagrad: bool = False
    warm: int = 0


def methods(workers: int = 16) -> dict[str, Method]:
    """Return one worker, many workers synchronously and asynchronously, and three remedies against staleness."""
    # J. Dean et al. (2012), Large scale distributed deep networks, NeurIPS, section 4.1: Adagrad and the warm start. W.
    # Zhang, S. Gupta, X. Lian, J. Liu (2016), Staleness-aware async-SGD for distributed deep learning, IJCAI: the rate
    # divided by the staleness.
    return {
        "1 worker": Method(1, asp()),
        f"{workers} synchronous": Method(workers, bsp()),
        f"{workers} asynchronous": Method(workers, asp()),
        "rate / staleness": Method(workers, asp(), inverse),
        "warm start": Method(workers, asp(), warm=100),
        "Adagrad": Method(workers, asp(), adagrad=True),
    }


def loss_by_rate(
    task: Task, rates, *, which: dict[str, Method] | None = None, seeds=3, gradients=800, report=None
) -> dict[str, np.ndarray]:
    """Train every method at every learning rate per gradient.

    An update that is the mean of k gradients gets k times the rate. So "synchronous" is the control of "asynchronous":
    the same number of gradients, each with the same weight, and none of them stale.

    Parameters
    ----------
    which : dict of str to Method, optional
        `methods()` by default.
    seeds : int
        How many; a seed determines weights, samples and speeds.
    gradients : int
        In all, a warm start's included.
    report : callable, optional
        Gets `report(runs done, runs in all, method=)`.

    Returns
    -------
    losses : dict of str to (rates, seeds) array
        Mean loss of the last tenth of the gradients, at the parameters that they were computed at.
    """
    report, which = report or ignore_report, methods() if which is None else which
    found, done = {name: np.zeros((len(rates), seeds)) for name in which}, 0
    for seed in range(seeds):
        for name, method in which.items():
            for i, lr in enumerate(rates):
                found[name][i, seed] = _final_loss(task.but(lr=lr), method, seed, gradients)
                done += 1
                report(done, len(which) * seeds * len(rates), method=name)
    return found


def runs_to_floor(
    task: Task, rates: dict[str, float], *, which: dict[str, Method] | None = None, seeds=3, gradients=8000, report=None
) -> dict[str, list[Run]]:
    """Train each method, at its own best learning rate, until its test error stops falling.

    Parameters
    ----------
    rates : dict of str to float
        Learning rate of one gradient, by method.
    which : dict of str to Method, optional
        `methods()` by default.
    gradients : int
        In all. Whether they were enough, `error_floor` says.
    report : callable, optional
        Gets `report(runs done, runs in all, method=)`.

    Returns
    -------
    runs : dict of str to list of Run
        With some 40 points on each curve. A warm start's curve begins when the other workers join.
    """
    report, which, runs = report or ignore_report, methods() if which is None else which, {}
    for name, lr in rates.items():
        runs[name] = []
        for seed in range(seeds):
            runs[name].append(_train(task.but(lr=lr), which[name], seed, gradients, points=40))
            report(sum(map(len, runs.values())), len(rates) * seeds, method=name)
    return runs


def error_floor(errors, *, window: int = WINDOW, tolerance: float = 0.01) -> tuple[float, int] | None:
    """Return a curve's error floor and the point from which on it is reached; None if the error still falls.

    The curve is at its floor if the mean error of its last `window` points is less than `tolerance` below that of the
    `window` points before them. The floor is the mean of the last ones, and reached at the first point whose error is
    at most `tolerance` above it.

    Parameters
    ----------
    errors : (points,) array
        Equally far apart in gradients; at least twice `window`.
    tolerance : float
        An error, as a share: 0.01 are three or four of the digits' 360 test images.

    Returns
    -------
    reached : int
        Index into `errors`.

    Examples
    --------
    >>> error_floor([0.9, 0.3, 0.05, 0.04, 0.05, 0.04], window=2)
    (0.045, 2)
    >>> error_floor([0.9, 0.5, 0.3, 0.2, 0.15, 0.12], window=2) is None
    True

    References
    ----------
    S. Dutta, G. Joshi, S. Ghosh, P. Dube, P. Nagpurkar (2018), Slow and stale gradients can win the race, AISTATS.
    """
    errors = np.asarray(errors, dtype=float)
    if len(errors) < 2 * window:
        raise ValueError(f"error_floor: {len(errors)} points, expected {2 * window} or more, twice the window")
    floor, before = errors[-window:].mean(), errors[-2 * window : -window].mean()
    if before - floor >= tolerance:
        return None
    return float(floor), int(np.argmax(errors <= floor + tolerance))


def floors(runs: dict[str, list[Run]]) -> list[dict]:
    """Return the error floor of every method, and when it is reached.

    Parameters
    ----------
    runs : dict of str to list of Run
        What `runs_to_floor` returns.

    Returns
    -------
    rows : list of dict
        "method"; its "floor [%]" (mean over the seeds), the "lowest" and the "highest"; "at it", the number of seeds
        that are at their floor by the rule of `error_floor`; and the mean "time to it [s]" of these, None if there are
        none. The error of the others still falls: their floor is the mean of the last points.
    """
    rows = []
    for name, several in runs.items():
        errors = [1 - run.curve["test_accuracy"] for run in several]
        found = [error_floor(e) for e in errors]
        levels = [100 * (e[-WINDOW:].mean() if one is None else one[0]) for e, one in zip(errors, found, strict=True)]
        times = [run.curve["time"][one[1]] for run, one in zip(several, found, strict=True) if one is not None]
        row = {"method": name, "floor [%]": float(np.mean(levels)), "lowest": min(levels), "highest": max(levels)}
        rows.append(row | {"time to it [s]": float(np.mean(times)) if times else None, "at it": len(times)})
    return rows


def _train(task: Task, method: Method, seed: int, gradients: int, points: int) -> Run:
    """Train once; the time of a warm start is in the curve's."""
    start, before = None, 0.0
    if method.warm:
        alone = run_policy(task, asp(), Speeds(1, seed=seed), steps=method.warm, seed=seed, points=0)
        start, before = alone.params, alone.seconds
    speeds, steps = Speeds(method.workers, seed=seed), (gradients - method.warm) // method.workers
    options = {"rate": method.rate, "rule": Adagrad() if method.adagrad else None, "start": start, "points": points}
    run = run_policy(task, method.policy, speeds, steps=steps, seed=seed, **options)
    run.curve["time"] += before
    return run


def _final_loss(task: Task, method: Method, seed: int, gradients: int) -> float:
    """Train once; return the loss at the end."""
    run = _train(task, method, seed, gradients, points=0)
    loss = float(run.applied["loss"][-gradients // 10 :].mean())
    return loss if np.isfinite(loss) and not run.diverged else DIVERGED


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


def replay(targets, log, lr: float, *, late: bool = False, steps: bool = True) -> np.ndarray:
    """Work out which weights a log of `try_server` must lead to.

    Parameters
    ----------
    targets : (size, d) array
    log : list of (str, int)
        Without fault: see `check_log`.
    late : bool
        Take each step from the weights that its worker had pulled, as a server must not.
    steps : bool
        False: as if every gradient were one of step 0.

    Returns
    -------
    w : (d,) array
    """
    w, pulled, step = np.ones(targets.shape[1]), {}, dict.fromkeys(range(len(targets)), -1 if steps else 0)
    for kind, worker in log:
        if kind == "pull":
            pulled[worker] = w.copy()
        else:
            k = step[worker] = step[worker] + steps
            w = (pulled[worker] if late else w) - lr * (pulled[worker] - targets[worker]) * (1 + k)
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


def judge_server(check, train, size: int, steps: int, *, lr=0.1, slow=None, d=4, seed=3) -> None:
    """Try a server, and add to a lab's check what its log, its weights and its workers must be.

    Parameters
    ----------
    train, size, steps, lr, slow, d, seed
        For `try_server`.
    """
    targets, ranks = try_server(train, size, steps, lr=lr, slow=slow, d=d, seed=seed)
    (w, log, _), *workers = ranks
    of = f"{len(workers)} worker{'s' * (size > 2)}, {steps} steps"
    check.true(f"workers return None, {of}", all(r[1] is None for r in workers), "rank 0 returns the log")
    fault = check_log(log, size - 1, steps)
    check.true(f"log, {of}", not fault, fault)
    if fault:
        return
    wrong = {
        "not updated, or not in place: `w -= ...` changes the array itself": np.ones(d),
        "uphill: the gradient should be subtracted": replay(targets, log, -lr),
        "the server steps from the weights that the worker had pulled, not from its newest": replay(
            targets, log, lr, late=True
        ),
        "the gradients are of step 0 in every step": replay(targets, log, lr, steps=False),
        "a worker computes at zeros: take the gradient at the weights received": _at_zeros(targets, log, lr),
    }
    if size > 2:
        wrong["every push is a whole step, not a share of one"] = replay(targets, log, lr / (size - 1))
    check.close(f"weights, {of}", w, replay(targets, log, lr), rtol=1e-10, suspects=wrong)
    check.equal(f"steps asked for, {of}", [asked for _, _, asked in workers], [list(range(steps))] * (size - 1))
    others = [rank for rank in range(1, size) if rank not in (slow or {})]
    for rank, factor in (slow or {}).items():
        before = log[: log.index(("push", rank))]
        quick, wanted = min(before.count(("push", other)) for other in others), min(steps, int(factor)) - 1
        told = f"before its first push another worker pushed {quick} times, expected {wanted} or more: "
        check.true(f"no worker waits for rank {rank}, {of}", quick >= wanted, told + "serve whichever comes first")


def _at_zeros(targets, log, lr: float) -> np.ndarray:
    """Work out the weights if every gradient were computed at zeros."""
    w, step = np.ones(targets.shape[1]), {}
    for kind, worker in log:
        if kind == "push":
            k = step[worker] = step.get(worker, -1) + 1
            w = w + lr * targets[worker] * (1 + k)
    return w


def train_digits(comm, train, lr: float, steps: int, *, seed: int = 0, pause: dict[int, float] | None = None):
    """Train a network on the digits with a server; on rank 0 the weights and the log, on a worker (time, loss) pairs.

    Parameters
    ----------
    train : callable
        Gets all parameters as one flat array.
    steps : int
        Of each worker, on 32 samples each.
    seed : int
        Of the weights; with the rank, of the samples.
    pause : dict of int to float, optional
        By rank: how long it sleeps in every step [s].
    """
    digits, loss, flat = load("digits", dtype="float64"), SoftmaxCrossEntropy(), FlatModel(make_model(seed))
    rng, seen = np.random.default_rng([seed, comm.rank]), []

    def gradient(w, step):
        rows = rng.integers(0, len(digits.x_train), 32)
        with comm.clock.span("gradient", flops=flat.flops((32, 64))):
            if pause:
                comm.clock.sleep(pause[comm.rank])
            flat.load(w)
            seen.append((comm.clock.now(), flat.gradient(digits.x_train[rows], digits.y_train[rows], loss)))
        return flat.grad.copy()

    log = train(comm, flat.data, gradient, lr, steps)
    return (flat.data, log) if comm.rank == 0 else seen


def make_model(seed: int = 0):
    """Return the network of `train_digits`, with 32 hidden units."""
    return MLP((64, 32, 10), seed=seed, dtype="float64")


def run_digits(train, workers: int, lr: float, *, gradients: int = 800, seed: int = 0):
    """Run `train_digits` on simulated workers, equally fast but for 20 %.

    Returns
    -------
    w : (n,) array
    log : list of (str, int)
    losses : (gradients,) array
        In the order of time.
    """
    world = SimWorld(workers + 1, FAST, Roofline(1e9), jitter=0.2, seed=seed)
    with np.errstate(all="ignore"):  # it may diverge
        (w, log), *seen = world.run(train_digits, train, lr, gradients // workers, seed=seed)
    return w, log, np.array([loss for _, loss in sorted(point for one in seen for point in one)])


def run_digits_synchronous(workers: int, lr: float, *, gradients: int = 800, seed: int = 0):
    """Train as `run_digits` does, but synchronously: the mean of the workers' gradients at `workers` times the rate.

    Every gradient counts as much as there, and none is stale: the control.

    Returns
    -------
    w : (n,) array
    losses : (gradients,) array
    """
    digits, loss, flat = load("digits", dtype="float64"), SoftmaxCrossEntropy(), FlatModel(make_model(seed))
    draws, losses = [np.random.default_rng([seed, rank]) for rank in range(1, workers + 1)], []
    with np.errstate(all="ignore"):
        for _ in range(gradients // workers):
            total = np.zeros_like(flat.data)
            for rng in draws:
                rows = rng.integers(0, len(digits.x_train), 32)
                losses.append(flat.gradient(digits.x_train[rows], digits.y_train[rows], loss))
                total += flat.grad
            flat.data -= lr * workers * (total / workers)
    return flat.data, np.array(losses)


def active_units(w) -> int:
    """Count the hidden units of `train_digits`' network that are above zero for at least one training digit."""
    x = load("digits", dtype="float64").x_train
    with np.errstate(all="ignore"):
        return int((x @ w[:2048].reshape(64, 32) + w[2048:2080] > 0).any(axis=0).sum())
