"""Layers that only change the shape."""

from __future__ import annotations

import math
from typing import Any

from ..backend import Array
from .layer import Layer


class _View(Layer):
    """Gives its input the shape that `output_shape` says."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x.reshape(self.output_shape(x.shape)), x.shape

    def backward(self, dy: Array, saved: Any) -> Array | None:
        return dy.reshape(saved)


class Flatten(_View):
    """Flatten every sample to one row, in order of rows, columns, channels.

    Shapes: (batch, ...) to (batch, product of the rest). No flops; saves nothing but the shape.
    """

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0], math.prod(shape[1:]))


class Identity(Layer):
    """Return the input unchanged: the empty branch of a `Parallel`, and `Dropout` in prediction."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        return x, None

    def backward(self, dy: Array, saved: Any) -> Array | None:
        return dy


class Reshape(_View):
    """Give every sample another shape: (batch, ...) to ``(batch, *shape)``.

    Parameters
    ----------
    *shape : int
        Such as 28, 28, 1 for images that the data set gives as rows of 784 values.
    """

    def __init__(self, *shape: int | tuple[int, ...]):
        self.shape = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if math.prod(shape[1:]) != math.prod(self.shape):
            raise ValueError(f"{self!r}: cannot reshape {math.prod(shape[1:])} values a sample to {self.shape}")
        return (shape[0], *self.shape)

    def __repr__(self):
        return f"Reshape{self.shape}"
