"""Backup workers under two assumptions about late ones: cancelled at once for free, or finishing what they began."""

from __future__ import annotations

import numpy as np

from ...parallel.asynchronous.param_server import Backup, Speeds, backup, simulate


def backup_seconds(speeds: Speeds, shares, *, steps: int = 150, cancelled: bool = False) -> np.ndarray:
    """Return the mean time between updates, by the share of the workers that is waited for.

    Parameters
    ----------
    speeds : Speeds
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
