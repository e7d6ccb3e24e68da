"""Mixed precision: weights, activations and gradients in half the bytes, updates in full precision."""

from __future__ import annotations

import numpy as np

from ..backend import get_xp, rounded
from ..nn.layer import Param
from .optimizer import Optimizer

LEAST_SCALE = 2.0**-14


class MixedPrecision(Optimizer):
    r"""Optimizer for a model in float16: keeps float32 master weights and scales the loss.

    Half precision has 11 bits and ends at 6e-8: small updates of a weight are rounded away, and small gradients
    become zero. So the rule runs on a float32 copy of every weight, and the loss (hence every gradient) is multiplied
    by a scale that is divided out before the update. If the scale is too large, gradients overflow: the step is
    skipped and the scale halved; after `growth_interval` good steps it is doubled. Gradients that are not finite at a
    scale of 6e-5 have another reason, and are an error. Weights that were changed since the last step, by loading for
    example, are what the masters go on from.

    Parameters
    ----------
    params : iterable of Param, or list of dict
        As for `Optimizer`, in float16 (`move(model, lambda a: a.astype("float16"))`).
    scale : float
        First loss scale.
    growth_interval : int
        Good steps before the scale is doubled.
    clip_norm : float, optional
        Clip the (unscaled) gradients to this norm.

    Attributes
    ----------
    skipped : int
        Steps skipped so far.
    master : list of Param
        The float32 weights, with their gradients.

    Notes
    -----
    `Serial` and the data-parallel strategies scale the loss themselves; in a loop of your own, train with
    `scaled(loss)`. Memory: 2 + 2 bytes a weight for weights and gradients, and 8 for the master and its gradient;
    what is saved is half of the activations. On several ranks the summed gradients are the same everywhere, and a
    value that is not finite stays so in a sum: so all ranks skip the same steps.

    References
    ----------
    P. Micikevicius et al. (2018), Mixed precision training, ICLR, sections 3.1 and 3.2.
    """

    counters = ("steps", "scale", "skipped", "_good")

    def __init__(self, params, rule, lr, *, scale=2.0**15, growth_interval=1000, clip_norm=None):
        if not scale > 0:
            raise ValueError(f"MixedPrecision: scale is {scale!r}, expected a number above 0")
        if not growth_interval >= 1:
            raise ValueError(f"MixedPrecision: growth_interval is {growth_interval!r}, expected 1 step or more")
        super().__init__(params, rule, lr, clip_norm=clip_norm)
        wide = np.promote_types
        self.master = self.weights = [Param(p.data.astype(wide(p.data.dtype, np.float32)), p.name) for p in self.params]
        rules = (group.rule for group in self.groups for _ in group.params)
        self.states = [rule.init(m.data) for rule, m in zip(rules, self.master, strict=True)]
        self.scale, self.growth_interval = scale, growth_interval
        self.skipped = self._good = 0
        self._scales = False  # whether training uses the scaled loss
        self._publish()

    def scaled(self, loss) -> ScaledLoss:
        """Return `loss` computed in float32, with its gradient multiplied by the current scale, its value unchanged."""
        self._scales = True
        return loss if isinstance(loss, ScaledLoss) and loss.optimizer is self else ScaledLoss(self, loss)

    def step(self) -> None:
        """Update the master weights and round them into the model; or, after an overflow, only halve the scale."""
        if not self._scales and self.scale != 1:
            raise RuntimeError("MixedPrecision: the loss was not scaled; train with optimizer.scaled(loss)")
        for m, p in zip(self.master, self.params, strict=True):
            changed = p.data != rounded(m.data, p.data.dtype)
            if changed.any():
                m.data[changed] = p.data[changed]
            m.grad[...] = rounded(p.grad, p.data.dtype)
            m.grad *= 1 / self.scale
        bad = [p.name for m, p in zip(self.master, self.params, strict=True) if not _finite(m.grad)]
        if bad:
            if self.scale <= LEAST_SCALE:
                raise FloatingPointError(self._not_the_scale(bad))
            self.scale /= 2
            self.skipped += 1
            self._good = 0
            return
        super().step()
        self._publish()
        self._good += 1
        if self._good >= self.growth_interval:
            self.scale *= 2
            self._good = 0

    def _not_the_scale(self, bad: list[str]) -> str:
        names = [p.name for p in self.params]
        after = names[names.index(bad[-1]) + 1 :]
        where = f", while that of {after[0]!r} is: look at the layers between" if after else ": look at the outputs"
        when = f"at a loss scale of {self.scale:.2g}, after {self.skipped} skipped steps"
        return f"MixedPrecision: {when}, the gradient of {bad[-1]!r} is not finite{where}, which may overflow"

    def _publish(self) -> None:
        for m, p in zip(self.master, self.params, strict=True):
            p.data[...] = rounded(m.data, p.data.dtype)

    def cost(self) -> tuple[int, int]:
        """Return what a step computes and moves: (flops, bytes).

        The rule's cost, plus widening and scaling the gradients and rounding the weights.
        """
        flops, nbytes = super().cost()
        for m, p in zip(self.master, self.params, strict=True):
            flops += m.size
            nbytes += 2 * p.nbytes + 4 * m.nbytes
        return flops, nbytes


class ScaledLoss:
    """A loss in float32 whose gradient is multiplied by an optimizer's scale.

    A gradient that overflows becomes NaN as a whole: that leads to a skipped step, without warnings on the way.
    """

    def __init__(self, optimizer: MixedPrecision, loss):
        self.optimizer, self.loss = optimizer, loss
        self.metric = getattr(loss, "metric", None)  # a plain function has none

    def __repr__(self):
        return repr(self.loss)

    def __call__(self, y, targets, n=None):
        value, dy = self.loss(y.astype(np.promote_types(y.dtype, np.float32)), targets, n)
        dy *= self.optimizer.scale
        dy = rounded(dy, y.dtype)
        if not _finite(dy):
            dy[...] = np.nan
        return value, dy


def _finite(x) -> bool:
    return bool(get_xp(x).isfinite(x).all())
