"""Normalisation: keep the values between layers at a scale that trains well."""

from __future__ import annotations

import copy
import math

import numpy as np

from ..backend import column_sums, get_xp, rounded, single
from .layer import Layer, Param, check_dtype, check_positive, check_shape


class _Scaled(Layer):
    """A normalisation with a learned scale and shift per channel."""

    def __init__(self, channels, eps, dtype):
        check_positive(type(self).__name__, channels=channels)
        self.channels, self.eps = channels, eps
        self.gamma = Param(np.ones(channels, dtype), "gamma")
        self.beta = Param(np.zeros(channels, dtype), "beta")
        self.params = [self.gamma, self.beta]

    def _check(self, x):
        check_shape(self, x.shape, "...", self.channels)
        check_dtype(self, x)

    def output_shape(self, shape):
        check_shape(self, shape, "...", self.channels)
        return shape

    def flops(self, shape):
        return 8 * math.prod(shape)

    def backward_flops(self, shape):
        return 11 * math.prod(shape)

    def __repr__(self):
        return f"{type(self).__name__}({self.channels})"


class BatchNorm(_Scaled):
    r"""Normalise every channel to mean 0, variance 1 over the batch (and the image), then apply a learned scale, shift.

    .. math:: \hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}, \qquad y = \gamma \hat x + \beta

    .. math:: dx = \frac{\gamma}{\sqrt{\sigma^2 + \epsilon}}
              \left( dy - \overline{dy} - \hat x \, \overline{dy \, \hat x} \right)

    Means run over all axes but the last. `eval()` returns the layer for prediction, which uses the running mean and
    variance.

    Parameters
    ----------
    channels : int
    momentum : float
        Weight of the newest batch in the running mean and variance.
    eps : float
    dtype : dtype

    Notes
    -----
    Shapes: (..., channels) to the same. About 8 flops an element, 11 backward. Saves x hat and 1 / sigma.

    The running statistics are frozen parameters: saved and broadcast like any, but not changed by optimizers. They
    are updated in `backward`, once for every training batch; `forward` changes nothing, so recomputation does
    not count a batch twice. Under data parallelism every rank normalises its own part of the batch and keeps its own
    running statistics, so the result differs from serial training.

    References
    ----------
    S. Ioffe, C. Szegedy (2015), Batch normalization, ICML, algorithms 1 and 2.
    """

    def __init__(self, channels, *, momentum=0.1, eps=1e-5, dtype="float32"):
        super().__init__(channels, eps, dtype)
        self.momentum = momentum
        self.running_mean = Param(np.zeros(channels, dtype), "running_mean", frozen=True)
        self.running_var = Param(np.ones(channels, dtype), "running_var", frozen=True)
        self.params += [self.running_mean, self.running_var]

    def forward(self, x):
        self._check(x)
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
        y = normal * self.gamma.data + self.beta.data
        return rounded(y, dtype), (rounded(normal, dtype), scale, mean, var)

    def backward(self, dy, saved):
        if saved is None:
            return dy
        normal, scale, mean, var = saved
        n, dtype, dy = math.prod(dy.shape[:-1]), dy.dtype, single(dy)
        dbeta, dgamma = column_sums(dy), column_sums(dy * normal)
        self.beta.add(dbeta)
        self.gamma.add(dgamma)
        self._remember(mean, var * (n / (n - 1)))
        dy -= dbeta / n
        dy -= normal * (dgamma / n)
        dy *= self.gamma.data * scale
        return rounded(dy, dtype)

    def _remember(self, mean, var):
        """Update the running statistics with this batch's."""
        for running, now in ((self.running_mean.data, mean), (self.running_var.data, var)):
            running *= 1 - self.momentum
            running += self.momentum * now

    def eval(self):
        view = copy.copy(self)
        view.__class__ = _BatchNormEval
        return view


class _BatchNormEval(BatchNorm):
    """`BatchNorm` in prediction: a fixed scale and shift."""

    def forward(self, x):
        self._check(x)
        dtype, x = x.dtype, single(x)
        scale = 1 / get_xp(x).sqrt(single(self.running_var.data) + self.eps)
        normal = (x - self.running_mean.data) * scale
        y = normal * self.gamma.data + self.beta.data
        return rounded(y, dtype), (rounded(normal, dtype), scale)

    def backward(self, dy, saved):
        normal, scale = saved
        dtype, dy = dy.dtype, single(dy)
        self.beta.add(column_sums(dy))
        self.gamma.add(column_sums(dy * normal))
        dy *= self.gamma.data * scale
        return rounded(dy, dtype)

    def eval(self):
        return self

    def __repr__(self):
        return f"BatchNorm({self.channels}).eval()"


class LayerNorm(_Scaled):
    r"""Normalise every sample's last axis to mean 0 and variance 1, then apply a learned scale and shift.

    .. math:: \hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}, \qquad y = \gamma \odot \hat x + \beta

    .. math:: dx = \frac{1}{\sqrt{\sigma^2 + \epsilon}}
              \left( g - \overline{g} - \hat x \, \overline{g \, \hat x} \right),
              \qquad g = \gamma \odot dy

    Parameters
    ----------
    channels : int
        Length of the last axis.
    eps : float
    dtype : dtype

    Notes
    -----
    Shapes: (..., channels) to the same. About 8 flops an element, 11 backward. Saves x hat and 1 / sigma.

    References
    ----------
    J. L. Ba, J. R. Kiros, G. E. Hinton (2016), Layer normalization, arXiv:1607.06450.
    """

    def __init__(self, channels, *, eps=1e-5, dtype="float32"):
        super().__init__(channels, eps, dtype)

    def forward(self, x):
        self._check(x)
        dtype, x = x.dtype, single(x)
        normal = x - x.mean(axis=-1, keepdims=True)
        scale = 1 / get_xp(x).sqrt((normal * normal).mean(axis=-1, keepdims=True) + self.eps)
        normal *= scale
        y = normal * self.gamma.data + self.beta.data
        return rounded(y, dtype), (rounded(normal, dtype), scale)

    def backward(self, dy, saved):
        normal, scale = saved
        dtype, dy = dy.dtype, single(dy)
        self.beta.add(column_sums(dy))
        self.gamma.add(column_sums(dy * normal))
        dy *= self.gamma.data
        along = (dy * normal).mean(axis=-1, keepdims=True)
        dy -= dy.mean(axis=-1, keepdims=True)
        dy -= normal * along
        dy *= scale
        return rounded(dy, dtype)


class RMSNorm(Layer):
    r"""Divide every sample's last axis by its root mean square, then apply a learned scale: `LayerNorm` without a mean.

    .. math:: \hat x = \frac{x}{\sqrt{\overline{x^2} + \epsilon}}, \qquad y = \gamma \odot \hat x

    .. math:: dx = \frac{1}{\sqrt{\overline{x^2} + \epsilon}} \left( g - \hat x \, \overline{g \, \hat x} \right),
              \qquad g = \gamma \odot dy

    Parameters
    ----------
    channels : int
        Length of the last axis.
    eps : float
    dtype : dtype

    Notes
    -----
    Shapes: (..., channels) to the same. About 5 flops an element, 8 backward. Saves x hat and the root's inverse.

    References
    ----------
    B. Zhang, R. Sennrich (2019), Root mean square layer normalization, NeurIPS, equation 4.
    """

    def __init__(self, channels, *, eps=1e-5, dtype="float32"):
        check_positive("RMSNorm", channels=channels)
        self.channels, self.eps = channels, eps
        self.gamma = Param(np.ones(channels, dtype), "gamma")
        self.params = [self.gamma]

    def forward(self, x):
        check_shape(self, x.shape, "...", self.channels)
        check_dtype(self, x)
        dtype, x = x.dtype, single(x)
        scale = 1 / get_xp(x).sqrt((x * x).mean(axis=-1, keepdims=True) + self.eps)
        normal = x * scale
        return rounded(normal * self.gamma.data, dtype), (rounded(normal, dtype), scale)

    def backward(self, dy, saved):
        normal, scale = saved
        dtype, dy = dy.dtype, single(dy)
        self.gamma.add(column_sums(dy * normal))
        dy *= self.gamma.data
        dy -= normal * (dy * normal).mean(axis=-1, keepdims=True)
        dy *= scale
        return rounded(dy, dtype)

    def output_shape(self, shape):
        check_shape(self, shape, "...", self.channels)
        return shape

    def flops(self, shape):
        return 5 * math.prod(shape)

    def backward_flops(self, shape):
        return 8 * math.prod(shape)

    def __repr__(self):
        return f"RMSNorm({self.channels})"
