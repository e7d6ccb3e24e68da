"""Each kernel of the library: what it computes, in NumPy, small arguments, and what the emulator must count for them.

`memory` states by array and access the sectors per request of the worst line, or its bank conflict: a slower access
pattern fails without a GPU.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from distlearn.cuda.kernels import (
    Variant,
    attention,
    convolution,
    elementwise,
    images,
    loss,
    matmul,
    optimizer,
    recurrent,
    reduce,
    transpose,
)

f32, i32 = np.float32, np.int32


class Case(NamedTuple):
    """A variant, what it computes, a function that draws its arguments, and its use of memory."""

    variant: Variant
    reference: Callable[..., None]
    example: Callable[[np.random.Generator], tuple]
    memory: dict
    rtol: float = 1e-5
    atol: float = 1e-6

    def __str__(self):
        return str(self.variant)

    def arguments(self) -> tuple:
        return self.example(np.random.default_rng(0))


# -- what they compute, in NumPy ---------------------------------------------------------------------------------------


def _probabilities(q, k, causal):
    """Return the probabilities and log-sum-exps, in double precision."""
    s = q.astype(float) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s[..., ~np.tri(*s.shape[-2:], dtype=bool)] = -np.inf
    top = s.max(-1, keepdims=True)
    lse = top + np.log(np.exp(s - top).sum(-1, keepdims=True))
    return np.exp(s - lse), lse[..., 0]


def naive_reference(q, k, v, s, y, causal):
    """Y <- softmax(Q K^T / sqrt(d)) V; s becomes the exponentials, relative to each row's largest."""
    p, _ = _probabilities(q, k, causal)
    seen = p > 0
    s[seen] = (p / p.max(-1, keepdims=True))[seen]
    y[...] = p @ v


def tiled_reference(q, k, v, y, lse, causal):
    """Y <- softmax(Q K^T / sqrt(d)) V, and the log-sum-exp of every row's scores."""
    p, lse[...] = _probabilities(q, k, causal)
    y[...] = p @ v


def _score_gradient(q, k, v, inner, dy, causal):
    p, _ = _probabilities(q, k, causal)
    return p, p * (dy @ v.swapaxes(-1, -2) - inner[..., None])


def dq_reference(q, k, v, y, lse, dy, inner, dq, causal):
    """Compute inner = rowsum(dY Y) and the gradient of the queries."""
    inner[...] = (dy * y).sum(-1)
    dq[...] = _score_gradient(q, k, v, inner, dy, causal)[1] @ k / np.sqrt(q.shape[-1])


def dkv_reference(q, k, v, lse, dy, inner, dk, dv, causal):
    """Compute the gradients of keys and values."""
    p, ds = _score_gradient(q, k, v, inner, dy, causal)
    dk[...] = ds.swapaxes(-1, -2) @ q / np.sqrt(q.shape[-1])
    dv[...] = p.swapaxes(-1, -2) @ dy


def saxpy_reference(a, x, y):
    """Y <- a x + y."""
    y += f32(a) * x


def bias_relu_reference(x, bias, y):
    """Y <- max(x + bias, 0), the bias added to every row of x."""
    np.maximum(x + bias, 0, out=y)


def bias_grad_reference(y, dy, db, add, masked=True):
    """Set dy to 0 where y is not above 0, and db (+)= the sums of dy's columns."""
    if masked:
        dy *= y > 0
    db[...] = dy.sum(axis=0) + add * db


def reduce_reference(x, out):
    """Write the sums of pieces of 256 elements into out."""
    padded = np.zeros((out.size, 256), x.dtype)
    padded.reshape(-1)[: x.size] = x
    out[:] = padded.sum(axis=1)


def transpose_reference(x, out):
    """Write x transposed into out."""
    out[...] = x.T


def matmul_reference(a, b, c):
    """C <- A B."""
    np.matmul(a, b, out=c)


def conv_reference(x, w, y, stride, padding):
    """Write the convolution of images x (N, C, H, W) with filters w (F, C, k, k) into y."""
    padded = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    y[...] = np.einsum("ncyxij,fcij->nfyx", windows, w, optimize=True)


def _bordered(x, where, value):
    """Return images with the border that the windows need, and the view of the images in it."""
    (n, h, w, c), (oh, ow, kh, kw, sy, sx, top, left) = x.shape, where
    out = np.full((n, max(h + top, (oh - 1) * sy + kh), max(w + left, (ow - 1) * sx + kw), c), value, f32)
    inside = out[:, top : top + h, left : left + w]
    inside[...] = x
    return out, inside


def _pixels(bordered, where):
    """Yield (u, v, the pixels that all windows have there)."""
    oh, ow, kh, kw, sy, sx, *_ = where
    for v in range(kw):
        for u in range(kh):
            yield u, v, bordered[:, u : u + (oh - 1) * sy + 1 : sy, v : v + (ow - 1) * sx + 1 : sx]


def _by_window(col, n, where):
    return col.reshape(n, where.oh, where.ow, where.kh, where.kw, -1)


def windows_reference(x, col, where):
    """Write every window of every image into a row."""
    for u, v, pixels in _pixels(_bordered(x, where, 0)[0], where):
        _by_window(col, len(x), where)[:, :, :, u, v] = pixels


def add_windows_reference(col, dx, where):
    """Add the windows up where they came from."""
    bordered, inside = _bordered(np.zeros_like(dx), where, 0)
    for u, v, pixels in _pixels(bordered, where):
        pixels += _by_window(col, len(dx), where)[:, :, :, u, v]
    dx[...] = inside


def max_pool_reference(x, y, won, where):
    """Write the largest value of every window, and its place in the window."""
    y[...], won[...] = -np.inf, -1
    for u, v, pixels in _pixels(_bordered(x, where, -np.inf)[0], where):
        better = pixels > y
        y[better], won[better] = pixels[better], u * where.kw + v


def max_pool_back_reference(dy, won, dx, where):
    """Give each window's gradient to its largest value."""
    col = np.zeros((*dy.shape[:3], where.kh * where.kw, dy.shape[3]), f32)
    np.put_along_axis(col, won[:, :, :, None], dy[:, :, :, None], 3)
    add_windows_reference(col, dx, where)


def softmax_xent_reference(z, label, loss, dz, scale):
    """Write loss = -log softmax(z)[label] by row and dz = (softmax(z) - onehot) * scale."""
    shifted = z - z.max(1, keepdims=True)
    total = np.exp(shifted).sum(1, keepdims=True)
    rows = np.arange(len(z))
    loss[:] = np.log(total[:, 0]) - shifted[rows, label]
    dz[...] = np.exp(shifted) / total
    dz[rows, label] -= 1
    dz *= f32(scale)


def sgd_momentum_reference(w, v, g, lr, momentum, decay):
    """V <- momentum v + g + decay w; w <- w - lr v."""
    lr, momentum, decay = (w.dtype.type(a) for a in (lr, momentum, decay))
    v[...] = momentum * v + g + decay * w
    w -= lr * v


def adam_reference(w, m, v, g, lr, beta1, beta2, eps, step):
    """One step of Adam, written as in its paper; `step` counts from 1."""
    m[...] = beta1 * m + (1 - beta1) * g
    v[...] = beta2 * v + (1 - beta2) * g * g
    w -= lr * (m / (1 - beta1**step)) / (np.sqrt(v / (1 - beta2**step)) + eps)


def gru_step_reference(u, c, state, gates, candidates, h, t):
    """Compute gates, candidate and state of step t from U's product with the state before."""
    r, z = (0.5 * np.tanh(0.5 * (gates[k, t] + u[k])) + f32(0.5) for k in (0, 1))
    candidates[t] = u[2] + c
    new = np.tanh(gates[2, t] + r * candidates[t])
    gates[:, t] = r, z, new
    h[t] = (state - new) * z + new


def gru_step_back_reference(parts, gates, candidates, h, state, dy, grads, t):
    """Complete the gradient of step t's state, and compute those of its gates."""
    if t + 1 < len(dy):
        dy[t] += parts.sum(axis=0) + dy[t + 1] * gates[1, t + 1]
    (r, z, n), before = gates[:, t], h[t - 1] if t else 0 if state is None else state
    dn = dy[t] * (1 - n * n) * (1 - z)
    grads[:, t] = dn * r, dn * candidates[t] * (1 - r) * r, dy[t] * (before - n) * z * (1 - z), dn


# -- small arguments ---------------------------------------------------------------------------------------------------


def _normal(rng, *shape):
    return rng.normal(size=shape).astype(f32)


def _vectors(rng):
    return 2.5, rng.random(4096, dtype=f32), rng.random(4096, dtype=f32)


def _rows(rng):
    x = _normal(rng, 50, 64)
    return x, _normal(rng, 64), np.empty_like(x)


def _columns(rng):
    return _normal(rng, 50, 64), _normal(rng, 50, 64), _normal(rng, 64), 1


def _reduce(rng):
    return rng.random(2048, dtype=f32), np.zeros(8, f32)


def _transpose(rng):
    return rng.random((96, 128), dtype=f32), np.zeros((128, 96), f32)


def _matmul(rng):
    return rng.random((128, 64), dtype=f32), rng.random((64, 192), dtype=f32), np.zeros((128, 192), f32)


def _convolution(rng):
    w = _normal(rng, 5, 3, 3, 3)
    return _normal(rng, 4, 3, 32, 32), w, np.zeros((4, 5, 32, 32), f32), 1, 1


def _attention(inputs, outputs):
    """Arrays of these names, those of outputs zero; and a causal mask."""

    def example(rng):
        q, k, v, dy = (_normal(rng, 2, 64, 32) for _ in range(4))
        y, lse = np.zeros_like(q), np.zeros((2, 64), f32)
        tiled_reference(q, k, v, y, lse, True)
        values = {"q": q, "k": k, "v": v, "s": np.zeros((2, 64, 64), f32), "y": y, "lse": lse, "dy": dy,
                  "inner": (dy * y).sum(-1), "dq": q, "dk": k, "dv": v}  # fmt: skip
        return *(values[name] for name in inputs), *(np.zeros_like(values[name]) for name in outputs), 1

    return example


def _images(*names):
    """Arrays of these names, and where windows lie."""

    def example(rng):
        where = images.Windows(5, 4, 3, 3, 2, 2, 1, 1)
        x, small = _normal(rng, 2, 9, 7, 8), (2, where.oh, where.ow, 8)
        col = _normal(rng, 2 * where.oh * where.ow, where.kh * where.kw * 8)
        y, won = np.zeros(small, f32), np.zeros(small, i32)
        max_pool_reference(x, y, won, where)
        values = {"x": x, "col": col, "y": 0 * y, "won": won, "dy": _normal(rng, *small), "dx": 0 * x}
        return *(values[name] for name in names), where

    return example


def _loss(rng):
    z = 3 * _normal(rng, 64, 96)
    return z, rng.integers(0, 96, 64).astype(i32), np.zeros(64, f32), np.zeros_like(z), 1 / 64


def _step(rng):
    steps, batch, n = 3, 8, 32
    u, c, state = _normal(rng, 3, batch, n), _normal(rng, n), _normal(rng, batch, n)
    return u, c, state, _normal(rng, 3, steps, batch, n), *(np.zeros((steps, batch, n), f32) for _ in range(2)), 1


def _step_back(rng):
    shape = 3, 8, 32
    stacks = _normal(rng, 3, *shape), _normal(rng, *shape), _normal(rng, *shape), _normal(rng, 8, 32)
    return _normal(rng, 3, 8, 32), *stacks, _normal(rng, *shape), np.zeros((4, *shape), f32), 1


def _updates(variants, reference, arrays, *numbers):
    for dtype, variant in variants.items():
        memory = {(a, access): dtype.itemsize for a in arrays for access in ("read", "write")[: 1 + (a != "g")]}
        tight = 1e-5 if dtype == f32 else 1e-12

        def example(rng, dtype=dtype):
            return *(rng.random(1024, dtype) for _ in arrays), *numbers

        yield Case(variant, reference, example, memory, tight, tight)


def _uses(**arrays) -> dict:
    """Return the memory of arrays that are given as (read, written); None where one is not."""
    found = {(name, use): n for name, both in arrays.items() for use, n in zip(("read", "write"), both, strict=True)}
    return {key: n for key, n in found.items() if n is not None}


_ONCE = (1, 1)  # shared memory without bank conflicts
_PRODUCT = {"A": (4, None), "B": (4, None), "C": (None, 4)}
_TILES = {"a": _ONCE, "b": _ONCE}
_QKV = dict.fromkeys("qkv", (4, None)) | {f"{name}s": (1, 2) for name in "qkv"}

CASES = [
    Case(attention.NAIVE, naive_reference, _attention("qkv", "sy"),
         _uses(q=(4, None), k=(4, None), v=(4, None), s=(3, 3), y=(None, 4)), 1e-4, 1e-5),
    Case(attention.TILED, tiled_reference, _attention("qkv", ["y", "lse"]),
         _uses(**_QKV, y=(None, 4), p=_ONCE), 1e-4, 1e-5),
    Case(attention.TILED_DQ, dq_reference, _attention(["q", "k", "v", "y", "lse", "dy"], ["inner", "dq"]),
         _uses(**_QKV, dq=(None, 4), dy=(4, None), ds=_ONCE), 1e-4, 1e-5),
    Case(attention.TILED_DKV, dkv_reference, _attention(["q", "k", "v", "lse", "dy", "inner"], ["dk", "dv"]),
         _uses(**_QKV, dk=(None, 4), dv=(None, 4), dy=(4, None), ds=(1, None)), 1e-4, 1e-5),
    Case(elementwise.SAXPY, saxpy_reference, _vectors, _uses(x=(4, None), y=(4, 4))),
    Case(elementwise.SAXPY4, saxpy_reference, _vectors, _uses(x=(16, None), y=(16, 16))),
    Case(elementwise.BIAS_RELU, bias_relu_reference, _rows, _uses(x=(4, None), bias=(4, None), y=(None, 4))),
    Case(elementwise.BIAS_RELU4, bias_relu_reference, _rows, _uses(x=(16, None), bias=(8, None), y=(None, 16))),
    Case(elementwise.BIAS_GRAD, bias_grad_reference, _columns, _uses(y=(4, None), dy=(4, 4), part=(1, None))),
    Case(elementwise.COLUMN_SUMS, functools.partial(bias_grad_reference, masked=False), _columns,
         _uses(dy=(4, None), part=(1, None))),
    Case(reduce.INTERLEAVED, reduce_reference, _reduce, _uses(x=(4, None), s=(8, 8))),
    Case(reduce.SEQUENTIAL, reduce_reference, _reduce, _uses(x=(4, None), s=_ONCE)),
    Case(reduce.SHUFFLE, reduce_reference, _reduce, _uses(x=(4, None), part=_ONCE)),
    Case(transpose.NAIVE, transpose_reference, _transpose, {("in", "read"): 4, ("out", "write"): 32}),
    Case(transpose.TILED, transpose_reference, _transpose, {("in", "read"): 4} | _uses(out=(None, 4), tile=(32, 1))),
    Case(transpose.PADDED, transpose_reference, _transpose, {("in", "read"): 4} | _uses(out=(None, 4), tile=_ONCE)),
    Case(matmul.NAIVE, matmul_reference, _matmul, _uses(A=(1, None), B=(4, None), C=(None, 4))),
    Case(matmul.TILED, matmul_reference, _matmul, _uses(**_PRODUCT, **_TILES)),
    Case(matmul.ANY_TILE, matmul_reference, _matmul, _uses(**_PRODUCT)),
    Case(matmul.BLOCKED, matmul_reference, _matmul, _uses(**_PRODUCT, **_TILES)),
    Case(matmul.WIDE, matmul_reference, _matmul, _uses(A=(16, None), B=(12, None), C=(None, 16), **_TILES)),
    Case(convolution.CONV_NAIVE, conv_reference, _convolution, _uses(x=(4, None), w=(1, None), y=(None, 4)), atol=1e-5),
    Case(images.WINDOWS, windows_reference, _images("x", "col"), _uses(x=(3, None), col=(None, 4))),
    Case(images.ADD_WINDOWS, add_windows_reference, _images("col", "dx"), _uses(col=(2.6, None), dx=(None, 4))),
    Case(images.MAX_POOL, max_pool_reference, _images("x", "y", "won"), _uses(x=(3.3, None), y=(None, 4))),
    Case(images.MAX_POOL_BACK, max_pool_back_reference, _images("dy", "won", "dx"), _uses(won=(2, None), dx=(None, 4))),
    Case(loss.warps("i4"), softmax_xent_reference, _loss, _uses(z=(4, None), dz=(None, 4), loss=(None, 1))),
    *_updates(optimizer.MOMENTUM, sgd_momentum_reference, "wvg", 0.1, 0.9, 1e-4),
    *_updates(optimizer.ADAM, adam_reference, "wmvg", 1e-3, 0.9, 0.999, 1e-8, 7),
    Case(recurrent.STEP, gru_step_reference, _step, _uses(gates=(4, None), h=(None, 4))),
    Case(recurrent.STEP_BACK, gru_step_back_reference, _step_back, _uses(parts=(4, None), grads=(None, 4))),
]  # fmt: skip

REFERENCES = {case.variant: case.reference for case in CASES}
