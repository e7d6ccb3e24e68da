"""The record of a run: every gradient with its staleness, the trained parameters, the learning curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....data.batches import rows_of
from ....nn.metrics import make_metric

GRADIENT = np.dtype(
    [("worker", "i4"), ("step", "i4"), ("used", "i8"), ("version", "i8"), ("staleness", "i8"), ("rows", "i4"),
     ("arrived", "f8"), ("time", "f8"), ("loss", "f8"), ("factor", "f8")]
)  # fmt: skip
"""One gradient: who computed it, in which of its steps, at which version; which version it made (0: dropped); its
staleness; samples; when it arrived and when it was applied or dropped [s]; its loss; its factor on the learning rate.
"""

PROBE = 1000
"""Training samples on which the curve's loss is measured."""


@dataclass
class Run:
    """What happened in one run of a parameter server.

    Attributes
    ----------
    gradients : (n,) record array of `GRADIENT`
        In the order in which they were applied or dropped.
    seconds : float
        From the start to the last update.
    curve : (k,) record array: version, time [s], loss on fixed training samples, metric on the test set
        At snapshots of the parameters; measured after the training, which it does not slow down. The metric's column
        is named after it, such as "test_accuracy".
    """

    policy: str
    workers: int
    gradients: np.ndarray
    seconds: float
    params: dict[str, np.ndarray]
    curve: np.ndarray
    diverged: bool

    @property
    def applied(self) -> np.ndarray:
        return self.gradients[self.gradients["version"] > 0]

    @property
    def updates(self) -> int:
        return int(self.gradients["version"].max(initial=0))

    @property
    def dropped(self) -> int:
        return int((self.gradients["version"] == 0).sum())

    @property
    def staleness(self) -> np.ndarray:
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
        return np.flatnonzero(np.diff(self.applied["version"], prepend=0))

    @property
    def throughput(self) -> float:
        return self.updates / self.seconds if self.seconds > 0 else np.inf

    @property
    def samples_per_second(self) -> float:
        return self.applied["rows"].sum() / self.seconds if self.seconds > 0 else np.inf

    def __repr__(self) -> str:
        mean = f"{self.staleness.mean():.3g}" if len(self.staleness) else "none"
        return (
            f"Run({self.policy}, {self.workers} workers: {self.updates} updates in {self.seconds:.3g} s, "
            f"mean staleness {mean}, {self.dropped} dropped{', diverged' if self.diverged else ''})"
        )


def make_run(coordinator, flat, parts, dataset, loss) -> Run:
    """Put a run's record together."""
    values = np.concatenate([share for share, _ in parts])
    gradients, state, began = np.array(coordinator.log, GRADIENT), coordinator.policy_state, coordinator.began
    for name in ("arrived", "time"):
        gradients[name] -= began
    points, metric = [], make_metric(None, loss)
    columns = list(zip(*(snapshots for _, snapshots in parts), strict=True))  # of the same version on every server
    model, y = flat.model.eval(), dataset.y_train[:PROBE]
    x, x_test = *rows_of(dataset.x_train, [slice(PROBE)]), *rows_of(dataset.x_test, [slice(None)])
    for column in columns if len(columns) > 1 else ():
        flat.load(np.concatenate([snapshot.share for snapshot in column]))
        with np.errstate(all="ignore"):  # parameters of a run that diverged
            value, _ = loss(model.forward(x)[0], y, len(x))
            score = metric.value(*metric.count(model.forward(x_test)[0], dataset.y_test))
        points.append((column[0].version, column[0].time - began, value, score))
    return Run(
        policy=str(state.policy),
        workers=len(state.clocks),
        gradients=gradients,
        seconds=float(gradients["time"].max(initial=0.0)),
        params=flat.named(values),
        curve=np.array(points, [("version", "i8"), ("time", "f8"), ("loss", "f8"), (f"test_{metric.name}", "f8")]),
        diverged=coordinator.diverged,
    )
