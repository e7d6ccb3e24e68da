"""Learning-rate schedules: functions of the step (from 0) that return a learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

from ..bounds import check_number


def as_schedule(lr, what: str):
    """Return a schedule for a learning rate: a schedule is returned as it is, a number becomes a constant one."""
    if callable(lr):
        return lr
    if not isinstance(lr, Real):
        raise TypeError(f"{what}: lr is {lr!r}, expected a number, or a function of the step")
    check_number(what, least=0, below=math.inf, lr=lr)
    return Constant(lr)


@dataclass(frozen=True)
class Constant:
    """The same learning rate throughout."""

    lr: float

    def __call__(self, step: int) -> float:
        return self.lr


@dataclass(frozen=True)
class Cosine:
    r"""Decrease the learning rate along half a cosine, then keep its last value.

    .. math:: \eta_t = \tfrac12 \eta \left(1 + \cos \frac{\pi t}{T}\right)

    Parameters
    ----------
    steps : int
        T.

    References
    ----------
    I. Loshchilov, F. Hutter (2017), SGDR: stochastic gradient descent with warm restarts, ICLR, equation 5.
    """

    lr: float
    steps: int

    def __post_init__(self):
        check_number("Cosine", least=0, below=math.inf, lr=self.lr)
        check_number("Cosine", least=1, below=math.inf, steps=self.steps)

    def __call__(self, step: int) -> float:
        return 0.5 * self.lr * (1 + math.cos(math.pi * min(step, self.steps) / self.steps))


@dataclass(frozen=True)
class WarmUp:
    r"""Rise to a schedule linearly over the first steps, then follow it: a large rate at once would diverge.

    .. math:: \eta_t = \text{schedule}(t) \cdot \left( \rho + (1 - \rho) \frac{t + 1}{T} \right) \quad (t < T), \qquad
              \eta_t = \text{schedule}(t) \quad (t \ge T)

    Parameters
    ----------
    steps : int
        T; 0 for none.
    start : float
        rho: share of the schedule's rate to rise from.

    References
    ----------
    P. Goyal et al. (2017), Accurate, large minibatch SGD: training ImageNet in 1 hour, arXiv:1706.02677, section 2.2.

    Examples
    --------
    >>> schedule = WarmUp(0.8, 4)
    >>> [schedule(t) for t in (0, 1, 3, 9)]
    [0.2, 0.4, 0.8, 0.8]
    """

    schedule: object
    steps: int
    start: float = 0.0

    def __post_init__(self):
        object.__setattr__(self, "schedule", as_schedule(self.schedule, "WarmUp"))
        check_number("WarmUp", least=0, below=math.inf, steps=self.steps)
        check_number("WarmUp", least=0, most=1, start=self.start)

    def __call__(self, step: int) -> float:
        rate = self.schedule(step)
        if step >= self.steps:
            return rate
        return rate * (self.start + (1 - self.start) * (step + 1) / self.steps)


def scaled_lr(lr: float, batch_size: int, reference: int = 256) -> float:
    r"""Return the learning rate for a batch by the linear scaling rule: k times the batch, k times the rate.

    .. math:: \eta = \eta_{\text{ref}} \cdot \frac{n}{n_{\text{ref}}}

    One step with the large batch then moves about as far as k steps with the small one. It needs `WarmUp`, and fails
    for very large batches.

    Parameters
    ----------
    lr : float
        Learning rate for a batch of `reference` samples.
    batch_size : int
        Size of the global batch.

    References
    ----------
    P. Goyal et al. (2017), Accurate, large minibatch SGD: training ImageNet in 1 hour, arXiv:1706.02677, section 2.1.

    Examples
    --------
    >>> scaled_lr(0.1, 8192)
    3.2
    """
    check_number("scaled_lr", least=0, below=math.inf, lr=lr)
    check_number("scaled_lr", least=1, below=math.inf, batch_size=batch_size, reference=reference)
    return lr * batch_size / reference
