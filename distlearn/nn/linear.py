"""The dense layer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend import Array, can_launch, column_sums, get_xp, matmul, rounded, single
from ..bounds import check_number, check_positive
from . import init, ops
from .layer import Layer, Param, check_input, check_shape, describe

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Linear(Layer):
    r"""Dense (fully connected) layer.

    .. math:: Y = X W + b, \qquad dW = X^\top dY, \quad db = \sum_i dY_i, \quad dX = dY W^\top

    Parameters
    ----------
    d_in, d_out : int
        Number of inputs and outputs.
    rng : numpy.random.Generator or int, optional
        Draws the weights; an integer is a seed, None is 0, "zeros" draws nothing. Give every layer its own: two of the
        same shape and seed start equal.
    gain : float
        Weights are drawn from N(0, gain^2 / d_in): sqrt(2) suits ReLU (He), 1 suits sigmoid and tanh (LeCun).
    input_gradient : bool
        False for a model's first layer: the gradient of the data is not needed, and a third of the work is saved.

    Notes
    -----
    Shapes: (batch, d_in) to (batch, d_out); further axes between the two, such as time, count as more rows. Forward:
    2 batch d_in d_out flops; backward twice that (once, without the input's gradient). Saves `x`.

    References
    ----------
    K. He, X. Zhang, S. Ren, J. Sun (2015), Delving deep into rectifiers, ICCV, section 2.2, for the initial weights.
    """

    splits = True

    def __init__(
        self,
        d_in: int,
        d_out: int,
        rng: np.random.Generator | int | None = None,
        *,
        dtype: DTypeLike = "float32",
        gain: float = init.HE,
        input_gradient: bool = True,
    ):
        check_positive("Linear", d_in=d_in, d_out=d_out)
        check_number("Linear", least=0, below=math.inf, gain=gain)
        self.d_in, self.d_out, self.input_gradient = d_in, d_out, input_gradient
        self.W = Param(init.normal((d_in, d_out), gain / math.sqrt(d_in), rng, dtype), "W")
        self.b = Param(init.zeros((d_out,), dtype), "b")
        self.params = [self.W, self.b]

    def forward(self, x: Array) -> tuple[Array, Any]:
        check_input(self, x)
        y = matmul(x.reshape(-1, self.d_in), self.W.data)
        y += self.b.data
        return y.reshape(*x.shape[:-1], self.d_out), x

    def backward(self, dy: Array, saved: Any, later: list[Any] | None = None, relu: Any = None) -> Array | None:
        """Return the input's gradient; `relu` is the output of a ReLU that is fused with this layer."""
        x, dy = saved.reshape(-1, self.d_in), dy.reshape(-1, self.d_out)
        if later is None and can_launch(dy, self.b.data):
            ops.bias_grad(dy, self.b, relu)
            self.W.add_product(x.T, dy)
        else:
            if relu is not None:
                dy *= relu.reshape(dy.shape) > 0
            if later is None:
                self.W.add_product(x.T, dy)
                self.b.add(column_sums(dy))
            else:  # sums are quick, products are not
                later += [(self.W.add_product, x.T, dy), (self.b.add, column_sums(dy))]
        return matmul(dy, self.W.data.T).reshape(saved.shape) if self.input_gradient else None

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        check_shape(self, shape, "...", self.d_in)
        return (*shape[:-1], self.d_out)

    def flops(self, shape: tuple[int, ...]) -> int:
        return 2 * math.prod(shape[:-1]) * self.d_in * self.d_out

    def __repr__(self):
        return f"Linear({self.d_in}, {self.d_out})"


# -- a table of vectors ------------------------------------------------------------------------------------------------


class Embedding(Layer):
    r"""Look up a vector for every symbol: equal to a dense layer on one-hot inputs.

    .. math:: y_{n,t} = W_{x_{n,t}}, \qquad dW_s = \sum_{n,t:\, x_{n,t} = s} dy_{n,t}

    Parameters
    ----------
    n_symbols, d_out : int
        Size of the vocabulary, and of a vector.
    rng : numpy.random.Generator or int, optional
        Draws the vectors from N(0, 1 / d_out); an integer is a seed.

    Notes
    -----
    Shapes: (batch, ...) array of int to (batch, ..., d_out). No flops forward, one addition a value backward; there
    is no gradient of the input. Saves the symbols. Most rows of dW are zero, and a framework that sends them all
    wastes bandwidth.

    References
    ----------
    Y. Bengio et al. (2003), A neural probabilistic language model, JMLR 3.
    """

    input_gradient = False

    def __init__(
        self, n_symbols: int, d_out: int, rng: np.random.Generator | int | None = None, *, dtype: DTypeLike = "float32"
    ):
        check_positive("Embedding", n_symbols=n_symbols, d_out=d_out)
        self.n_symbols, self.d_out, self.costs = n_symbols, d_out, (0, d_out)
        self.W = Param(init.normal((n_symbols, d_out), 1 / math.sqrt(d_out), rng, dtype), "W")
        self.params = [self.W]

    def forward(self, x: Array) -> tuple[Array, Any]:
        if x.dtype.kind not in "iu":
            raise TypeError(f"{describe(self)}: expected symbols as integers, got an array of {x.dtype}")
        if x.size and not (int(x.min()) >= 0 and int(x.max()) < self.n_symbols):
            span = f"{int(x.min())} to {int(x.max())}, expected 0 to {self.n_symbols - 1}"
            raise ValueError(f"{describe(self)}: symbols run from {span}")
        return self.W.data[x], x

    def backward(self, dy: Array, saved: Any) -> Array | None:
        rows = dy.reshape(-1, self.d_out)
        if get_xp(dy) is not np:  # a GPU has a fast scattered add
            get_xp(dy).add.at(self.W.grad, saved.reshape(-1), rows)
            return
        # the same sums, of rows sorted by symbol: eight times as fast as adding one row after another
        order = np.argsort(saved, axis=None, kind="stable")
        symbols = saved.reshape(-1)[order]
        starts = np.flatnonzero(np.diff(symbols, prepend=symbols[:1] - 1)) if len(symbols) else order
        if len(starts):
            sums = np.add.reduceat(single(rows)[order], starts, axis=0)
            self.W.grad[symbols[starts]] += rounded(sums, rows.dtype)

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape, self.d_out)

    def bytes_moved(self, shape: tuple[int, ...], itemsize: int = 4) -> int:
        return 2 * itemsize * math.prod(shape) * self.d_out
