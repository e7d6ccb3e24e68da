"""Launches of nvcc.cu."""

import numpy as np

from . import f32, floats, i32, launch, u32, zeros

FILE = "nvcc.cu"
rng = np.random.default_rng(0)
SETTINGS = np.array([(2, 3)], [("scale", f32), ("shift", i32)])


@launch(FILE)
def standard_names():
    x = rng.integers(0, 100, 32).astype(i32)
    low, high = np.minimum(x, np.roll(x, -1)), np.maximum(x, np.roll(x, -1))
    want = np.maximum(low, 10) + np.minimum(high, 50) + 1 + (high - low) // 2
    return (1,), (32,), (x, zeros(32, dtype=i32), zeros(32)), {1: want, 2: np.full(32, 1.5)}


@launch(FILE)
def overloads():
    n = np.arange(8, dtype=i32)
    doubles = n**2 + np.minimum(n, 2.5) + np.maximum(n, 1) + 2.0**n + n + 2 + 1 + 8
    unsigned = np.minimum(n, 5) + np.maximum(n, 3) + 3 * n + np.minimum(n, 4) + np.maximum(n, 2)
    return (1,), (8,), (n, np.zeros(8), zeros(8, dtype=u32)), {1: doubles, 2: unsigned}


@launch(FILE, constants={"settings": SETTINGS})
def lambdas():
    x = floats(40)
    return (1,), (32,), (x.copy(), i32(40), f32(0.5), True), {0: x * x + 4}


@launch(FILE)
def mandelbrot():
    y, x = np.mgrid[:12, :20]
    c = -2 + 3 * x / 20 + 1j * (-1 + 2 * y / 12)
    z, n = np.zeros_like(c), np.zeros(c.shape, i32)
    for _ in range(30):
        inside = z.real**2 + z.imag**2 <= 4
        z, n = np.where(inside, z * z + c, z), n + inside
    return (3, 2), (8, 8), (zeros(12, 20, dtype=i32), i32(20), i32(12), i32(30)), {0: n}


@launch(FILE)
def phase():
    z = (floats(32) + 1j * floats(32, seed=1)).astype(np.complex64)
    return (1,), (32,), (z, zeros(32), np.zeros_like(z)), {1: np.angle(z), 2: z.conj() / np.abs(z)}
