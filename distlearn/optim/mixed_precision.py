"""Mixed precision: weights, activations and gradients in half the bytes, updates in full precision."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ..backend import get_xp
from ..nn.layer import Param
from ..nn.ops import rounded
from .clipping import clip_by_norm
from .optimizer import check_clip_norm, update_cost
from .rule import Rule, apply
from .schedules import as_plan


class MixedPrecision:
    r"""Optimizer for a model in float16: keeps float32 master weights and scales the loss.

    Half precision has 11 bits and ends at 6e-8: small updates of a weight are rounded away, and small gradients
    become zero. So the rule runs on a float32 copy of every weight, and the loss (hence every gradient) is multiplied
    by a scale that is taken off again before the update. A scale that is too large overflows: then the step is left
    out and the scale halved; after `growth_interval` good steps it is doubled.

    Parameters
    ----------
    params : iterable of Param
        In float16 (`move(model, lambda a: a.astype("float16"))`). Frozen ones are left alone.
    rule : Rule
    lr : float or callable
    scale : float
        First loss scale.
    growth_interval : int
        Good steps before the scale is doubled.
    clip_norm : float, optional
        Shorten the (unscaled) gradients to this length.

    Attributes
    ----------
    scale : float
    skipped : int
        Steps left out so far.
    master : list of Param
        The float32 weights, with their gradients.

    Notes
    -----
    Wrap the loss in `scaled(loss)`. Memory: 2 + 2 bytes a weight for weights and gradients, and 8 for the master and
    its gradient; what is saved is the activations' half. On several ranks the summed gradients are the same
    everywhere, so all ranks skip the same steps.

    References
    ----------
    P. Micikevicius et al. (2018), Mixed precision training, ICLR, sections 3.1 and 3.2.
    """

    def __init__(
        self,
        params: Iterable[Param],
        rule: Rule,
        lr: float | Callable[[int], float],
        *,
        scale: float = 2.0**15,
        growth_interval: int = 1000,
        clip_norm: float | None = None,
    ):
        if not scale > 0:
            raise ValueError(f"MixedPrecision: scale is {scale!r}, expected a number above 0")
        if not growth_interval >= 1:
            raise ValueError(f"MixedPrecision: growth_interval is {growth_interval!r}, expected 1 step or more")
        check_clip_norm("MixedPrecision", clip_norm)
        self.params = [p for p in params if not p.frozen]
        self.master = [Param(p.data.astype(np.float32), p.name) for p in self.params]
        self.rule, self.scale, self.growth_interval, self.clip_norm = rule, scale, growth_interval, clip_norm
        self.lr = as_plan(lr, "MixedPrecision")
        self.states = [rule.init(p.data) for p in self.master]
        self.steps = self.skipped = self._good = 0

    def scaled(self, loss):
        """Return `loss` computed in float32, with its gradient multiplied by the current scale, its value unchanged.

        A gradient that overflows becomes NaN as a whole: that leads to a skipped step, without warnings on the way.
        """

        def scaled_loss(y, targets, n=None):
            value, dy = loss(y.astype(np.float32), targets, n)
            dy *= self.scale
            dy = rounded(dy, y.dtype)
            if not _finite(dy):
                dy[...] = np.nan
            return value, dy

        return scaled_loss

    def step(self) -> None:
        """Update the master weights and round them into the model; or, after an overflow, only halve the scale."""
        for m, p in zip(self.master, self.params, strict=True):
            m.grad[...] = p.grad
            m.grad *= 1 / self.scale
        if not all(_finite(m.grad) for m in self.master):
            self.scale /= 2
            self.skipped += 1
            self._good = 0
            return
        if self.clip_norm is not None:
            clip_by_norm(self.master, self.clip_norm)
        lr = self.lr(self.steps)
        for m, p, state in zip(self.master, self.params, self.states, strict=True):
            apply(self.rule, m.data, m.grad, state, lr, self.steps)
            p.data[...] = m.data
        self.steps += 1
        self._good += 1
        if self._good >= self.growth_interval:
            self.scale *= 2
            self._good = 0

    def cost(self) -> tuple[int, int]:
        """Return what a step computes and moves: (flops, bytes).

        The rule's; and gradients are widened and scaled, weights rounded.
        """
        flops, nbytes = update_cost(self.master, self.states)
        for m, p in zip(self.master, self.params, strict=True):
            flops += m.size
            nbytes += 2 * p.nbytes + 4 * m.nbytes
        return flops, nbytes

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for p in self.params:
            p.zero_grad()


def _finite(x) -> bool:
    """Say whether all values are numbers."""
    return bool(get_xp(x).isfinite(x).all())
