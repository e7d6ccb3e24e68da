"""Launches of stencil.cu."""

import numpy as np

from . import floats, i32, launch, zeros

FILE = "stencil.cu"
rng = np.random.default_rng(0)


@launch(FILE, constants={"c_filter": floats(7, seed=5)})
def convolve_row():
    x = floats(300)
    return (3,), (128,), (x, zeros(300), i32(300)), {1: np.convolve(x, floats(7, seed=5)[::-1], "same")}


@launch(FILE, constants={"c_mask": floats(5, 5, seed=6)}, atol=1e-4)
def convolve_tile():
    x, mask = floats(30, 40), floats(5, 5, seed=6)
    padded = np.pad(x, 2)
    want = sum(mask[i, j] * padded[i : i + 30, j : j + 40] for i in range(5) for j in range(5))
    return (4, 3), (16, 16), (x, zeros(30, 40), i32(30), i32(40)), {1: want}


@launch(FILE)
def heat2d():
    u = floats(30, 30).astype(float)
    v = u.copy()
    v[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return (4, 4), (8, 8), (u, u.copy(), i32(30), np.float64(0.1)), {1: v}


@launch(FILE)
def transpose_padded():
    x = floats(50, 70)
    return (3, 2), (32, 8), (zeros(70, 50), x, i32(70), i32(50)), {0: x.T}


@launch(FILE, atol=1e-4)
def bilinear():
    x = floats(5, 6)
    rows = np.array([np.interp(np.linspace(0, 5, 16), np.arange(6), r) for r in x])
    want = np.array([np.interp(np.linspace(0, 4, 13), np.arange(5), c) for c in rows.T]).T
    return (2, 2), (8, 8), (x, zeros(13, 16), i32(6), i32(5), i32(16), i32(13)), {1: want}
