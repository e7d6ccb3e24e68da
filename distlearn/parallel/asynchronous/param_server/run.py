"""The record of a run: every gradient with its staleness, the trained parameters, the learning curve."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ....nn.metrics import make_metric
from .worker import FlatModel

GRADIENT = np.dtype(
    [
        ("worker", "i4"),
        ("step", "i4"),
        ("used", "i8"),
        ("version", "i8"),
        ("staleness", "i8"),
        ("rows", "i4"),
        ("arrived", "f8"),
        ("time", "f8"),
        ("loss", "f8"),
        ("factor", "f8"),
    ]
)
"""One gradient: who computed it, in which of its steps, at which version; which version it made (0: dropped); its
staleness; samples; when it arrived and when it was applied or dropped [s]; its loss; its factor on the learning rate.
"""


def curve_type(metric: str) -> np.dtype:
    """Return the dtype of a curve's points, whose last column is the metric on the test set: "test_accuracy"."""
    return np.dtype([("version", "i8"), ("time", "f8"), ("loss", "f8"), (f"test_{metric}", "f8")])


CURVE = curve_type("accuracy")
"""One point of the curve: version, time [s], loss on fixed training samples, share of the test set that is right."""


@dataclass
class Run:
    """What happened in one run of a parameter server.

    Attributes
    ----------
    gradients : (n,) record array of `GRADIENT`
        In the order in which they were applied or dropped.
    seconds : float
        From the start to the last update.
    params : dict of str to array
        The trained parameters by name.
    curve : (k,) record array of `CURVE`
        At snapshots of the parameters; measured after the training, which it does not slow down.
    diverged : bool
        Whether training stopped because a loss was no longer finite.
    notes : dict
        Anything that a caller wants to keep with the run.
    """

    policy: str
    workers: int
    gradients: np.ndarray
    seconds: float
    params: dict[str, np.ndarray]
    curve: np.ndarray = field(default_factory=lambda: np.zeros(0, CURVE))
    diverged: bool = False
    notes: dict = field(default_factory=dict)

    @property
    def applied(self) -> np.ndarray:
        """The gradients that went into an update."""
        return self.gradients[self.gradients["version"] > 0]

    @property
    def updates(self) -> int:
        """Number of updates: the last version."""
        return int(self.gradients["version"].max(initial=0))

    @property
    def dropped(self) -> int:
        """Number of gradients that were dropped."""
        return int((self.gradients["version"] == 0).sum())

    @property
    def staleness(self) -> np.ndarray:
        """Staleness of every gradient that was applied."""
        return self.applied["staleness"]

    def histogram(self) -> np.ndarray:
        """Return how many applied gradients had staleness 0, 1, 2, ..."""
        return np.bincount(self.staleness)

    @property
    def times(self) -> np.ndarray:
        """Time of every update [s]."""
        return self.applied["time"][self._first()]

    @property
    def losses(self) -> np.ndarray:
        """Training loss of every update: the mean over the samples that it used, at the parameters they were given."""
        applied = self.applied
        weight = np.add.reduceat(applied["rows"].astype(float), self._first()) if len(applied) else np.zeros(0)
        total = np.add.reduceat(applied["rows"] * applied["loss"], self._first()) if len(applied) else np.zeros(0)
        return np.divide(total, weight, out=np.full(len(total), np.nan), where=weight > 0)

    def _first(self) -> np.ndarray:
        """Where each update's gradients begin."""
        return np.flatnonzero(np.diff(self.applied["version"], prepend=0))

    @property
    def throughput(self) -> float:
        """Updates per second."""
        return self.updates / self.seconds if self.seconds > 0 else np.inf

    @property
    def samples_per_second(self) -> float:
        """Samples per second that went into updates."""
        return self.applied["rows"].sum() / self.seconds if self.seconds > 0 else np.inf

    def __repr__(self) -> str:
        mean = f"{self.staleness.mean():.3g}" if len(self.staleness) else "none"
        broken = ", diverged" if self.diverged else ""
        return (
            f"Run({self.policy}, {self.workers} workers: {self.updates} updates in {self.seconds:.3g} s, "
            f"mean staleness {mean}, {self.dropped} dropped{broken})"
        )


class GradientLog:
    """Collects a run's gradients as the coordinator decides about them."""

    def __init__(self):
        self._rows: list[tuple] = []
        self._open: dict[tuple[int, int], tuple] = {}  # (worker, step) -> push and time of arrival, until applied

    def __len__(self) -> int:
        return len(self._rows)

    def add_taken(self, push, now: float) -> None:
        """Remember a gradient that was taken."""
        self._open[push.worker, push.step] = (push, now)

    def add_dropped(self, push, staleness: int, now: float) -> None:
        """Record a gradient that was dropped."""
        self._rows.append((push.worker, push.step, push.used, 0, staleness, push.rows, now, now, push.loss, 0.0))

    def push_of(self, pending):
        """Return the message that came with a pending gradient."""
        return self._open[pending.worker, pending.step][0]

    def set_applied(self, pending, version: int, factor: float, now: float) -> None:
        """Record that a gradient is part of the update which makes `version`."""
        push, arrived = self._open.pop((pending.worker, pending.step))
        stale = version - 1 - push.used
        row = (push.worker, push.step, push.used, version, stale, push.rows, arrived, now, push.loss, factor)
        self._rows.append(row)

    def rewind(self, version: int) -> None:
        """Drop the updates after a version, and gradients that wait for one."""
        self._rows = [row for row in self._rows if row[3] <= version]
        self._open.clear()

    def table(self) -> np.ndarray:
        """Return all of them."""
        return np.array(self._rows, GRADIENT)


def make_run(coordinator, flat: FlatModel, parts, dataset, loss, probe: int) -> Run:
    """Put a run's record together."""
    values = np.concatenate([share for share, _ in parts])
    gradients, policy_state = coordinator.log.table(), coordinator.policy_state
    for name in ("arrived", "time"):
        gradients[name] -= coordinator.began
    columns = list(zip(*(snapshots for _, snapshots in parts), strict=True))  # of the same version on every server
    curve = np.zeros(0, CURVE)
    if len(columns) > 1:
        whole = [(c[0].version, c[0].time - coordinator.began, np.concatenate([s.share for s in c])) for c in columns]
        curve = measure_curve(flat, whole, dataset, loss, probe)
    flat.load(values)
    return Run(
        policy=str(policy_state.policy),
        workers=len(policy_state.clocks),
        gradients=gradients,
        seconds=float(gradients["time"].max(initial=0.0)),
        params=flat.named(),
        curve=curve,
        diverged=coordinator.diverged,
    )


def measure_curve(flat: FlatModel, snapshots, dataset, loss, probe: int = 1000) -> np.ndarray:
    """Measure loss and metric of snapshots."""
    model, rows, metric = flat.model.eval(), [], make_metric(None, loss)
    x, y = dataset.x_train[:probe], dataset.y_train[:probe]
    for version, time, values in snapshots:
        flat.load(values)
        with np.errstate(all="ignore"):  # parameters of a run that diverged
            value, _ = loss(model.forward(x)[0], y, len(x))
            score = metric.value(*metric.count(model.forward(dataset.x_test)[0], dataset.y_test))
        rows.append((version, time, value, score))
    return np.array(rows, curve_type(metric.name))
