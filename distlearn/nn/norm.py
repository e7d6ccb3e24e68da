"""Normalisation: keep the values between layers at a scale that trains well."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array, column_sums, get_xp, rounded, single
from ..bounds import check_number, check_positive
from . import ops
from .layer import Layer, Param, Statistic, check_input, check_shape

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class _Scaled(Layer):
    """A normalisation with a learned scale per channel, and mostly a shift."""

    costs = 8, 11
    shift = True

    def __init__(self, channels: int, *, eps: float = 1e-5, dtype: DTypeLike = "float32"):
        check_positive(type(self).__name__, channels=channels)
        check_number(type(self).__name__, above=0, below=math.inf, eps=eps)  # with 0 equal values become 0 / 0
        self.channels, self.eps = channels, eps
        self.gamma = Param(np.ones(channels, dtype), "gamma")
        self.params = [self.gamma]
        if self.shift:
            self.beta = Param(np.zeros(channels, dtype), "beta")
            self.params.append(self.beta)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        check_shape(self, shape, "...", self.channels)
        return shape

    def _scaled(self, normal, dtype):
        """Return the output: the normalised values, scaled and shifted."""
        y = normal * self.gamma.data
        if self.shift:
            y += self.beta.data
        return rounded(y, dtype)

    def _add_gradients(self, dy, normal):
        """Add the gradients of shift and scale, and return them."""
        dbeta, dgamma = column_sums(dy) if self.shift else None, column_sums(dy * normal)
        if self.shift:
            self.beta.add(dbeta)
        self.gamma.add(dgamma)
        return dbeta, dgamma


class BatchNorm(_Scaled):
    r"""Normalise every channel to mean 0, variance 1 over the batch (and the image), then apply a learned scale, shift.

    .. math:: \hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}, \qquad y = \gamma \hat x + \beta

    .. math:: dx = \frac{\gamma}{\sqrt{\sigma^2 + \epsilon}}
              \left( dy - \overline{dy} - \hat x \, \overline{dy \, \hat x} \right)

    Means run over all axes but the last. `eval()` returns the layer for prediction, which uses the running mean and
    variance.

    Parameters
    ----------
    momentum : float
        Weight of the newest batch in the running mean and variance.

    Notes
    -----
    Shapes: (..., channels) to the same. About 8 flops an element, 11 backward. Saves x hat and 1 / sigma.

    The running mean and variance (`Statistic`) are updated in `backward`, once for every training batch; `forward`
    changes nothing, so recomputation does not count a batch twice. Where the batch is split, every rank and micro-batch
    normalises its own rows, as in PyTorch's DDP, so the result differs from serial training; the running statistics are
    the mean over ranks, weighted by rows, and the same on all of them.

    References
    ----------
    S. Ioffe, C. Szegedy (2015), Batch normalization, ICML, algorithms 1 and 2.
    """

    def __init__(self, channels: int, *, momentum: float = 0.1, eps: float = 1e-5, dtype: DTypeLike = "float32"):
        super().__init__(channels, eps=eps, dtype=dtype)
        check_number("BatchNorm", least=0, most=1, momentum=momentum)
        self.momentum = momentum
        self.running_mean = Statistic(np.zeros(channels, dtype), "running_mean")
        self.running_var = Statistic(np.ones(channels, dtype), "running_var")
        self.params += [self.running_mean, self.running_var]

    def forward(self, x: Array) -> tuple[Array, Any]:
        check_input(self, x)
        xp, n, dtype, x = get_xp(x), math.prod(x.shape[:-1]), x.dtype, single(x)
        if n == 0:  # a rank without samples, which still takes part in the step
            return x.astype(dtype), None
        if n == 1:
            raise ValueError(
                f"{self!r}: 1 value per channel in an input of shape {x.shape}, expected 2 or more when training: one "
                "value is its own mean. Give every rank and micro-batch more samples, or use eval() to predict"
            )
        mean = column_sums(x) / n
        normal = x - mean
        var = column_sums(normal * normal) / n
        scale = 1 / xp.sqrt(var + self.eps)
        normal *= scale
        return self._scaled(normal, dtype), (rounded(normal, dtype), scale, mean, var)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        if saved is None:
            return dy
        normal, scale, mean, var = saved
        n, dtype, dy = math.prod(dy.shape[:-1]), dy.dtype, single(dy)
        dbeta, dgamma = self._add_gradients(dy, normal)
        for running, now in ((self.running_mean.data, mean), (self.running_var.data, var * (n / (n - 1)))):
            running *= 1 - self.momentum
            running += self.momentum * now
        dy -= dbeta / n
        dy -= normal * (dgamma / n)
        dy *= self.gamma.data * scale
        return rounded(dy, dtype)

    def eval(self) -> Layer:
        view = copy.copy(self)
        view.__class__ = _BatchNormEval
        return view


class _BatchNormEval(BatchNorm):
    """`BatchNorm` in prediction: a fixed scale and shift."""

    def forward(self, x):
        check_input(self, x)
        dtype, x = x.dtype, single(x)
        scale = 1 / get_xp(x).sqrt(single(self.running_var.data) + self.eps)
        normal = (x - self.running_mean.data) * scale
        return self._scaled(normal, dtype), (rounded(normal, dtype), scale)

    def backward(self, dy, saved):
        normal, scale = saved
        dtype, dy = dy.dtype, single(dy)
        self._add_gradients(dy, normal)
        dy *= self.gamma.data * scale
        return rounded(dy, dtype)

    def eval(self):
        return self


class _OverLastAxis(_Scaled):
    """Normalises every sample's last axis, and subtracts its mean first where a shift is learned."""

    def forward(self, x: Array) -> tuple[Array, Any]:
        check_input(self, x)
        dtype, x = x.dtype, single(x)
        if self.shift:
            x = x - x.mean(axis=-1, keepdims=True)
        scale = 1 / get_xp(x).sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps)
        normal = get_xp(x).multiply(x, scale, out=x if self.shift else None)
        return self._scaled(normal, dtype), (rounded(normal, dtype), scale)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        normal, scale = saved
        dtype, dy = dy.dtype, single(dy)
        self._add_gradients(dy, normal)
        dy *= self.gamma.data
        along = (dy * normal).mean(axis=-1, keepdims=True)
        if self.shift:
            dy -= dy.mean(axis=-1, keepdims=True)
        dy -= normal * along
        dy *= scale
        return rounded(dy, dtype)


class LayerNorm(_OverLastAxis):
    r"""Normalise every sample's last axis to mean 0 and variance 1, then apply a learned scale and shift.

    .. math:: \hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}, \qquad y = \gamma \odot \hat x + \beta

    .. math:: dx = \frac{1}{\sqrt{\sigma^2 + \epsilon}}
              \left( g - \overline{g} - \hat x \, \overline{g \, \hat x} \right),
              \qquad g = \gamma \odot dy

    Parameters
    ----------
    channels : int
        Length of the last axis.

    Notes
    -----
    Shapes: (..., channels) to the same. About 8 flops an element, 11 backward. Saves x hat and 1 / sigma.

    References
    ----------
    J. L. Ba, J. R. Kiros, G. E. Hinton (2016), Layer normalization, arXiv:1607.06450.
    """


class RMSNorm(_OverLastAxis):
    r"""Divide every sample's last axis by its root mean square, then apply a learned scale: `LayerNorm` without a mean.

    .. math:: \hat x = \frac{x}{\sqrt{\overline{x^2} + \epsilon}}, \qquad y = \gamma \odot \hat x

    .. math:: dx = \frac{1}{\sqrt{\overline{x^2} + \epsilon}} \left( g - \hat x \, \overline{g \, \hat x} \right),
              \qquad g = \gamma \odot dy

    Parameters
    ----------
    channels : int
        Length of the last axis.

    Notes
    -----
    Shapes: (..., channels) to the same. About 5 flops an element, 8 backward. Saves x hat and the root's inverse.

    References
    ----------
    B. Zhang, R. Sennrich (2019), Root mean square layer normalization, NeurIPS, equation 4.
    """

    costs = 5, 8
    shift = False


# Local response normalisation sums over neighbouring channels, as a sum of shifted copies. A row of channels is short,
# and NumPy pays for every row; so rows are laid one behind the other with zeros between them, and shifted as a whole.
# Some rows at a time, so that all of it stays in the cache.

ALIVE = 8  # Arrays in use at a time, approximately.


class LocalResponseNorm(Layer):
    r"""Divide each value by a function of its neighbouring channels at the same pixel.

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

    def __init__(self, n: int = 5, *, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75):
        check_positive("LocalResponseNorm", n=n)
        check_number("LocalResponseNorm", least=0, below=math.inf, k=k, alpha=alpha, beta=beta)
        if n % 2 == 0:
            raise ValueError(f"LocalResponseNorm: n is {n!r}, expected an odd number of channels")
        self.n, self.k, self.alpha, self.beta = n, k, alpha, beta
        self.costs = n + 12, n + 20

    def forward(self, x: Array) -> tuple[Array, Any]:
        xp, rows = get_xp(x), _rows(single(x))
        y, s = xp.empty_like(rows), xp.empty_like(rows)
        for part, squares, frame in self._parts(rows):
            xp.multiply(rows[part], rows[part], out=squares)
            xp.multiply(self._sums(frame, squares), self.alpha, out=s[part])
            s[part] += self.k
            xp.multiply(rows[part], self._damping(s[part]), out=y[part])
        return rounded(y, x.dtype).reshape(x.shape), (x, s)

    def backward(self, dy: Array, saved: Any) -> Array | None:
        x, s = saved
        xp, rows, dx = get_xp(x), _rows(single(x)), _rows(single(dy))
        for part, products, frame in self._parts(rows):
            dx[part] *= self._damping(s[part])
            around = dx[part] * rows[part]
            xp.divide(around, s[part], out=products)
            xp.multiply(self._sums(frame, products), rows[part], out=around)
            around *= 2 * self.alpha * self.beta
            dx[part] -= around
        return rounded(dx, dy.dtype).reshape(dy.shape)

    def _parts(self, rows):
        """Yield (part, inner, frame): some rows, a buffer of their size, and that buffer with a border of zeros."""
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


def _rows(x):
    return get_xp(x).ascontiguousarray(x).reshape(-1, x.shape[-1])
