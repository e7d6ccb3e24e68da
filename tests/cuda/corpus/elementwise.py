"""Launches of elementwise.cu."""

import numpy as np

from . import blocks, f32, floats, i32, launch, zeros

N = 1000
FILE = "elementwise.cu"


def bfloat16(x):
    """Round to bfloat16, as bits."""
    u = x.astype(f32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits):
    return (bits.astype(np.uint32) << 16).view(f32)


@launch(FILE)
def saxpy():
    x, y = floats(N), floats(N, seed=1)
    return blocks(N, 256), (256,), (f32(2), x, y.copy(), i32(N)), {2: 2 * x + y}


@launch(FILE)
def scale4():
    x = floats(N + 3)
    return blocks(N + 3, 4 * 64), (64,), (x, zeros(N + 3), f32(3), i32(N + 3)), {1: 3 * x}


@launch(FILE, "transform<double, Square<double>>")
def square():
    x = floats(N).astype(float)
    return (2,), (256,), (x, np.zeros(N), np.uint64(N), np.zeros(1, "V1")[0]), {1: x * x}


@launch(FILE, "transform<float, Affine>")
def affine():
    x, f = floats(N), np.array((2, 3), [("a", f32), ("b", f32)])[()]
    return (2,), (256,), (x, zeros(N), np.uint64(N), f), {1: 2 * x + 3}


@launch(FILE)
def gelu_forward():
    x = floats(N)
    want = 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
    return blocks(N, 128), (128,), (zeros(N), x, i32(N)), {0: want}


@launch(FILE)
def swiglu():
    gate, up = floats(N), floats(N, seed=1)
    return blocks(N, 128), (128,), (zeros(N), gate, up, i32(N)), {0: gate / (1 + np.exp(-gate)) * up}


@launch(FILE, "adamw<float>")
def adamw():
    w, g, m, v = floats(N), floats(N, seed=1), floats(N, seed=2), floats(N, seed=3) ** 2
    m1, v1 = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    step = m1 / (1 - 0.9**3) / (np.sqrt(v1 / (1 - 0.99**3)) + 1e-8) + 0.1 * w
    args = (w.copy(), g, m.copy(), v.copy(), i32(N), f32(0.01), f32(0.9), f32(0.99), f32(1e-8), f32(0.1), i32(3))
    return blocks(N, 128), (128,), args, {0: w - 0.01 * step, 2: m1, 3: v1}


@launch(FILE, atol=2e-3, rtol=2e-3)
def half2_axpy():
    x, y = (floats(N, seed=s).astype(np.float16) for s in (0, 1))
    a = np.array((2, 3), [("x", np.float16), ("y", np.float16)])[()]
    want = x.reshape(-1, 2).astype(f32) * (2, 3) + y.reshape(-1, 2)
    return blocks(N // 2, 64), (64,), (a, x, y.copy(), i32(N // 2)), {2: want.ravel()}


@launch(FILE)
def bfloat16_residual():
    a, b = bfloat16(floats(N)), bfloat16(floats(N, seed=1))
    want = bfloat16(from_bfloat16(a) + from_bfloat16(b))
    return blocks(N // 2, 64), (64,), (a, b, zeros(N, dtype=np.uint16), i32(N)), {2: want}
