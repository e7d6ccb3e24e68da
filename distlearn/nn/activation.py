"""Activations: element by element, so a layer of them has no parameters."""

from __future__ import annotations

import math
from typing import Any

from ..backend import Array, get_xp, rounded, single
from .layer import Layer


class ReLU(Layer):
    r"""Let positive values pass, replace the others by zero.

    .. math:: y = \max(x, 0), \qquad dx = dy \cdot [y > 0]

    Shapes: any to the same. Saves `y`.

    References
    ----------
    V. Nair, G. E. Hinton (2010), Rectified linear units improve restricted Boltzmann machines, ICML.
    """

    costs = 1, 2

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp = get_xp(x)
        y = xp.maximum(x, xp.zeros(x.shape[1:], x.dtype))  # with the scalar 0 NumPy takes three times as long
        return y, y

    def backward(self, dy: Array, saved: Any) -> Array | None:
        dy *= saved > 0
        return dy


class Sigmoid(Layer):
    r"""Squash every value into (0, 1).

    .. math:: y = \frac{1}{1 + e^{-x}} = \tfrac12 \left(1 + \tanh \tfrac{x}{2}\right), \qquad dx = dy \cdot y (1 - y)

    The form with tanh cannot overflow. Shapes: any to the same. Saves `y`.
    """

    costs = 4, 2

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp = get_xp(x)
        y = xp.multiply(single(x), 0.5)
        xp.tanh(y, out=y)
        y *= 0.5
        y += 0.5
        y = rounded(y, x.dtype)
        return y, y

    def backward(self, dy: Array, saved: Any) -> Array | None:
        dtype, dy, y = dy.dtype, single(dy), single(saved)
        dy *= y
        dy *= 1 - y
        return rounded(dy, dtype)


class Tanh(Layer):
    r"""Squash every value into (-1, 1).

    .. math:: y = \tanh x, \qquad dx = dy \cdot (1 - y^2)

    Shapes: any to the same. Saves `y`.
    """

    costs = 1, 2

    def forward(self, x: Array) -> tuple[Array, Any]:
        y = get_xp(x).tanh(x)
        return y, y

    def backward(self, dy: Array, saved: Any) -> Array | None:
        slope = single(saved) * saved
        get_xp(dy).subtract(1, slope, out=slope)
        return get_xp(dy).multiply(dy, rounded(slope, dy.dtype), out=dy)


class GELU(Layer):
    r"""Scale each value by the normal CDF at it: a smooth ReLU.

    .. math:: y = \frac{x}{2} (1 + t), \quad t = \tanh u, \quad u = \sqrt{2 / \pi}\, (x + 0.044715\, x^3)

    .. math:: dx = dy \left( \frac{1 + t}{2} + \frac{x}{2} (1 - t^2)\, u' \right),
              \quad u' = \sqrt{2 / \pi}\, (1 + 0.134145\, x^2)

    The form with tanh, which GPT-2 uses; PyTorch's `GELU(approximate="tanh")`. Shapes: any to the same. Saves x and t.

    References
    ----------
    D. Hendrycks, K. Gimpel (2016), Gaussian error linear units, arXiv:1606.08415, section 2.
    """

    costs = 9, 11

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp, wide = get_xp(x), single(x)
        t = wide * wide
        t *= 0.044715 * _ROOT
        t += _ROOT
        t *= wide
        xp.tanh(t, out=t)
        y = t + 1
        y *= 0.5
        y *= wide
        return rounded(y, x.dtype), (x, rounded(t, x.dtype))

    def backward(self, dy: Array, saved: Any) -> Array | None:
        x, t = map(single, saved)
        slope = x * x
        slope *= 3 * 0.044715 * _ROOT
        slope += _ROOT
        slope *= 1 - t * t  # before x: x cubed may be infinite, and times 0 NaN
        slope *= x
        slope += t
        slope += 1
        slope *= 0.5
        return get_xp(dy).multiply(dy, rounded(slope, dy.dtype), out=dy)


_ROOT = math.sqrt(2 / math.pi)


class Softmax(Layer):
    r"""Turn the scores of the last axis into probabilities.

    .. math:: y_j = \frac{e^{x_j}}{\sum_k e^{x_k}}, \qquad dx = y \odot \bigl(dy - \textstyle\sum_k dy_k y_k\bigr)

    The largest score is subtracted first, so that no exponential overflows. For training a classifier use
    `SoftmaxCrossEntropy` on the scores instead: it is cheaper and more accurate than the two apart.

    Shapes: (..., classes) to the same. About 5 flops an element. Saves `y`.

    References
    ----------
    J. S. Bridle (1990), Probabilistic interpretation of feedforward classification network outputs, Neurocomputing 68.
    """

    costs = 5, 4

    def forward(self, x: Array) -> tuple[Array, Any]:
        y = single(x) - x.max(axis=-1, keepdims=True)
        get_xp(x).exp(y, out=y)
        y /= y.sum(axis=-1, keepdims=True)
        y = rounded(y, x.dtype)
        return y, y

    def backward(self, dy: Array, saved: Any) -> Array | None:
        dtype, dy = dy.dtype, single(dy)
        dy -= (dy * saved).sum(axis=-1, keepdims=True)
        dy *= saved
        return rounded(dy, dtype)


ACTIVATIONS = {"relu": ReLU, "sigmoid": Sigmoid, "tanh": Tanh, "gelu": GELU}  # Activations by name.
