"""Every kernel of the library on arrays large enough to time it, with what it must at least move and compute.

The arguments come from a function of an array module and a size, so that the table itself can be checked without a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from distlearn.cuda import kernels
from distlearn.cuda.kernels import Variant
from tests.cuda.cases import REFERENCES

f32 = np.float32
LARGE = 4096


class Case(NamedTuple):
    """A kernel's work.

    Attributes
    ----------
    variant : Variant
    arguments : callable
        From an array module and a size to the arguments of a call. Calling again with the same is allowed.
    cost : callable
        From the arguments to (bytes that must at least move, operations).
    peer : callable, optional
        From the array module and the arguments: the same by array operations.
    """

    variant: Variant
    arguments: Callable
    cost: Callable
    peer: Callable | None = None


def _random(xp, *shape, dtype=f32):
    return xp.random.standard_normal(math.prod(shape)).reshape(shape).astype(dtype)


def _vectors(n, dtype=f32):
    return lambda xp, size: [_random(xp, size * size, dtype=dtype) for _ in range(n)]


def _images(xp, size):
    side = min(56, size // 4)
    return _random(xp, max(1, size // 64), 16, side, side)


def _saxpy(xp, size):
    return 2.5, *_vectors(2)(xp, size)


def _bias_relu(xp, size):
    return _random(xp, size, size), _random(xp, size), xp.empty((size, size), f32)


def _reduce(xp, size):
    return _random(xp, size * size), xp.empty(size * size // 256, f32)


def _transpose(xp, size):
    return _random(xp, size, size), xp.empty((size, size), f32)


def _matmul(xp, size):
    n = size // 2
    return _random(xp, n, n), _random(xp, n, n), xp.empty((n, n), f32)


def _conv(xp, size):
    x = _images(xp, size)
    return x, _random(xp, 32, 16, 3, 3), xp.empty((len(x), 32, *x.shape[2:]), f32), 1, 1


def _softmax(xp, size):
    k = size // 4
    label = (xp.arange(size) % k).astype(np.int32)
    return _random(xp, size, k), label, xp.empty(size, f32), xp.empty((size, k), f32), 1 / size


def _bias_grad(xp, size):
    return _random(xp, size, size), _random(xp, size, size), _random(xp, size // 64, size), 1


def _gru(xp, size):
    c, state = _random(xp, 128), _random(xp, size, 128)
    stacks = _random(xp, 3, 4, size, 128), *(_random(xp, 4, size, 128) for _ in range(2))
    return _random(xp, 3, size, 128), c, state, *stacks, 1


def _gru_back(xp, size):
    gates, candidates, h, dy, grads = (_random(xp, *n, 4, size, 128) for n in ((3,), (), (), (), (4,)))
    return _random(xp, 3, size, 128), gates, candidates, h, _random(xp, size, 128), dy, grads, 1


def _launched(kind):
    where = kernels.images.Windows(oh=28, ow=28, kh=3, kw=3, sy=1, sx=1, top=1, left=1)

    def arguments(xp, size):
        n = max(1, size // 64)
        x, y, won = _random(xp, n, 28, 28, 16), _random(xp, n, 28, 28, 16), xp.zeros((n, 28, 28, 16), "int32")
        col = _random(xp, n * 28 * 28, 9 * 16)
        return {"windows": (x, col, where), "add_windows": (col, x, where), "max_pool": (x, y, won, where),
                "max_pool_back": (y, won, x, where)}[kind]  # fmt: skip

    return arguments


def _momentum(dtype):
    return lambda xp, size: (*_vectors(3, dtype)(xp, size), 0.01, 0.9, 1e-4)


def _adam(dtype):
    def arguments(xp, size):
        w, m, v, g = _vectors(4, dtype)(xp, size)
        return w, m, v * v, g, 1e-3, 0.9, 0.999, 1e-8, 7

    return arguments


def _attention(xp, size, heads=4):
    n = size // 4
    q, k, v = (_random(xp, heads, n, 32) for _ in range(3))
    return q, k, v, xp.empty((heads, n, 32), f32), xp.empty((heads, n), f32), 0


def _attention_naive(xp, size):
    q, k, v, y, lse, causal = _attention(xp, size)
    return q, k, v, xp.empty((*lse.shape, k.shape[1]), f32), y, causal


def _attention_dq(xp, size):
    q, k, v, y, lse, causal = _attention(xp, size)
    s = q @ k.swapaxes(1, 2) / math.sqrt(32)
    lse[...] = xp.log(xp.exp(s).sum(-1))
    y[...] = xp.exp(s - lse[..., None]) @ v
    return q, k, v, y, lse, _random(xp, *q.shape), xp.empty_like(lse), xp.empty_like(q), causal


def _attention_dkv(xp, size):
    q, k, v, y, lse, dy, inner, _, causal = _attention_dq(xp, size)
    inner[...] = (dy * y).sum(-1)
    return q, k, v, lse, dy, inner, xp.empty_like(k), xp.empty_like(v), causal


def _attention_cost(products):
    """Return the cost of `products` matrix products of a score's size; arrays are read or written once."""

    def cost(q, k, v, *rest):
        arrays = (q, k, v, *rest[:-1])
        return sum(a.nbytes for a in arrays), 2 * products * q.size * k.shape[1]

    return cost


def _moved(arrays, flops):
    """Cost of reading or writing arguments once each (named twice: both), and of `flops` per element of the first."""
    return lambda *args: (sum(args[i].nbytes for i in arrays), flops * args[arrays[0]].size)


def _matmul_cost(a, b, c):
    return a.nbytes + b.nbytes + c.nbytes, 2 * a.shape[0] * a.shape[1] * b.shape[1]


def _conv_cost(x, w, y, *_):
    return x.nbytes + w.nbytes + y.nbytes, 2 * y.size * w[0].size


def _by_reference(variant):
    """Return what the tests compare the variant with: its array operations are CuPy's on CuPy's arrays."""
    return lambda xp, *args: REFERENCES[variant](*args)


def _reduce_peer(xp, x, out):
    x.reshape(-1, out.size, 256 if 256 * out.size == x.size else 1024).sum((0, 2), out=out)


def _matmul_peer(xp, a, b, c):
    xp.matmul(a, b, out=c)


def cases() -> list[Case]:
    """One case for each of the library's variants."""
    k = kernels
    updates = [
        Case(v, _momentum(d), _moved((0, 0, 1, 1, 2), 6), _by_reference(v)) for d, v in k.optimizer.MOMENTUM.items()
    ]
    updates += [
        Case(v, _adam(d), _moved((0, 0, 1, 1, 2, 2, 3), 14), _by_reference(v)) for d, v in k.optimizer.ADAM.items()
    ]
    elementwise = k.elementwise
    return [
        *(Case(v, _saxpy, _moved((1, 2, 2), 2), _by_reference(v)) for v in (elementwise.SAXPY, elementwise.SAXPY4)),
        *(
            Case(v, _bias_relu, _moved((0, 1, 2), 1), _by_reference(v))
            for v in (elementwise.BIAS_RELU, elementwise.BIAS_RELU4)
        ),
        *(Case(v, _bias_grad, _moved((1, 2), 1)) for v in (elementwise.BIAS_GRAD, elementwise.COLUMN_SUMS)),
        Case(k.recurrent.STEP, _gru, _moved((0, 0, 2, 2, 2), 5)),
        Case(k.recurrent.STEP_BACK, _gru_back, _moved((0, 0, 0, 0), 5)),
        *(Case(v, _launched(v.kernel), _moved((0, 1), 0)) for v in k.images.VARIANTS),
        *(Case(v, _reduce, _moved((0, 1), 1), _reduce_peer) for v in k.reduce.VARIANTS),
        *(Case(v, _transpose, _moved((0, 1), 0), _by_reference(v)) for v in k.transpose.VARIANTS),
        *(Case(v, _matmul, _matmul_cost, _matmul_peer) for v in k.matmul.VARIANTS),
        Case(k.convolution.CONV_NAIVE, _conv, _conv_cost),
        *(Case(v, _softmax, _moved((0, 1, 2, 3), 5)) for v in k.loss.VARIANTS),
        Case(k.attention.NAIVE, _attention_naive, _attention_cost(2)),
        Case(k.attention.TILED, _attention, _attention_cost(2)),
        Case(k.attention.TILED_DQ, _attention_dq, _attention_cost(3)),
        Case(k.attention.TILED_DKV, _attention_dkv, _attention_cost(4)),
        *updates,
    ]
