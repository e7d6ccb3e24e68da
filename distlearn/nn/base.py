"""What a layer is: parameters, a forward and a backward pass, and nothing kept in between."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ..backend import get_xp


@dataclass(eq=False)
class Param:
    """A learned array and its gradient.

    Parameters
    ----------
    data : array
    name : str
        Unique within a model after `Sequential` has put the layer's name in front ("1.W").
    frozen : bool
        A frozen parameter takes part in forward and backward, but no optimizer changes it.

    Attributes
    ----------
    grad : array
        Same shape and dtype as `data`; layers add into it, so it is cleared before every step.
        A strategy may replace it by a view into a flat bucket.
    """

    data: np.ndarray
    name: str = ""
    frozen: bool = False
    grad: np.ndarray = field(default=None, repr=False)

    def __post_init__(self):
        if self.grad is None:
            self.grad = get_xp(self.data).zeros_like(self.data)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.data.size

    @property
    def nbytes(self) -> int:
        """Bytes of the data (the gradient takes as many again)."""
        return self.data.nbytes


class Layer:
    """Base of all layers; subclasses give `forward` and `backward`.

    A layer keeps no state of a pass on itself: `forward` returns what `backward` will need, so that several
    micro-batches can be in flight, activation memory is `nbytes(saved)`, and recomputation is dropping `saved`.

    Attributes
    ----------
    params : list of Param
        In construction order: the same on every rank.
    name : str
        Shown in traces, tables and parameter names.
    """

    params: list[Param] = []  # noqa: RUF012  (a layer with parameters sets its own list)
    name: str = ""

    def forward(self, x):
        """Return the layer's output and what `backward` needs.

        Parameters
        ----------
        x : (batch, ...) array

        Returns
        -------
        y : (batch, ...) array
        saved : object
            Hand it to `backward` unchanged.
        """
        raise NotImplementedError

    def backward(self, dy, saved):
        """Add this batch's gradients into `p.grad` of every parameter and return the gradient of the input.

        Parameters
        ----------
        dy : array, shape of the output
            Gradient of the loss with respect to the output. The layer may overwrite it.
        saved : object
            What `forward` returned.

        Returns
        -------
        dx : array, shape of the input
        """
        raise NotImplementedError

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the output for an input of `shape` (batch included); raises if the input does not fit."""
        return shape

    def flops(self, shape: tuple[int, ...]) -> int:
        """Floating-point operations of `forward` on an input of `shape` (a multiply-add counts as two)."""
        return 0

    def backward_flops(self, shape: tuple[int, ...]) -> int:
        """Floating-point operations of `backward` for an input of `shape`."""
        return 2 * self.flops(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def check_input(layer: Layer, x, *, last: int) -> None:
    """Raise unless `x` is (batch, last)."""
    if x.ndim != 2 or x.shape[1] != last:
        who = f"{layer!r}" + (f" (layer {layer.name})" if layer.name else "")
        raise ValueError(f"{who}: expected an input of shape (batch, {last}), got {tuple(x.shape)}")


def nbytes(saved) -> int:
    """Bytes of all arrays in what `forward` saved, each array counted once."""
    seen: dict[int, int] = {}

    def visit(x):
        if hasattr(x, "nbytes"):
            seen[id(x)] = x.nbytes
        elif isinstance(x, dict):
            for v in x.values():
                visit(v)
        elif isinstance(x, (list, tuple)):
            for v in x:
                visit(v)

    visit(saved)
    return sum(seen.values())


def parameter_count(model: Layer) -> int:
    """Number of learned values."""
    return sum(math.prod(p.data.shape) for p in model.params)
