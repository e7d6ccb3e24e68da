"""Local response normalisation: AlexNet's normalisation, before batch normalisation.

The sum over neighbouring channels is a sum of shifted copies. A row of channels is short, and NumPy pays for every row;
so rows are laid one behind the other with zeros between them, and shifted as a whole. Some rows at a time, so that all
of it stays in the cache.
"""

from __future__ import annotations

import math

from ..backend import get_xp, rounded, single
from . import ops
from .layer import Layer

ALIVE = 8
"""Arrays in use at a time, approximately."""


class LocalResponseNorm(Layer):
    r"""Damp every value by its neighbours in other channels at the same pixel.

    .. math:: y_c = x_c \, s_c^{-\beta}, \qquad s_c = k + \alpha \sum_{|c' - c| \le \lfloor n/2 \rfloor} x_{c'}^2

    .. math:: dx_c = dy_c \, s_c^{-\beta} - 2 \alpha \beta \, x_c \sum_{|c' - c| \le \lfloor n/2 \rfloor}
              dy_{c'} \, x_{c'} \, s_{c'}^{-\beta - 1}

    Parameters
    ----------
    n : int
        Odd width of the neighbourhood, in channels.
    k, alpha, beta : float
        The paper's constants. Other libraries often divide alpha by n: give them alpha n.

    Notes
    -----
    Shapes: (..., channels) to the same. About n + 12 flops an element. Saves x and s.

    References
    ----------
    A. Krizhevsky, I. Sutskever, G. E. Hinton (2012), ImageNet classification with deep convolutional neural networks,
    NIPS, section 3.3.
    """

    def __init__(self, n=5, *, k=2.0, alpha=1e-4, beta=0.75):
        if n < 1 or n % 2 == 0:
            raise ValueError(f"LocalResponseNorm: n is {n!r}, expected an odd number of channels")
        self.n, self.k, self.alpha, self.beta = n, k, alpha, beta

    def forward(self, x):
        xp, rows = get_xp(x), _rows(single(x))
        y, s = xp.empty_like(rows), xp.empty_like(rows)
        for part, squares, frame in self._parts(rows):
            xp.multiply(rows[part], rows[part], out=squares)
            xp.multiply(self._sums(frame, squares), self.alpha, out=s[part])
            s[part] += self.k
            xp.multiply(rows[part], self._damping(s[part]), out=y[part])
        return rounded(y, x.dtype).reshape(x.shape), (x, rounded(s, x.dtype))

    def backward(self, dy, saved):
        x, s = saved
        xp, rows, s, dx = get_xp(x), _rows(single(x)), single(s), _rows(single(dy))
        for part, products, frame in self._parts(rows):
            dx[part] *= self._damping(s[part])
            around = dx[part] * rows[part]
            xp.divide(around, s[part], out=products)
            xp.multiply(self._sums(frame, products), rows[part], out=around)
            around *= 2 * self.alpha * self.beta
            dx[part] -= around
        return rounded(dx, dy.dtype).reshape(dy.shape)

    def _parts(self, rows):
        """Yield (part, inner, frame): some rows, room for as many, and that with zeros for neighbours on both sides."""
        (n, c), half = rows.shape, self.n // 2
        parts = ops.batches(n, ALIVE * rows[:1].nbytes, get_xp(rows))
        frame = get_xp(rows).zeros((1 + max((p.stop - p.start for p in parts), default=0), c + 2 * half), rows.dtype)
        for part in parts:
            size = part.stop - part.start
            yield part, frame[:size, half : half + c], frame[: size + 1]

    def _sums(self, frame, inner):
        """Sum over the n channels around every channel of `inner`, which lies in the middle of `frame`."""
        flat, size = frame.reshape(-1), len(inner) * frame.shape[1]
        sums = flat[:size].copy()
        for shift in range(1, self.n):
            sums += flat[shift : shift + size]
        return sums.reshape(len(inner), -1)[:, : inner.shape[1]]

    def _damping(self, s):
        """Raise s to the power of -beta; for the paper's beta by roots, which take half as long."""
        if self.beta != 0.75:
            return s**-self.beta
        xp = get_xp(s)
        damping = xp.sqrt(s)
        damping *= xp.sqrt(damping)
        return xp.divide(1, damping, out=damping)

    def flops(self, shape):
        return (self.n + 12) * math.prod(shape)

    def backward_flops(self, shape):
        return (self.n + 20) * math.prod(shape)

    def __repr__(self):
        return f"LocalResponseNorm({self.n})"


def _rows(x):
    """All channels of a pixel in one row."""
    return get_xp(x).ascontiguousarray(x).reshape(-1, x.shape[-1])
