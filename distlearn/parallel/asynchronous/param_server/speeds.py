"""How long the steps of each worker take: a run's pace, with stragglers and heavy tails."""

from __future__ import annotations

import numpy as np

from ....bounds import check_number, check_positive

LAWS = {"constant": 0.0, "lognormal": 0.1, "pareto": 1.5, "occasional": 0.05}
"""Laws, and the shape that each has by default."""

DELAYED = 10.0
"""Under "occasional", how many times as long a delayed step takes."""


class Speeds:
    r"""The seconds that step k of worker w takes: the same in every world, in whatever order it is asked for.

    Parameters
    ----------
    seconds : float
        Mean of a worker that is not slowed down [s].
    law : {"lognormal", "pareto", "occasional", "constant"}
        How steps vary from one to the next: log-normally, with standard deviation `shape` of the logarithm; as a Pareto
        law with tail index `shape`, of infinite variance up to 2; ten times as long in a share `shape` of all steps,
        else within 10 % of one another; or not at all.
    shape : float, optional
        0.1 for "lognormal", 1.5 for "pareto", 0.05 for "occasional".
    slow : dict of int to float
        Stragglers: worker, and the factor on all its steps.

    Examples
    --------
    >>> speeds = Speeds(4, seconds=2.0, law="constant", slow={3: 4.0})
    >>> speeds(0, 7), speeds(3, 7), speeds.step_times(7).tolist()
    (2.0, 8.0, [2.0, 2.0, 2.0, 8.0])

    Notes
    -----
    All laws have the mean `seconds`. The log-normal factor is :math:`e^{\sigma z - \sigma^2/2}`; the Pareto factor is
    :math:`x_m u^{-1/a}` with :math:`x_m = (a - 1)/a`, of infinite variance for :math:`a \le 2`. An occasional delay
    that hits a share q of the steps makes the factor 10 / (1 + 9 q) there and 1 / (1 + 9 q) elsewhere, each times a
    uniform number from 0.9 to 1.1.
    """

    def __init__(self, workers: int, seconds: float = 1.0, *, law="lognormal", shape=None, slow=None, seed: int = 0):
        if law not in LAWS:
            raise ValueError(f"Speeds: law is {law!r}, expected one of {', '.join(LAWS)}")
        self.workers, self.seconds, self.law, self.seed = workers, seconds, law, seed
        self.shape = LAWS[law] if shape is None else shape
        check_positive("Speeds", workers=workers)
        check_number("Speeds", above=0, seconds=seconds)
        span = {"above": 1} if law == "pareto" else {"least": 0, "most": 1 if law == "occasional" else np.inf}
        check_number("Speeds", **span, shape=self.shape)  # a Pareto law has no mean up to 1
        self.slow = dict(slow or {})
        self._scale = np.full(workers, float(seconds))
        for worker, factor in self.slow.items():
            check_number("Speeds: slow", whole=True, least=0, below=workers, worker=worker)
            check_number("Speeds: slow", above=0, factor=factor)
            self._scale[worker] *= factor
        self._drawn: dict[int, list[float]] = {}

    def __repr__(self) -> str:
        slow = f", slow={self.slow}" if self.slow else ""
        return f"Speeds({self.workers}, {self.seconds:g} s, {self.law} {self.shape:g}{slow})"

    def step_times(self, step: int) -> np.ndarray:
        """Return the seconds of step `step` of every worker, (workers,)."""
        if self.law == "constant":
            return self._scale
        rng = np.random.default_rng([self.seed, step])
        if self.law == "lognormal":
            factor = np.exp(self.shape * rng.standard_normal(self.workers) - self.shape**2 / 2)
        elif self.law == "occasional":
            delay = np.where(rng.random(self.workers) < self.shape, DELAYED, 1.0)
            factor = delay * rng.uniform(0.9, 1.1, self.workers) / (1 + (DELAYED - 1) * self.shape)
        else:
            factor = (self.shape - 1) / self.shape * (1 - rng.random(self.workers)) ** (-1 / self.shape)
        return self._scale * factor

    def table(self, steps: int) -> np.ndarray:
        return np.stack([self.step_times(step) for step in range(steps)])

    def __call__(self, worker: int, step: int) -> float:
        times = self._drawn.get(step)
        if times is None:
            times = self._drawn[step] = self.step_times(step).tolist()
        try:
            return times[worker]
        except IndexError:
            raise IndexError(f"{self!r}: there is no worker {worker}, expected 0 to {self.workers - 1}") from None
