"""Recurrent layers: the same weights at every step of a sequence.

Sequences are (batch, time, values). What does not depend on the step before, the product with the inputs, is one
large matrix product for all steps; only the product with the hidden state goes step by step. Layers are stacked by
`Sequential`.
"""

from __future__ import annotations

import math

from ..backend import get_xp
from . import init, ops
from .base import Layer, Param, check_dtype, check_positive, check_shape


class _Recurrent(Layer):
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

    def _from_inputs(self, x):
        """Part of all gates that comes from the inputs, for all steps at once: (batch, time, gates d_hidden)."""
        check_shape(self, x.shape, "batch", "time", self.d_in)
        check_dtype(self, x)
        y = ops.matmul(x.reshape(-1, self.d_in), self.W.data)
        y += self.b.data
        return y.reshape(*x.shape[:2], -1)

    def _add_gradients(self, x, h, dgates, dproducts):
        """Add the gradients of W, U and b; return that of x.

        Parameters
        ----------
        x : (batch, time, d_in) array
        h : (batch, time, d_hidden) array
            Hidden states; the one before the first is zero.
        dgates, dproducts : (batch, time, gates d_hidden) array
            Gradients before the gates' functions, and of the products h U.
        """
        rows = dgates.reshape(-1, dgates.shape[-1])
        ops.add_matmul(x.reshape(-1, self.d_in).T, rows, self.W.grad)
        self.b.grad += ops.column_sums(rows)
        before, after = h[:, :-1].reshape(-1, self.d_hidden), dproducts[:, 1:].reshape(-1, dproducts.shape[-1])
        ops.add_matmul(before.T, after, self.U.grad)
        return ops.matmul(rows, self.W.data.T).reshape(x.shape) if self.input_gradient else None

    def output_shape(self, shape):
        check_shape(self, shape, "batch", "time", self.d_in)
        return (*shape[:2], self.d_hidden)

    def flops(self, shape):
        width = self.gates * self.d_hidden
        return math.prod(shape[:2]) * (2 * (self.d_in + self.d_hidden) * width + self.elementwise * self.d_hidden)

    def __repr__(self):
        return f"{type(self).__name__}({self.d_in}, {self.d_hidden})"


class RNN(_Recurrent):
    r"""Vanilla recurrent layer: the new state is a squashed mix of the input and the old state.

    .. math:: h_t = \tanh(x_t W + h_{t-1} U + b), \qquad h_0 = 0

    Backward goes through time, from the last step to the first:

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
        h = self._from_inputs(x)
        xp, U = get_xp(h), self.U.data
        for t in range(h.shape[1]):
            if t:
                h[:, t] += ops.matmul(h[:, t - 1], U)
            xp.tanh(h[:, t], out=h[:, t])
        return h, (x, h)

    def backward(self, dy, saved):
        x, h = saved
        back = self.U.data.T
        slope = h * h
        get_xp(h).subtract(1, slope, out=slope)
        for t in range(h.shape[1] - 1, -1, -1):
            dy[:, t] *= slope[:, t]
            if t:
                dy[:, t - 1] += ops.matmul(dy[:, t], back)
        return self._add_gradients(x, h, dy, dy)


class GRU(_Recurrent):
    r"""Gated recurrent unit: two gates decide how much of the old state is kept.

    .. math::
        r_t &= \sigma(x_t W_r + h_{t-1} U_r + b_r) \qquad z_t = \sigma(x_t W_z + h_{t-1} U_z + b_z) \\
        n_t &= \tanh(x_t W_n + b_n + r_t \odot (h_{t-1} U_n + c)) \\
        h_t &= (1 - z_t) \odot n_t + z_t \odot h_{t-1}, \qquad h_0 = 0

    The reset gate r acts after the product with U, as in cuDNN, so that one matrix product serves all three gates.

    Parameters
    ----------
    d_in, d_hidden : int
    rng : numpy.random.Generator or int, optional
        Draws W from N(0, 1 / d_in) and U from N(0, 1 / d_hidden); an integer is a seed.
    dtype : dtype
    input_gradient : bool

    Notes
    -----
    Shapes: (batch, time, d_in) to (batch, time, d_hidden), the state after every step. W is (d_in, 3 d_hidden), U
    (d_hidden, 3 d_hidden), b (3 d_hidden), in the order r, z, n; c is (d_hidden). Forward: 6 batch time (d_in +
    d_hidden) d_hidden flops, backward twice that. Saves x, the gates, h, and h U_n.

    References
    ----------
    K. Cho et al. (2014), Learning phrase representations using RNN encoder-decoder for statistical machine
    translation, EMNLP.
    """

    gates = 3
    elementwise = 16

    def __init__(self, d_in, d_hidden, rng=None, *, dtype="float32", input_gradient=True):
        super().__init__(d_in, d_hidden, rng, dtype=dtype, input_gradient=input_gradient)
        self.c = Param(init.zeros((d_hidden,), dtype), "c")
        self.params.append(self.c)

    def forward(self, x):
        gates = self._from_inputs(x)
        xp, n = get_xp(x), self.d_hidden
        rz, new = gates[..., : 2 * n], gates[..., 2 * n :]
        h, candidates = (xp.empty((*x.shape[:2], n), gates.dtype) for _ in range(2))
        U, c = self.U.data, self.c.data
        state = xp.zeros((len(x), n), gates.dtype)
        for t in range(x.shape[1]):
            from_state = ops.matmul(state, U)
            gate = rz[:, t]
            gate += from_state[:, : 2 * n]
            _sigmoid(gate, xp)
            candidate = xp.add(from_state[:, 2 * n :], c, out=candidates[:, t])
            proposed = new[:, t]
            proposed += gate[:, :n] * candidate
            xp.tanh(proposed, out=proposed)
            kept = state - proposed
            kept *= gate[:, n:]
            state = xp.add(proposed, kept, out=h[:, t])
        return h, (x, gates, h, candidates)

    def backward(self, dy, saved):
        x, gates, h, candidates = saved
        xp, n = get_xp(dy), self.d_hidden
        r, z = gates[..., :n], gates[..., n : 2 * n]
        to_new, to_update, to_reset = self._slopes(gates, h, candidates, xp)
        # d(h U_n), dr, dz, dn side by side: the first three are the gradient of h U, the last three that of x W + b
        grads = xp.empty((*x.shape[:2], 4 * n), dy.dtype)
        U = self.U.data
        back = xp.ascontiguousarray(xp.concatenate([U[:, 2 * n :], U[:, : 2 * n]], axis=1).T)
        for t in range(x.shape[1] - 1, -1, -1):
            dh, step = dy[:, t], grads[:, t]
            dn = xp.multiply(dh, to_new[:, t], out=step[:, 3 * n :])
            xp.multiply(dh, to_update[:, t], out=step[:, 2 * n : 3 * n])
            xp.multiply(dn, to_reset[:, t], out=step[:, n : 2 * n])
            xp.multiply(dn, r[:, t], out=step[:, :n])
            if t:
                before = dy[:, t - 1]
                before += ops.matmul(step[:, : 3 * n], back)
                dh *= z[:, t]
                before += dh
        self.c.grad += grads[..., :n].sum(axis=(0, 1))
        dproducts = xp.concatenate([grads[..., n : 3 * n], grads[..., :n]], axis=-1)
        return self._add_gradients(x, h, grads[..., n:], dproducts)

    @staticmethod
    def _slopes(gates, h, candidates, xp):
        """Derivatives that do not depend on what comes from later steps, for all steps at once."""
        n = h.shape[-1]
        r, z, new = gates[..., :n], gates[..., n : 2 * n], gates[..., 2 * n :]
        keep = 1 - z
        to_update = -new
        to_update[:, 1:] += h[:, :-1]
        to_update *= z
        to_update *= keep
        to_new = new * new
        xp.subtract(1, to_new, out=to_new)
        to_new *= keep
        to_reset = 1 - r
        to_reset *= r
        to_reset *= candidates
        return to_new, to_update, to_reset


def _sigmoid(x, xp):
    """Squash into (0, 1), in place; by tanh, which cannot overflow."""
    x *= 0.5
    xp.tanh(x, out=x)
    x *= 0.5
    x += 0.5
