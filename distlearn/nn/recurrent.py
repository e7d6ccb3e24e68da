"""Recurrent layers: the same weights at every step of a sequence.

Sequences are (batch, time, values). The product with the inputs does not depend on the step before; it is one
large matrix product for all steps; only the product with the hidden state goes step by step. Layers are stacked by
`Sequential`.

Inside, time comes first: the rows of one step are contiguous, not a whole sequence apart, where they would compete
for the same few lines of the cache. Gates are a stack, (gate, time, batch, values), so that what happens to a gate at
one step happens to one contiguous block.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array, can_launch, column_sums, get_xp, matmul
from ..bounds import check_positive
from . import init
from .layer import Layer, Param, check_input, check_shape

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Recurrent(Layer):
    """Weights W (inputs), U (hidden state) and b of some gates, side by side."""

    gates = 1
    elementwise = 2  # operations per hidden value and step besides the products

    def __init__(
        self, d_in: int, d_hidden: int, rng: np.random.Generator | int | None = None, *, dtype: DTypeLike = "float32"
    ):
        check_positive(type(self).__name__, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_hidden = d_in, d_hidden
        width = self.gates * d_hidden
        both = init.normal((d_in + d_hidden, width), 1.0, rng, dtype)
        self.W = Param(both[:d_in] / math.sqrt(d_in), "W")
        self.U = Param(both[d_in:] / math.sqrt(d_hidden), "U")
        self.b = Param(init.zeros((width,), dtype), "b")
        self.params = [self.W, self.U, self.b]

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        check_shape(self, shape, "batch", "time", self.d_in)
        return (*shape[:2], self.d_hidden)

    def flops(self, shape: tuple[int, ...]) -> int:
        width = self.gates * self.d_hidden
        return math.prod(shape[:2]) * (2 * (self.d_in + self.d_hidden) * width + self.elementwise * self.d_hidden)


class RNN(Recurrent):
    r"""Vanilla recurrent layer: the new state is the tanh of a linear map of the input and the old state.

    .. math:: h_t = \tanh(x_t W + h_{t-1} U + b), \qquad h_0 = 0

    Backward is through time, from the last step to the first:

    .. math:: da_t = (dy_t + da_{t+1} U^\top) \odot (1 - h_t^2), \quad
              dW = \sum_t x_t^\top da_t, \quad dU = \sum_t h_{t-1}^\top da_t

    Parameters
    ----------
    rng : numpy.random.Generator or int, optional
        Draws W from N(0, 1 / d_in) and U from N(0, 1 / d_hidden); an integer is a seed.

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

    def forward(self, x: Array) -> tuple[Array, Any]:
        check_input(self, x)
        x, xp, U = swap(x), get_xp(x), self.U.data
        h = matmul(x.reshape(-1, self.d_in), self.W.data)
        h += self.b.data
        h = h.reshape(*x.shape[:2], self.d_hidden)
        for t, now in enumerate(h):
            if t:
                now += matmul(h[t - 1], U)
            xp.tanh(now, out=now)
        return swap(h), (x, h)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        x, h = saved
        da, back = swap(dy), self.U.data.T
        slope = h * h
        get_xp(h).subtract(1, slope, out=slope)
        for t in range(len(h) - 1, -1, -1):
            da[t] *= slope[t]
            if t:
                da[t - 1] += matmul(da[t], back)
        rows = da.reshape(-1, self.d_hidden)
        self.W.add_product(x.reshape(-1, self.d_in).T, rows)
        self.b.add(column_sums(rows))
        self.U.add_product(h[:-1].reshape(-1, self.d_hidden).T, da[1:].reshape(-1, self.d_hidden))
        return swap(matmul(rows, self.W.data.T).reshape(x.shape))


def swap(x):
    """Exchange batch and time, in memory too."""
    return get_xp(x).ascontiguousarray(x.swapaxes(0, 1))


class GRU(Recurrent):
    r"""Gated recurrent unit: two gates decide how much of the old state is kept.

    .. math::
        r_t &= \sigma(x_t W_r + h_{t-1} U_r + b_r) \qquad z_t = \sigma(x_t W_z + h_{t-1} U_z + b_z) \\
        n_t &= \tanh(x_t W_n + b_n + r_t \odot (h_{t-1} U_n + c)) \\
        h_t &= (1 - z_t) \odot n_t + z_t \odot h_{t-1}, \qquad h_0 = 0

    The reset gate r acts after the product with U, as in cuDNN, so that one matrix product serves all three gates.

    Parameters
    ----------
    rng : numpy.random.Generator or int, optional
        Draws W from N(0, 1 / d_in) and U from N(0, 1 / d_hidden); an integer is a seed.

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

    def __init__(
        self, d_in: int, d_hidden: int, rng: np.random.Generator | int | None = None, *, dtype: DTypeLike = "float32"
    ):
        super().__init__(d_in, d_hidden, rng, dtype=dtype)
        self.c = Param(init.zeros((d_hidden,), dtype), "c")
        self.params.append(self.c)

    def forward(self, x: Array) -> tuple[Array, Any]:
        return self.forward_from(x, None)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        return self.backward_from(dy, saved, None)[0]

    def forward_from(self, x: Array, state: Any) -> Any:
        """Run forward over a block of steps from a given initial state."""
        # x: (batch, time, d_in) array
        # state: After the step before the block; None is zero.
        # y: Its last step is the state from which the next block begins.
        check_input(self, x)
        x, n = swap(x), self.d_hidden
        xp, c = get_xp(x), self.c.data
        launch = x.size and can_launch(self.U.data, *(() if state is None else (state,)))
        U, W, b = (_stack(a, 3) for a in (self.U.data, self.W.data, self.b.data[None]))
        for stack in () if launch else (U, W, b):
            stack[:2] *= 0.5
        gates = matmul(x.reshape(-1, self.d_in), W)
        gates += b
        gates = gates.reshape(3, *x.shape[:2], n)
        h, candidates = xp.empty_like(gates[0]), xp.empty_like(gates[0])
        first = state
        state = xp.zeros(h.shape[1:], h.dtype) if first is None else first
        if launch:
            from ..cuda.kernels.recurrent import STEP
        for t in range(len(x)):
            from_state = matmul(state, U)
            if launch:
                STEP(from_state, c, state, gates, candidates, h, t)
                state = h[t]
                continue
            rz, new = gates[:2, t], gates[2, t]
            rz += from_state[:2]
            xp.tanh(rz, out=rz)  # the sigmoid: (1 + tanh(a / 2)) / 2; weights and biases are halved for it
            rz *= 0.5
            rz += 0.5
            candidate = xp.add(from_state[2], c, out=candidates[t])
            new += rz[0] * candidate
            xp.tanh(new, out=new)
            state = xp.subtract(state, new, out=h[t])
            state *= rz[1]
            state += new
        return swap(h), (x, gates, h, candidates, first)

    def backward_from(self, dy: Array, saved: Any, dlast: Array | None) -> Any:
        """Run backward over a block of steps."""
        # dy: (batch, time, d_hidden) array
        # saved: What `forward_from` returned.
        # dlast: Gradient of the last state, from the next block; None is zero.
        # dx: (batch, time, d_in) array or None
        # dstate: Gradient of the state before the block; None where that was zero.
        x, gates, h, candidates, first = saved
        xp, dy = get_xp(dy), swap(dy)
        if dlast is not None:
            dy[-1] += dlast
        _, z, _ = gates
        dstate = None if first is None else xp.zeros_like(first)
        grads = xp.empty((4, *h.shape), dy.dtype)  # of h U_n + c, then before r, z and n
        into = self.U.data.reshape(-1, 3, self.d_hidden).T.swapaxes(0, 1)  # by gate
        back = xp.empty(into.shape, dy.dtype)
        back[0], back[1:] = into[2], into[:2]
        if launch := h.size and can_launch(gates, dy):
            from ..cuda.kernels.recurrent import STEP_BACK

            parts = xp.empty((3, *h.shape[1:]), dy.dtype)
        else:
            slopes = self._slopes(gates, h, candidates, first, xp)
        for t in range(len(x) - 1, -1, -1):
            if launch:
                STEP_BACK(parts, gates, candidates, h, first, dy, grads, t)
                if t or first is not None:
                    parts = matmul(grads[:3, t], back)
                if not t and first is not None:
                    dstate += parts.sum(axis=0) + dy[0] * z[0]
                continue
            dh = dy[t]
            _, dr, dz, dn = grads[:, t]
            xp.multiply(dh, slopes[2, t], out=dn)
            xp.multiply(dh, slopes[1, t], out=dz)
            xp.multiply(dn, slopes[0, t], out=dr)
            xp.multiply(dn, gates[0, t], out=grads[0, t])
            if t or first is not None:
                before = dy[t - 1] if t else dstate
                for part in matmul(grads[:3, t], back):
                    before += part
                dh *= z[t]
                before += dh
        self._add_all(x, h, first, grads)
        rows, W, dx = grads[1:].reshape(3, -1, self.d_hidden), _stack(self.W.data, 3), 0
        if launch:
            dx = matmul(rows, W.swapaxes(1, 2)).sum(axis=0)
        else:
            for gradient, part in zip(rows, W, strict=True):
                dx = dx + matmul(gradient, part.T)
        return swap(dx.reshape(x.shape)), dstate

    def _add_all(self, x, h, first, grads):
        n, xp = self.d_hidden, get_xp(h)
        rows = grads.reshape(4, -1, n)
        dW = matmul(x.reshape(-1, self.d_in).T, rows[1:])
        self.W.add(dW.swapaxes(0, 1).reshape(self.d_in, -1))
        before, after = h[:-1].reshape(-1, n).T, grads[:3, 1:].reshape(3, -1, n)
        dU = matmul(before, after)
        new, r, z = dU if first is None else dU + matmul(first.T, grads[:3, 0])
        self.U.add(xp.concatenate([r, z, new], axis=1))
        sums = rows.sum(axis=1) if can_launch(rows) else [column_sums(part) for part in rows]
        self.c.add(sums[0])
        self.b.add(xp.concatenate(list(sums[1:])))

    @staticmethod
    def _slopes(gates, h, candidates, first, xp):
        """Compute the derivatives that do not depend on later steps, for all steps at once."""
        (r, z, new), slopes = gates, xp.empty_like(gates)
        to_reset, to_update, to_new = slopes
        keep = 1 - z
        xp.subtract(1, r, out=to_reset)
        to_reset *= r
        to_reset *= candidates
        xp.negative(new, out=to_update)
        to_update[1:] += h[:-1]
        if first is not None:
            to_update[0] += first
        to_update *= z
        to_update *= keep
        xp.multiply(new, new, out=to_new)
        xp.subtract(1, to_new, out=to_new)
        to_new *= keep
        return slopes


def _stack(matrix, gates):
    """Copy adjacent gates, (rows, gates n), to a stack: (gates, rows, n)."""
    rows = matrix.shape[0]
    return matrix.reshape(rows, gates, -1).transpose(1, 0, 2).copy(order="C")
