"""The dense layer."""

from __future__ import annotations

import math

from ..backend import get_xp
from . import init
from .base import Layer, Param, check_input


class Linear(Layer):
    r"""Dense (fully connected) layer.

    .. math:: Y = X W + b, \qquad dW = X^\top dY, \quad db = \sum_i dY_i, \quad dX = dY W^\top

    Parameters
    ----------
    d_in, d_out : int
        Number of inputs and outputs.
    rng : numpy.random.Generator or int, optional
        Draws the weights; an integer is a seed. Give every layer its own, so that splitting a model changes no weight.
    dtype : dtype
    gain : float
        Weights are drawn from N(0, gain^2 / d_in): sqrt(2) suits ReLU (He), 1 suits sigmoid and tanh (LeCun).
    input_gradient : bool
        False for a model's first layer: nobody needs the gradient of the data, and a third of the work is saved.

    Notes
    -----
    Shapes: (batch, d_in) to (batch, d_out). Forward: 2 batch d_in d_out flops; backward twice that (once, without the
    input's gradient). Saves `x`.

    References
    ----------
    K. He, X. Zhang, S. Ren, J. Sun (2015), Delving deep into rectifiers, ICCV, section 2.2, for the initial weights.
    """

    def __init__(self, d_in, d_out, rng=None, *, dtype="float32", gain=2**0.5, input_gradient=True):
        for name, value in (("d_in", d_in), ("d_out", d_out)):
            if not value >= 1:
                raise ValueError(f"Linear: {name} is {value!r}, expected 1 or more")
        self.d_in, self.d_out, self.input_gradient = d_in, d_out, input_gradient
        self.W = Param(init.normal((d_in, d_out), gain / math.sqrt(d_in), rng, dtype), "W")
        self.b = Param(init.zeros((d_out,), dtype), "b")
        self.params = [self.W, self.b]

    def forward(self, x):
        check_input(self, x, last=self.d_in)
        y = x @ self.W.data
        y += self.b.data
        return y, x

    def backward(self, dy, saved):
        x = saved
        add_matmul(x.T, dy, self.W.grad)
        self.b.grad += dy.sum(axis=0)
        return dy @ self.W.data.T if self.input_gradient else None

    def output_shape(self, shape):
        if len(shape) != 2 or shape[1] != self.d_in:
            raise ValueError(f"{self!r}: expected an input of shape (batch, {self.d_in}), got {tuple(shape)}")
        return (shape[0], self.d_out)

    def flops(self, shape):
        return 2 * shape[0] * self.d_in * self.d_out

    def backward_flops(self, shape):
        return self.flops(shape) * (2 if self.input_gradient else 1)

    def __repr__(self):
        return f"Linear({self.d_in}, {self.d_out})"


def add_matmul(a, b, out):
    """Add the matrix product `a @ b` to `out`, in place."""
    xp = get_xp(out)
    product = xp.matmul(a, b)
    xp.add(out, product, out=out)
