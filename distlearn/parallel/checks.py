"""Checks of a strategy before it trains: that the model can learn, and that the loss is one."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import TYPE_CHECKING

import numpy as np

from ..backend import has_values, same_bytes, share_memory
from ..nn.container import Sequential, gives_gradient
from ..nn.layer import Layer, describe, walk

if TYPE_CHECKING:
    from ..nn.loss import Loss


def check_model(model: Layer) -> None:
    """Raise if a parameter is not finite, or lies before a layer that gives no gradient of its input."""
    for p in model.params:
        if has_values(p.data) and not math.isfinite(p.data.sum(dtype=np.float64)):
            raise ValueError(f"parameter {p.name!r} holds NaN or infinity before the first step: make or load it again")
    begins = {}
    for p in model.params:  # the first values say enough: two draws from one seed are equal in all
        values = p.data.reshape(-1)[:8].tolist() if has_values(p.data) else []
        twin = begins.setdefault((p.data.shape, *values), p)
        if twin is not p and len(set(values)) > 1:
            warnings.warn(
                f"parameters {twin.name!r} and {p.name!r} start equal, as from one seed: give each layer its own rng",
                stacklevel=4,
            )
    for part in walk(model):
        layers = part.layers if isinstance(part, Sequential) else ()
        last = max((i for i, layer in enumerate(layers) if not gives_gradient(layer)), default=0)
        for p in (p for layer in layers[:last] for p in layer.params if not p.frozen):
            ends = next(inner for inner in walk(layers[last]) if not inner.input_gradient)
            raise ValueError(
                f"parameter {p.name!r} would learn nothing: {describe(ends)} comes after it and has "
                "input_gradient=False; make that layer with input_gradient=True, or freeze the parameters before it"
            )


class CheckedLoss:
    """A loss of the user's own, which is checked at its first call."""

    def __init__(self, loss):
        self.loss, self.new = loss, True
        self.metric = getattr(loss, "metric", None)  # a plain function has none

    def __repr__(self):
        return repr(self.loss)

    def __call__(self, y, targets, n=None):
        if not self.new or not has_values(y):
            return self.loss(y, targets, n)
        self.new, name = False, f"loss {getattr(self.loss, '__name__', repr(self.loss))}"
        before, n = [(y, y.copy()), (targets, targets.copy())], len(y) if n is None else n
        try:
            inspect.signature(self.loss).bind(y, targets, n)
        except TypeError as error:
            raise TypeError(f"{name}: {error}; expected loss(outputs, targets, n) -> (value, gradient)") from None
        except ValueError:  # some that are written in C do not say
            pass
        found = self.loss(y, targets, n)
        value, dy = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        if np.ndim(value) or getattr(dy, "shape", None) != y.shape or dy.dtype != y.dtype:
            got = f"a gradient of {dy.dtype}, shape {dy.shape}" if hasattr(dy, "dtype") else f"{found!r:.100}"
            wanted = f"(value, gradient), the gradient as the outputs of {y.dtype}, shape {y.shape}"
            cast = ": dy.astype(y.dtype)" if getattr(dy, "shape", None) == y.shape else ""
            raise TypeError(f"{name}: returned {got}, expected {wanted}{cast}")
        for (array, copy), what in zip(before, ("outputs", "targets"), strict=True):
            if not same_bytes(array, copy):
                raise ValueError(f"{name}: writes into the {what}, which layers or data keep: use a new array, y - t")
            if share_memory(dy, array):
                raise ValueError(f"{name}: its gradient is in the memory of the {what}: return a new array, dy.copy()")
        half = self.loss(before[0][1].copy(), targets, 2 * n)
        rtol = np.finfo(y.dtype).eps ** 0.5
        if differ(half, (value / 2, dy / 2), rtol) and not differ(self.loss(before[0][1], targets, n), found, rtol):
            raise ValueError(
                f"{name}: with n = {n} its value is {float(value):.6g}, with n = {2 * n} {float(half[0]):.6g}, not "
                "half of it, and of the gradient: divide sums over the rows by n, the samples of the global batch, of "
                "which ranks and micro-batches are given some rows each; a mean over rows is (...).sum() / n"
            )
        return found


def checked(loss: Loss) -> Loss:
    """Return a loss that is checked at its first call; those of the library are as they should be."""
    if isinstance(loss, type) or not callable(loss):
        raise TypeError(f"the loss is {loss!r}, expected an instance, such as SoftmaxCrossEntropy()")
    ours = type(loss).__module__.partition(".")[0] == __name__.partition(".")[0]
    return loss if ours else CheckedLoss(loss)


def differ(found, wanted, rtol) -> bool:
    """Say whether two values and gradients differ by more than rounding; values that are not finite are skipped."""
    (value, dy), (expected, slope) = found, wanted
    with np.errstate(invalid="ignore"):
        apart = dy.size and bool((abs(dy - slope) > rtol * abs(slope).max()).any())
    return apart or abs(float(value - expected)) > rtol * abs(float(expected))
