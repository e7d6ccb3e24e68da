"""Each kernel of the library on small arguments, and what the emulator must count for them.

`memory` states by array and access the sectors per request of the worst line, or its bank conflict: a slower access
pattern fails without a GPU.
"""

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
    """A variant, a function that draws its arguments, and its use of memory."""

    variant: Variant
    example: Callable[[np.random.Generator], tuple]
    memory: dict
    rtol: float = 1e-5
    atol: float = 1e-6

    def __str__(self):
        return str(self.variant)

    def arguments(self, seed=0) -> tuple:
        return self.example(np.random.default_rng(seed))


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
        attention.tiled_reference(q, k, v, y, lse, True)
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
        images.max_pool_reference(x, y, won, where)
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


def _updates(variants, arrays, *numbers):
    for dtype, variant in variants.items():
        memory = {(a, access): dtype.itemsize for a in arrays for access in ("read", "write")[: 1 + (a != "g")]}
        tight = 1e-5 if dtype == f32 else 1e-12

        def example(rng, dtype=dtype):
            return *(rng.random(1024, dtype) for _ in arrays), *numbers

        yield Case(variant, example, memory, tight, tight)


def _uses(**arrays) -> dict:
    """Return the memory of arrays that are given as (read, written); None where one is not."""
    found = {(name, use): n for name, both in arrays.items() for use, n in zip(("read", "write"), both, strict=True)}
    return {key: n for key, n in found.items() if n is not None}


_ONCE = (1, 1)  # shared memory without bank conflicts
_PRODUCT = {"A": (4, None), "B": (4, None), "C": (None, 4)}
_TILES = {"a": _ONCE, "b": _ONCE}
_QKV = dict.fromkeys("qkv", (4, None)) | {f"{name}s": (1, 2) for name in "qkv"}

CASES = [
    Case(attention.NAIVE, _attention("qkv", "sy"),
         _uses(q=(4, None), k=(4, None), v=(4, None), s=(3, 3), y=(None, 4)), 1e-4, 1e-5),
    Case(attention.TILED, _attention("qkv", ["y", "lse"]), _uses(**_QKV, y=(None, 4), p=_ONCE), 1e-4, 1e-5),
    Case(attention.TILED_DQ, _attention(["q", "k", "v", "y", "lse", "dy"], ["inner", "dq"]),
         _uses(**_QKV, dq=(None, 4), dy=(4, None), ds=_ONCE), 1e-4, 1e-5),
    Case(attention.TILED_DKV, _attention(["q", "k", "v", "lse", "dy", "inner"], ["dk", "dv"]),
         _uses(**_QKV, dk=(None, 4), dv=(None, 4), dy=(4, None), ds=(1, None)), 1e-4, 1e-5),
    Case(elementwise.SAXPY, _vectors, _uses(x=(4, None), y=(4, 4))),
    Case(elementwise.SAXPY4, _vectors, _uses(x=(16, None), y=(16, 16))),
    Case(elementwise.BIAS_RELU, _rows, _uses(x=(4, None), bias=(4, None), y=(None, 4))),
    Case(elementwise.BIAS_RELU4, _rows, _uses(x=(16, None), bias=(8, None), y=(None, 16))),
    Case(elementwise.BIAS_GRAD, _columns, _uses(y=(4, None), dy=(4, 4), part=(1, None))),
    Case(elementwise.COLUMN_SUMS, _columns, _uses(dy=(4, None), part=(1, None))),
    Case(reduce.INTERLEAVED, _reduce, _uses(x=(4, None), s=(8, 8))),
    Case(reduce.SEQUENTIAL, _reduce, _uses(x=(4, None), s=_ONCE)),
    Case(reduce.SHUFFLE, _reduce, _uses(x=(4, None), part=_ONCE)),
    Case(transpose.NAIVE, _transpose, {("in", "read"): 4, ("out", "write"): 32}),
    Case(transpose.TILED, _transpose, {("in", "read"): 4} | _uses(out=(None, 4), tile=(32, 1))),
    Case(transpose.PADDED, _transpose, {("in", "read"): 4} | _uses(out=(None, 4), tile=_ONCE)),
    Case(matmul.NAIVE, _matmul, _uses(A=(1, None), B=(4, None), C=(None, 4))),
    Case(matmul.TILED, _matmul, _uses(**_PRODUCT, **_TILES)),
    Case(matmul.ANY_TILE, _matmul, _uses(**_PRODUCT)),
    Case(matmul.BLOCKED, _matmul, _uses(**_PRODUCT, **_TILES)),
    Case(matmul.WIDE, _matmul, _uses(A=(16, None), B=(12, None), C=(None, 16), **_TILES)),
    Case(convolution.CONV_NAIVE, _convolution, _uses(x=(4, None), w=(1, None), y=(None, 4)), atol=1e-5),
    Case(images.WINDOWS, _images("x", "col"), _uses(x=(3, None), col=(None, 4))),
    Case(images.ADD_WINDOWS, _images("col", "dx"), _uses(col=(2.6, None), dx=(None, 4))),
    Case(images.MAX_POOL, _images("x", "y", "won"), _uses(x=(3.3, None), y=(None, 4))),
    Case(images.MAX_POOL_BACK, _images("dy", "won", "dx"), _uses(won=(2, None), dx=(None, 4))),
    Case(loss.warps("i4"), _loss, _uses(z=(4, None), dz=(None, 4), loss=(None, 1))),
    *_updates(optimizer.MOMENTUM, "wvg", 0.1, 0.9, 1e-4),
    *_updates(optimizer.ADAM, "wmvg", 1e-3, 0.9, 0.999, 1e-8, 7),
    Case(recurrent.STEP, _step, _uses(gates=(4, None), h=(None, 4))),
    Case(recurrent.STEP_BACK, _step_back, _uses(parts=(4, None), grads=(None, 4))),
]  # fmt: skip
