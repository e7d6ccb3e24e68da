"""The optimizer: applies a rule to a model's parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..nn.layer import Param
from .clipping import clip_by_norm
from .rule import Rule, apply, memory_of
from .schedules import as_plan


def check_clip_norm(what: str, clip_norm) -> None:
    """Raise unless a length that gradients are cut to makes sense."""
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"{what}: clip_norm is {clip_norm!r}, expected a length above 0")


class Optimizer:
    """Applies a rule to a list of parameters.

    Parameters
    ----------
    params : iterable of Param
        Frozen ones are left alone.
    rule : Rule
    lr : float or callable
        Learning rate, or a plan: a function of the step (from 0) that returns one.
    clip_norm : float, optional
        Shorten the gradients to this length before every step (see `clip_by_norm`).

    Examples
    --------
    >>> import numpy as np
    >>> from distlearn.optim import SGD
    >>> w = Param(np.array([1.0]))
    >>> w.grad[:] = 2.0
    >>> Optimizer([w], SGD(), lr=0.1).step()
    >>> float(w.data[0])
    0.8
    """

    def __init__(
        self,
        params: Iterable[Param],
        rule: Rule,
        lr: float | Callable[[int], float],
        *,
        clip_norm: float | None = None,
    ):
        check_clip_norm("Optimizer", clip_norm)
        self.params = [p for p in params if not p.frozen]
        self.rule = rule
        self.lr = as_plan(lr, "Optimizer")
        self.clip_norm = clip_norm
        self.states = [rule.init(p.data) for p in self.params]
        self.steps = 0

    def __repr__(self):
        return f"{type(self).__name__}({self.rule}, {self.lr}, {len(self.params)} parameters, {self.steps} steps done)"

    def step(self) -> None:
        """Update every parameter from its gradient."""
        if self.clip_norm is not None:
            clip_by_norm(self.params, self.clip_norm)
        lr = self.lr(self.steps)
        for p, state in zip(self.params, self.states, strict=True):
            apply(self.rule, p.data, p.grad, state, lr, self.steps)
        self.steps += 1

    def cost(self) -> tuple[int, int]:
        """Return what a step computes and moves: (flops, bytes); see `update_cost`."""
        return update_cost(self.params, self.states)

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for p in self.params:
            p.zero_grad()


def update_cost(params: list[Param], states: list) -> tuple[int, int]:
    """Return what a rule computes and moves for some parameters: (flops, bytes).

    Per parameter a multiply-add for the weight and one for each array of the rule's memory; gradients are read,
    weights and memory are read and written.
    """
    flops = nbytes = 0
    for p, state in zip(params, states, strict=True):
        arrays = 1 + len(memory_of(state))
        flops += 2 * arrays * p.size
        nbytes += (1 + 2 * arrays) * p.nbytes
    return flops, nbytes
