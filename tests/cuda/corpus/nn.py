"""Launches of nn.cu."""

import numpy as np

from . import f32, floats, i32, launch, zeros
from .elementwise import bfloat16, from_bfloat16

FILE = "nn.cu"
rng = np.random.default_rng(0)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@launch(FILE, options=("-DTESTING",))
def residual_forward():
    a, b = floats(512), floats(512, seed=1)
    return (2,), (64,), (zeros(512), a, b), {0: a + b}


@launch(FILE, "residual_forward", options=("-DENABLE_BF16",))
def residual_forward_bfloat16():
    a, b = bfloat16(floats(512)), bfloat16(floats(512, seed=1))
    return (1,), (64,), (zeros(512, dtype=np.uint16), a, b), {0: bfloat16(from_bfloat16(a) + from_bfloat16(b))}


@launch(FILE)
def softmax_online():
    x = floats(7, 100)
    return (4,), (64,), (zeros(7, 100), x, i32(7), i32(100)), {0: softmax(x)}


@launch(FILE)
def rmsnorm():
    x, w = floats(300), floats(300, seed=1)
    return (1,), (128,), (zeros(300), x, w, i32(300)), {0: w * x / np.sqrt((x * x).mean() + 1e-5)}


@launch(FILE, atol=1e-4)
def embedding_backward():
    tokens, d = rng.integers(0, 5, 40).astype(i32), floats(40, 8)
    want = zeros(5, 8)
    np.add.at(want, tokens, d)
    return (5,), (64,), (zeros(5, 8), d, tokens, i32(40), i32(8)), {0: want}


@launch(FILE, shared_mem=4 * (3 * 16 * 8 + 16 * 16), atol=1e-4)
def flash_attention():
    q, k, v = (floats(1, 2, 32, 8, seed=s) for s in range(3))
    want = softmax(q @ k.transpose(0, 1, 3, 2) / np.sqrt(f32(8))) @ v
    ints = map(i32, (32, 8, 2, 2, 16, 16))
    args = (q, k, v, *ints, f32(8**-0.5), zeros(64), np.full(64, -np.inf, f32), zeros(1, 2, 32, 8))
    return (1, 2), (16,), args, {12: want}


@launch(FILE, atol=1e-4)
def batchnorm_channels():
    x, g, b = floats(4, 3, 20), floats(3, seed=1), floats(3, seed=2)
    mean, var = x.mean((0, 2), keepdims=True), x.var((0, 2), keepdims=True)
    want = g[:, None] * (x - mean) / np.sqrt(var + 1e-5) + b[:, None]
    return (3,), (64,), (x, zeros(4, 3, 20), g, b, i32(4), i32(3), i32(20)), {1: want}
