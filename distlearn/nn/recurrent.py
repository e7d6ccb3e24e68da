"""Recurrent layers: the same weights at every step of a sequence.

Sequences are (batch, time, values). What does not depend on the step before, the product with the inputs, is one
large matrix product for all steps; only the product with the hidden state goes step by step. Layers are stacked by
`Sequential`.

Inside, time comes first: the rows of one step are contiguous, not a whole sequence apart, where they would compete
for the same few lines of the cache.
"""

from __future__ import annotations

import math

from ..backend import column_sums, get_xp, matmul
from . import init
from .layer import Layer, Param, check_dtype, check_positive, check_shape


class Recurrent(Layer):
    """Weights W (inputs), U (hidden state) and b of some gates, side by side."""

    gates = 1
    elementwise = 2  # operations per hidden value and step besides the products

    def __init__(self, d_in, d_hidden, rng=None, *, dtype="float32", input_gradient=True):
        check_positive(type(self).__name__, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_hidden, self.input_gradient = d_in, d_hidden, input_gradient
        width = self.gates * d_hidden
        both = init.normal((d_in + d_hidden, width), 1.0, rng, dtype)
        self.W = Param(both[:d_in] / math.sqrt(d_in), "W")
        self.U = Param(both[d_in:] / math.sqrt(d_hidden), "U")
        self.b = Param(init.zeros((width,), dtype), "b")
        self.params = [self.W, self.U, self.b]

    def _check(self, x):
        check_shape(self, x.shape, "batch", "time", self.d_in)
        check_dtype(self, x)

    def _from_inputs(self, x):
        """Return the input, time first, and its products with W for all steps: (time, batch, gates d_hidden)."""
        self._check(x)
        x = swap(x)
        y = matmul(x.reshape(-1, self.d_in), self.W.data)
        y += self.b.data
        return x, y.reshape(*x.shape[:2], y.shape[-1])

    def _add_gradients(self, x, h, dgates, dproducts):
        """Add the gradients of W, U and b; return that of x.

        Parameters
        ----------
        x : (time, batch, d_in) array
        h : (time, batch, d_hidden) array
            Hidden states; the one before the first is zero.
        dgates, dproducts : (time, batch, gates d_hidden) array
            Gradients before the gates' functions, and of the products h U.

        Returns
        -------
        dx : (batch, time, d_in) array
        """
        rows = dgates.reshape(-1, dgates.shape[-1])
        self.W.add_product(x.reshape(-1, self.d_in).T, rows)
        self.b.add(column_sums(rows))
        before, after = h[:-1].reshape(-1, self.d_hidden), dproducts[1:].reshape(-1, dproducts.shape[-1])
        self.U.add_product(before.T, after)
        return swap(matmul(rows, self.W.data.T).reshape(x.shape)) if self.input_gradient else None

    def output_shape(self, shape):
        check_shape(self, shape, "batch", "time", self.d_in)
        return (*shape[:2], self.d_hidden)

    def flops(self, shape):
        width = self.gates * self.d_hidden
        return math.prod(shape[:2]) * (2 * (self.d_in + self.d_hidden) * width + self.elementwise * self.d_hidden)

    def __repr__(self):
        return f"{type(self).__name__}({self.d_in}, {self.d_hidden})"


class RNN(Recurrent):
    r"""Vanilla recurrent layer: the new state is the tanh of a linear map of the input and the old state.

    .. math:: h_t = \tanh(x_t W + h_{t-1} U + b), \qquad h_0 = 0

    Backward is through time, from the last step to the first:

    .. math:: da_t = (dy_t + da_{t+1} U^\top) \odot (1 - h_t^2), \quad
              dW = \sum_t x_t^\top da_t, \quad dU = \sum_t h_{t-1}^\top da_t

    Parameters
    ----------
    d_in, d_hidden : int
    rng : numpy.random.Generator or int, optional
        Draws W from N(0, 1 / d_in) and U from N(0, 1 / d_hidden); an integer is a seed.
    dtype : dtype
    input_gradient : bool

    Notes
    -----
    Shapes: (batch, time, d_in) to (batch, time, d_hidden), the state after every step. Forward: 2 batch time (d_in +
    d_hidden) d_hidden flops, backward twice that. Saves x and h. The factors U that pile up over time make gradients
    vanish or explode: clip them.

    References
    ----------
    J. L. Elman (1990), Finding structure in time, Cognitive Science 14.
    P. J. Werbos (1990), Backpropagation through time: what it does and how to do it, Proceedings of the IEEE 78.
    """

    def forward(self, x):
        x, h = self._from_inputs(x)
        xp, U = get_xp(h), self.U.data
        for t, now in enumerate(h):
            if t:
                now += matmul(h[t - 1], U)
            xp.tanh(now, out=now)
        return swap(h), (x, h)

    def backward(self, dy, saved):
        x, h = saved
        da, back = swap(dy), self.U.data.T
        slope = h * h
        get_xp(h).subtract(1, slope, out=slope)
        for t in range(len(h) - 1, -1, -1):
            da[t] *= slope[t]
            if t:
                da[t - 1] += matmul(da[t], back)
        return self._add_gradients(x, h, da, da)


def swap(x):
    """Exchange batch and time, in memory too."""
    return get_xp(x).ascontiguousarray(x.swapaxes(0, 1))
