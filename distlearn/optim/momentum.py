"""Rules with one learning rate for all weights: SGD and its accelerated forms.

eta is the learning rate, mu the `momentum`, in [0, 1), lambda the `weight_decay`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..backend import Array, can_launch, norm
from .optimizer import ElementwiseRule, decayed


@dataclass(frozen=True)
class SGD(ElementwiseRule):
    r"""Stochastic gradient descent.

    .. math:: w \leftarrow w - \eta \, (g + \lambda w)

    References
    ----------
    H. Robbins, S. Monro (1951), A stochastic approximation method, Annals of Mathematical Statistics 22(3).
    """

    weight_decay: float = 0.0

    def init(self, data: Array) -> Any:
        """Return None: plain SGD has no state."""

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> Any:
        if self.weight_decay:
            grad = grad + self.weight_decay * data
        if can_launch(data, grad):
            from ..cuda.kernels import saxpy

            saxpy(-lr, grad, data)
        else:  # not BLAS's axpy, which rounds the end of an array differently on some processors: shards would show it
            data -= lr * grad


@dataclass(frozen=True)
class Momentum(ElementwiseRule):
    r"""SGD with momentum: the gradient accelerates a velocity, the velocity moves the weights.

    .. math:: v \leftarrow \mu v + g + \lambda w, \qquad w \leftarrow w - \eta v

    References
    ----------
    B. T. Polyak (1964), Some methods of speeding up the convergence of iteration methods, USSR Computational
    Mathematics and Mathematical Physics 4(5).
    """

    momentum: float = 0.9
    weight_decay: float = 0.0

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> Any:
        if can_launch(data, grad, state, dtypes=("float32", "float64")):
            from ..cuda.kernels import sgd_momentum

            sgd_momentum(data, state, grad, lr, self.momentum, self.weight_decay)
            return
        state *= self.momentum
        state += decayed(grad, data, self.weight_decay)
        data -= lr * state


@dataclass(frozen=True)
class Nesterov(Momentum):
    r"""Nesterov's accelerated gradient: momentum that looks ahead to where the velocity leads.

    .. math:: v \leftarrow \mu v + g + \lambda w, \qquad w \leftarrow w - \eta \, (g + \lambda w + \mu v)

    The form of Sutskever et al.: the stored weights are the look-ahead ones, and g is the gradient there.

    References
    ----------
    Y. Nesterov (1983), A method for solving the convex programming problem with convergence rate O(1/k^2), Soviet
    Mathematics Doklady 27.
    I. Sutskever, J. Martens, G. Dahl, G. Hinton (2013), On the importance of initialization and momentum in deep
    learning, ICML, section 2.
    """

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> Any:
        grad = decayed(grad, data, self.weight_decay)
        state *= self.momentum
        state += grad
        data -= lr * (grad + self.momentum * state)


@dataclass(frozen=True)
class LARS(Momentum):
    r"""Layer-wise adaptive rate scaling: no layer's step is large relative to its weights, so large batches train.

    .. math:: \lambda_l = \frac{\kappa \, \lVert w \rVert}{\lVert g \rVert + \lambda \lVert w \rVert}, \qquad
              v \leftarrow \mu v + \eta \lambda_l \, (g + \lambda w), \qquad w \leftarrow w - v

    lambda_l is 1 where one of the norms is 0, and for biases and other vectors, as is usual.

    Parameters
    ----------
    weight_decay : float
        lambda; vectors are not decayed.
    trust : float
        kappa: how far a layer may move, as a share of its weights' norm.

    Notes
    -----
    The norms are those of a whole parameter: a shard of one has other norms, so LARS cannot run on shards as the
    other rules can.

    References
    ----------
    Y. You, I. Gitman, B. Ginsburg (2017), Large batch training of convolutional networks, arXiv:1708.03888, algorithm
    1.
    """

    trust: float = 0.001
    whole = True

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> Any:
        state *= self.momentum
        if data.ndim > 1:
            w, g = norm(data), norm(grad)
            rate = self.trust * w / (g + self.weight_decay * w) if w > 0 and g > 0 else 1.0
            state += (lr * rate) * decayed(grad, data, self.weight_decay)
        else:
            state += lr * grad
        data -= state
