"""Optimizers: one `Rule` per formula on bare arrays, and the `Optimizer` that applies a rule to a model's parameters.

A rule changes arrays in place and keeps its memory in a state that it is handed, so the same rule serves a whole model,
a shard of it, or a parameter server's flat slice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from .backend import get_xp
from .nn.base import Param


class Rule(Protocol):
    """An optimizer's formula for one array."""

    def init(self, data) -> Any:
        """Make the state for an array like `data` (None if the rule has no memory)."""

    def update(self, data, grad, state, lr: float, step: int) -> None:
        """Change `data` (and `state`) in place; `grad` is left as it was. Steps count from 0."""


@dataclass(frozen=True)
class SGD:
    r"""Stochastic gradient descent.

    .. math:: w \leftarrow w - \eta \, (g + \lambda w)

    Parameters
    ----------
    weight_decay : float
        lambda.

    References
    ----------
    H. Robbins, S. Monro (1951), A stochastic approximation method, Annals of Mathematical Statistics 22(3).
    """

    weight_decay: float = 0.0

    def init(self, data):
        """Return None: plain SGD has no memory."""

    def update(self, data, grad, state, lr, step):
        """Step against the gradient."""
        data -= lr * _decayed(grad, data, self.weight_decay)


@dataclass(frozen=True)
class Momentum:
    r"""SGD with momentum: the gradient accelerates a velocity, the velocity moves the weights.

    .. math:: v \leftarrow \mu v + g + \lambda w, \qquad w \leftarrow w - \eta v

    Parameters
    ----------
    momentum : float
        mu, from 0 to below 1.
    weight_decay : float
        lambda.

    References
    ----------
    B. T. Polyak (1964), Some methods of speeding up the convergence of iteration methods, USSR Computational
    Mathematics and Mathematical Physics 4(5).
    """

    momentum: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self):
        if not 0 <= self.momentum < 1:
            raise ValueError(f"Momentum: momentum is {self.momentum!r}, expected 0 <= momentum < 1")

    def init(self, data):
        """Make a velocity of zeros."""
        return get_xp(data).zeros_like(data)

    def update(self, data, grad, state, lr, step):
        """Accelerate, then move."""
        state *= self.momentum
        state += _decayed(grad, data, self.weight_decay)
        data -= lr * state


def _decayed(grad, data, weight_decay):
    """The gradient with the weight decay's pull added."""
    return grad + weight_decay * data if weight_decay else grad


class Optimizer:
    """Applies a rule to a list of parameters.

    Parameters
    ----------
    params : iterable of Param
        Frozen ones are left alone.
    rule : Rule
    lr : float or callable
        Learning rate, or a plan: a function of the step (from 0) that returns one.

    Examples
    --------
    >>> w = Param(np.array([1.0]))
    >>> w.grad[:] = 2.0
    >>> Optimizer([w], SGD(), lr=0.1).step()
    >>> float(w.data[0])
    0.8
    """

    def __init__(self, params: Iterable[Param], rule: Rule, lr: float | Callable[[int], float]):
        self.params = [p for p in params if not p.frozen]
        self.rule = rule
        self.lr = lr if callable(lr) else (lambda step: lr)
        self.states = [rule.init(p.data) for p in self.params]
        self.steps = 0
        if not callable(lr) and not lr >= 0:
            raise ValueError(f"Optimizer: lr is {lr!r}, expected a learning rate of 0 or more")

    def step(self) -> None:
        """Update every parameter from its gradient."""
        lr = self.lr(self.steps)
        for p, state in zip(self.params, self.states, strict=True):
            self.rule.update(p.data, p.grad, state, lr, self.steps)
        self.steps += 1

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for p in self.params:
            p.grad[...] = 0


RULES = {"sgd": SGD, "momentum": Momentum}
"""Rules by name."""
