r"""A race of policies on a noisy quadratic: error against time, on workers that are even, straggling or heavy-tailed.

The model is the simplest one in which everything that matters here happens: :math:`L(w) = \frac12 \sum_i h_i w_i^2`
with gradients :math:`h_i w_i + \sqrt{h_i}\, \sigma \epsilon_i`. A rate that is too large diverges, sooner with stale
gradients; a small one is slow; any constant one ends at an *error floor* that is proportional to it. A run costs
milliseconds, because events come from `simulate` and a gradient is a few multiplications.

References
----------
G. Zhang, L. Li, Z. Nado, J. Martens, S. Sachdeva, G. Dahl, C. Shallue, R. Grosse (2019), Which algorithmic choices
matter at which batch sizes? Insights from a noisy quadratic model, NeurIPS.
S. Dutta, G. Joshi, S. Ghosh, P. Dube, P. Nagpurkar (2018), Slow and stale gradients can win the race, AISTATS: error
floors, and error against wall time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ...comm.protocol import ignore_report
from ...parallel.asynchronous.param_server import Speeds, simulate

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
    """Workers of three kinds: even ones, some that are always slow, some whose steps have a heavy tail.

    Parameters
    ----------
    even, slow, heavy : int
        How many of each, in this order.
    factor : float
        How many times as long every step of a slow worker takes.
    seed : int

    Examples
    --------
    >>> Mix(14, 2, 0, factor=4.0).mean.tolist()[-3:]
    [1.0, 4.0, 4.0]
    """

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
    """A policy with a learning rate for each staleness, as plain numbers: what enters the race.

    Parameters
    ----------
    quorum : int
        Gradients in an update, from 1 to the number of workers.
    waits : bool
        Whether a worker whose gradient was taken waits until it is in an update.
    starts : (n,) array of bool
        By lead, 0, 1, 2, ... steps ahead of the slowest worker: may the next step start?
    rate : (n,) array
        By staleness, 0, 1, 2, ...: learning rate of a gradient; one of rate 0 is dropped. An update adds up its
        gradients, each with its own rate. Beyond their ends, both tables go on as they end.
    name : str
    """

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
    """The outcome of a race.

    Attributes
    ----------
    mixes : list of Mix
    curves : dict of str to (mixes, seeds, points) array
        Error of each entry at `times`.
    references : list of str
        The entries to beat.
    times : (points,) array
        [s].
    target : float
        The error to reach.
    """

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
    *entries : Entry
    mixes : list of Mix, optional
        `practice_mixes()` by default.
    seeds : int
        Runs of each entry on each mix.
    report : callable, optional
        Gets `report(done, total)`.

    Returns
    -------
    race : Race
    """
    report, mixes = report or ignore_report, practice_mixes() if mixes is None else mixes
    known = references()
    both, curves = [*known, *entries], {}
    for done, entry in enumerate(both, 1):
        curves[entry.name] = np.array([[error_curve(entry, mix, seed) for seed in range(seeds)] for mix in mixes])
        report(done, len(both))
    return Race(mixes, curves, [entry.name for entry in known])
