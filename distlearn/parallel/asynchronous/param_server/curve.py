"""What is made of a run when the training is over: its record, and its learning curve from snapshots."""

from __future__ import annotations

import numpy as np

from ....nn.metrics import make_metric
from .flat import FlatModel
from .record import CURVE, Run, curve_type


def finish(head, flat: FlatModel, parts, dataset, loss, probe: int) -> Run:
    """Put a run's record together.

    Parameters
    ----------
    head : Lead
    flat : FlatModel
        Gets the trained parameters.
    parts : list of (share, snapshots)
        By server.
    dataset : Dataset
    loss : callable
    probe : int
        Training samples for the curve; without snapshots there is none.

    Returns
    -------
    run : Run
    """
    values = np.concatenate([share for share, _ in parts])
    gradients, ledger = head.diary.table(), head.ledger
    for name in ("arrived", "time"):
        gradients[name] -= head.began
    columns = list(zip(*(snapshots for _, snapshots in parts), strict=True))  # of the same version on every server
    curve = np.zeros(0, CURVE)
    if len(columns) > 1:
        whole = [(c[0].version, c[0].time - head.began, np.concatenate([s.share for s in c])) for c in columns]
        curve = measure(flat, whole, dataset, loss, probe)
    flat.load(values)
    return Run(
        policy=str(ledger.policy),
        workers=len(ledger.clocks),
        gradients=gradients,
        seconds=float(gradients["time"].max(initial=0.0)),
        params=flat.named(),
        curve=curve,
        diverged=head.diverged,
    )


def measure(flat: FlatModel, snapshots, dataset, loss, probe: int = 1000) -> np.ndarray:
    """Measure loss and metric of snapshots.

    Parameters
    ----------
    flat : FlatModel
        Is overwritten.
    snapshots : iterable of (version, time, (n,) array)
    dataset : Dataset
        The loss is that of its first training samples, the metric (what the loss says) is that of its test set.
    loss : callable
    probe : int
        Training samples.

    Returns
    -------
    curve : record array of `curve_type(metric)`
    """
    model, rows, metric = flat.model.eval(), [], make_metric(None, loss)
    x, y = dataset.x_train[:probe], dataset.y_train[:probe]
    for version, time, values in snapshots:
        flat.load(values)
        with np.errstate(all="ignore"):  # parameters of a run that diverged
            value, _ = loss(model.forward(x)[0], y, len(x))
            score = metric.value(*metric.count(model.forward(dataset.x_test)[0], dataset.y_test))
        rows.append((version, time, value, score))
    return np.array(rows, curve_type(metric.name))
