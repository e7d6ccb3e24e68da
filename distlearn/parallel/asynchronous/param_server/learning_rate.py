r"""Staleness-aware learning rates: how much an old gradient still counts.

A rate is a function `rate(staleness, step) -> factor` on the learning rate; 1 for a fresh gradient. The factor
multiplies the gradient on its way into the update, not the whole step: with plain SGD that is the same as a smaller
learning rate; with momentum the velocity, which fresh gradients have built, is left as it is.

Momentum is kept on the server: each shard keeps the velocity of its share, which all workers' gradients update.
Asynchrony itself acts like momentum, of 1 - 1/n with n workers (Mitliagkas et al., 2016), so the explicit one should be
smaller.
"""

from __future__ import annotations

import math


def constant(staleness: int, step: int) -> float:
    """Return 1: plain asynchronous SGD, in which an old gradient counts like a fresh one."""
    return 1.0


def inverse(staleness: int, step: int) -> float:
    r"""Divide by the staleness: :math:`\alpha_\tau = \alpha / \tau` for :math:`\tau > 0`.

    References
    ----------
    W. Zhang, S. Gupta, X. Lian, J. Liu (2016), Staleness-aware async-SGD for distributed deep learning, IJCAI.

    Examples
    --------
    >>> [inverse(staleness, 0) for staleness in (0, 1, 2, 4)]
    [1.0, 1.0, 0.5, 0.25]
    """
    return 1.0 / max(1, staleness)


def adadelay(staleness: int, step: int) -> float:
    r"""Count the staleness as time: :math:`\sqrt{t / (t + \tau)}`, a large factor early and none late.

    AdaDelay's rate is :math:`c / \sqrt{t + \tau}`; this is what it adds to a schedule :math:`c / \sqrt t`.
    """
    return math.sqrt((step + 1) / (step + 1 + staleness))


RATES = {"constant": constant, "inverse": inverse, "adadelay": adadelay}
"""Rates without parameters, by name."""
