"""Rules that give every weight its own learning rate, from the gradients it has seen.

eta is the learning rate, lambda the `weight_decay`: g + lambda w takes the place of g, except in AdamW. Decay rates of
means (rho, beta) are in [0, 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..backend import Array, can_launch, get_xp
from .optimizer import ElementwiseRule, decayed


@dataclass(frozen=True)
class Adagrad(ElementwiseRule):
    r"""Divide by the root of all squared gradients so far: weights with rare gradients take larger steps.

    .. math:: s \leftarrow s + g^2, \qquad w \leftarrow w - \eta \frac{g}{\sqrt{s} + \epsilon}

    References
    ----------
    J. Duchi, E. Hazan, Y. Singer (2011), Adaptive subgradient methods for online learning and stochastic optimization,
    JMLR 12.
    """

    eps: float = 1e-10
    weight_decay: float = 0.0

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> Any:
        grad = decayed(grad, data, self.weight_decay)
        state += grad * grad
        root = get_xp(data).sqrt(state)
        root += self.eps
        data -= lr * grad / root


@dataclass(frozen=True)
class RMSprop(ElementwiseRule):
    r"""Divide by the root of a running mean of squared gradients: Adagrad that forgets.

    .. math:: s \leftarrow \rho s + (1 - \rho) g^2, \qquad w \leftarrow w - \eta \frac{g}{\sqrt{s} + \epsilon}

    References
    ----------
    T. Tieleman, G. Hinton (2012), Neural networks for machine learning, Coursera, lecture 6.5.
    """

    rho: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> Any:
        grad = decayed(grad, data, self.weight_decay)
        state *= self.rho
        state += (1 - self.rho) * (grad * grad)
        root = get_xp(data).sqrt(state)
        root += self.eps
        data -= lr * grad / root


@dataclass(frozen=True)
class Adadelta(ElementwiseRule):
    r"""RMSprop whose step has the unit of the weights: the learning rate is a running mean of the steps themselves.

    .. math:: s \leftarrow \rho s + (1 - \rho) g^2, \qquad
              d = \frac{\sqrt{u + \epsilon}}{\sqrt{s + \epsilon}} \, g, \qquad
              u \leftarrow \rho u + (1 - \rho) d^2, \qquad w \leftarrow w - \eta d

    Parameters
    ----------
    eps : float
        Also what makes the first step nonzero.

    Notes
    -----
    The paper has no learning rate: eta = 1.

    References
    ----------
    M. D. Zeiler (2012), ADADELTA: an adaptive learning rate method, arXiv:1212.5701, algorithm 1.
    """

    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0

    def init(self, data: Array) -> Any:
        return get_xp(data).zeros_like(data), get_xp(data).zeros_like(data)

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> Any:
        xp, (squares, steps) = get_xp(data), state
        grad = decayed(grad, data, self.weight_decay)
        squares *= self.rho
        squares += (1 - self.rho) * (grad * grad)
        delta = xp.sqrt((steps + self.eps) / (squares + self.eps)) * grad
        steps *= self.rho
        steps += (1 - self.rho) * (delta * delta)
        data -= lr * delta


@dataclass(frozen=True)
class Adam(ElementwiseRule):
    r"""Momentum and RMSprop in one, both corrected for starting at zero.

    .. math:: m &\leftarrow \beta_1 m + (1 - \beta_1) g, \qquad s \leftarrow \beta_2 s + (1 - \beta_2) g^2 \\
              w &\leftarrow w - \eta \, \frac{m / (1 - \beta_1^t)}{\sqrt{s / (1 - \beta_2^t)} + \epsilon}

    with t = 1 in the first step.

    References
    ----------
    D. P. Kingma, J. Ba (2015), Adam: a method for stochastic optimization, ICLR, algorithm 1.
    """

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0

    def init(self, data: Array) -> Any:
        return get_xp(data).zeros_like(data), get_xp(data).zeros_like(data)

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> Any:
        self._step(data, decayed(grad, data, self.weight_decay), state, lr, step)

    def _step(self, data, grad, state, lr, step):
        mean, squares = state
        if can_launch(data, grad, mean, squares, dtypes=("float32", "float64")):
            from ..cuda.kernels import adam

            adam(data, mean, squares, grad, lr, step + 1, self.beta1, self.beta2, self.eps)
            return
        mean *= self.beta1
        mean += (1 - self.beta1) * grad
        squares *= self.beta2
        squares += (1 - self.beta2) * (grad * grad)
        root = get_xp(data).sqrt(squares)
        root *= (1 - self.beta2 ** (step + 1)) ** -0.5
        root += self.eps
        data -= (lr / (1 - self.beta1 ** (step + 1))) * mean / root


@dataclass(frozen=True)
class AdamW(Adam):
    r"""Adam whose weight decay acts on the weights directly, not through the means.

    .. math:: w \leftarrow w - \eta \lambda w, \qquad \text{then Adam's step with the plain gradient}


    References
    ----------
    I. Loshchilov, F. Hutter (2019), Decoupled weight decay regularization, ICLR, algorithm 2.
    """

    weight_decay: float = 0.01

    def update(self, data: Array, grad: Array, state: Any, lr: float, step: int) -> Any:
        data *= 1 - lr * self.weight_decay
        self._step(data, grad, state, lr, step)
