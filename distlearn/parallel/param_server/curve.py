"""The learning curve of a run, from snapshots of the parameters, when the training is over."""

from __future__ import annotations

import math

import numpy as np

from ...backend import to_numpy
from .flat import FlatModel
from .record import CURVE


def measure(flat: FlatModel, snapshots, dataset, loss, probe: int = 1000) -> np.ndarray:
    """Measure loss and accuracy of snapshots.

    Parameters
    ----------
    flat : FlatModel
        Is overwritten.
    snapshots : iterable of (version, time, (n,) array)
    dataset : Dataset
        The loss is that of its first training samples, the accuracy that of its test set.
    loss : callable
    probe : int
        Training samples.

    Returns
    -------
    curve : record array of `CURVE`
    """
    model, rows = flat.model.eval(), []
    x, y = dataset.x_train[:probe], dataset.y_train[:probe]
    for version, time, values in snapshots:
        flat.load(values)
        with np.errstate(all="ignore"):  # parameters of a run that diverged
            value, _ = loss(model.forward(x)[0], y, len(x))
            right = _share_right(model, dataset.x_test, dataset.y_test)
        rows.append((version, time, value, right))
    return np.array(rows, CURVE)


def _share_right(model, x, y) -> float:
    """Return the share of samples that are classified rightly; NaN of none."""
    if len(x) == 0:
        return math.nan
    return float((to_numpy(model.forward(x)[0]).argmax(axis=1) == to_numpy(y)).mean())
