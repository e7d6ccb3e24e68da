"""Activations: element by element, so a layer of them has no parameters."""

from __future__ import annotations

import math

from ..backend import get_xp
from .base import Layer


class _Elementwise(Layer):
    cost = 1  # operations per element of the forward pass

    def flops(self, shape):
        return self.cost * math.prod(shape)

    def backward_flops(self, shape):
        return 2 * math.prod(shape)


class ReLU(_Elementwise):
    r"""Let positive values pass, replace the others by zero.

    .. math:: y = \max(x, 0), \qquad dx = dy \cdot [y > 0]

    Shapes: any to the same. Saves `y`.

    References
    ----------
    V. Nair, G. E. Hinton (2010), Rectified linear units improve restricted Boltzmann machines, ICML.
    """

    def forward(self, x):
        y = get_xp(x).maximum(x, 0)
        return y, y

    def backward(self, dy, saved):
        xp = get_xp(dy)
        return xp.multiply(dy, xp.sign(saved), out=dy)  # y >= 0, so its sign is the mask, without a boolean detour


class Sigmoid(_Elementwise):
    r"""Squash every value into (0, 1).

    .. math:: y = \frac{1}{1 + e^{-x}} = \tfrac12 \left(1 + \tanh \tfrac{x}{2}\right), \qquad dx = dy \cdot y (1 - y)

    The form with tanh cannot overflow. Shapes: any to the same. Saves `y`.
    """

    cost = 4

    def forward(self, x):
        xp = get_xp(x)
        y = xp.multiply(x, 0.5)
        xp.tanh(y, out=y)
        y *= 0.5
        y += 0.5
        return y, y

    def backward(self, dy, saved):
        dy *= saved
        dy *= 1 - saved
        return dy


class Tanh(_Elementwise):
    r"""Squash every value into (-1, 1).

    .. math:: y = \tanh x, \qquad dx = dy \cdot (1 - y^2)

    Shapes: any to the same. Saves `y`.
    """

    def forward(self, x):
        y = get_xp(x).tanh(x)
        return y, y

    def backward(self, dy, saved):
        slope = saved * saved
        get_xp(dy).subtract(1, slope, out=slope)
        return get_xp(dy).multiply(dy, slope, out=dy)


ACTIVATIONS = {"relu": ReLU, "sigmoid": Sigmoid, "tanh": Tanh}
"""Activations by name."""
