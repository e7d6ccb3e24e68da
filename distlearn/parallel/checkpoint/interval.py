r"""How often to save: Young's and Daly's formulas; `incidents.replay` checks them.

Saving often costs time always, saving rarely costs time when something fails. With checkpoints that take C seconds,
a restart that takes R, and failures every M seconds on average, there is a best time between two checkpoints:

.. math:: \tau \approx \sqrt{2 C M}
"""

from __future__ import annotations

import math

import numpy as np

from ...nn.layer import check_positive


def check_times(what: str, **values) -> None:
    """Raise unless all values are times above 0; `restart` may be 0."""
    for name, value in values.items():
        least = "of 0 s or more" if name == "restart" else "above 0 s"
        if not (value > 0 or (name == "restart" and value == 0)):
            raise ValueError(f"{what}: {name} is {value!r}, expected a time {least}")


def system_mtbf(node_mtbf: float, nodes: int) -> float:
    """Return the mean time between failures of n nodes that fail independently [s].

    Examples
    --------
    >>> round(system_mtbf(5 * 365 * 86400, 1000) / 3600)    # five years a node: a thousand of them fail every 44 hours
    44
    """
    check_times("system_mtbf", node_mtbf=node_mtbf)
    check_positive("system_mtbf", nodes=nodes)
    return node_mtbf / nodes


def young_interval(cost: float, mtbf: float) -> float:
    r"""Return the best time of work between two checkpoints, to first order [s].

    .. math:: \tau = \sqrt{2 C M}

    References
    ----------
    J. W. Young (1974), A first order approximation to the optimum checkpoint interval, CACM 17(9).

    Examples
    --------
    >>> young_interval(cost=18.0, mtbf=10_000.0)
    600.0
    """
    check_times("young_interval", cost=cost, mtbf=mtbf)
    return math.sqrt(2 * cost * mtbf)


def daly_interval(cost: float, mtbf: float) -> float:
    r"""Return the best time of work between two checkpoints, to higher order [s].

    .. math:: \tau = \sqrt{2 C M} \left[1 + \frac13 \sqrt{\frac{C}{2M}} + \frac19 \frac{C}{2M}\right] - C
              \quad (C < 2M), \qquad \tau = M \quad \text{otherwise}

    References
    ----------
    J. T. Daly (2006), A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation
    Computer Systems 22(3), equation 37.
    """
    check_times("daly_interval", cost=cost, mtbf=mtbf)
    if cost >= 2 * mtbf:
        return mtbf
    x = cost / (2 * mtbf)
    return young_interval(cost, mtbf) * (1 + math.sqrt(x) / 3 + x / 9) - cost


def expected_time(work: float, interval, cost: float, restart: float, mtbf: float):
    r"""Return how long a run takes on average when failures are random [s].

    .. math:: T = M e^{R/M} \left(e^{(\tau + C)/M} - 1\right) \frac{W}{\tau}

    Exact for exponential failures, which can also occur during a checkpoint and during a restart.

    W is the time of the run without checkpoints and failures, tau the work between two checkpoints, C and R how long a
    checkpoint and resuming after a failure take, M the mean time between failures of the whole machine.

    References
    ----------
    J. T. Daly (2006), equation 20.
    """
    interval = np.asarray(interval, float)
    shortest = float(interval.min(initial=math.inf))
    check_times("expected_time", work=work, interval=shortest, cost=cost, restart=restart, mtbf=mtbf)
    segment = mtbf * math.exp(restart / mtbf) * np.expm1((interval + cost) / mtbf)
    total = segment * work / interval
    return float(total) if total.ndim == 0 else total
