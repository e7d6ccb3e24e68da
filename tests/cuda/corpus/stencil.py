"""Launches of stencil.cu."""

import numpy as np

from . import f32, floats, i32, launch, zeros

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
def box_blur():
    x = rng.integers(0, 256, (20, 30)).astype(np.uint8)
    total, count = (np.pad(a.astype(int), 2) for a in (x, np.ones_like(x)))
    windows = [(slice(i, i + 20), slice(j, j + 30)) for i in range(5) for j in range(5)]
    want = sum(total[w] for w in windows) // sum(count[w] for w in windows)
    return (4, 3), (8, 8), (x, np.zeros_like(x), i32(30), i32(20), i32(2)), {1: want}


@launch(FILE, atol=1)
def to_grey():
    x = rng.integers(0, 256, (500, 4)).astype(np.uint8)
    want = x[:, :3] @ np.array([0.299, 0.587, 0.114])
    return (4,), (128,), (x, zeros(500, dtype=np.uint8), i32(500)), {1: np.floor(want)}


@launch(FILE, atol=1e-4)
def sobel():
    x, want = floats(20, 30), zeros(20, 30)
    gx = x[:-2, 2:] + 2 * x[1:-1, 2:] + x[2:, 2:] - x[:-2, :-2] - 2 * x[1:-1, :-2] - x[2:, :-2]
    gy = x[2:, :-2] + 2 * x[2:, 1:-1] + x[2:, 2:] - x[:-2, :-2] - 2 * x[:-2, 1:-1] - x[:-2, 2:]
    want[1:-1, 1:-1] = np.hypot(gx, gy)
    return (4, 3), (8, 8), (x, zeros(20, 30), i32(30), i32(20)), {1: want}


@launch(FILE)
def median3x3():
    x = floats(20, 30)
    padded = np.pad(x, 1, "edge")
    want = np.median([padded[i : i + 20, j : j + 30] for i in range(3) for j in range(3)], axis=0)
    return (4, 3), (8, 8), (x, zeros(20, 30), i32(30), i32(20)), {1: want}


@launch(FILE)
def heat2d():
    u = floats(30, 30).astype(float)
    v = u.copy()
    v[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1])
    return (4, 4), (8, 8), (u, u.copy(), i32(30), np.float64(0.1)), {1: v}


@launch(FILE, atol=1e-4)
def stencil3d():
    u, want = floats(8, 10, 12), zeros(8, 10, 12)
    m = u[1:-1, 1:-1, 1:-1]
    around = u[2:, 1:-1, 1:-1] + u[:-2, 1:-1, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, :-2, 1:-1]
    want[1:-1, 1:-1, 1:-1] = 0.5 * (around + u[1:-1, 1:-1, 2:] + u[1:-1, 1:-1, :-2]) - 2 * m
    return (2, 2), (8, 8), (f32(2), f32(0.5), u, zeros(8, 10, 12), i32(12), i32(10), i32(8)), {3: want}


@launch(FILE)
def path_steps():
    wall, src = rng.integers(0, 10, (3, 200)).astype(i32), rng.integers(0, 10, 200).astype(i32)
    want = src
    for row in wall:
        padded = np.pad(want, 1, "edge")
        want = np.minimum(np.minimum(padded[:-2], padded[2:]), want) + row
    return (4,), (64,), (i32(3), wall, src, zeros(200, dtype=i32), i32(200), i32(3)), {3: want}


@launch(FILE)
def transpose_padded():
    x = floats(50, 70)
    return (3, 2), (32, 8), (zeros(70, 50), x, i32(70), i32(50)), {0: x.T}


@launch(FILE)
def transpose_diagonal():
    x = rng.integers(0, 99, (64, 64)).astype(i32)
    return (4, 4), (16, 16), (np.zeros_like(x), x, i32(64)), {0: x.T}


@launch(FILE)
def game_of_life():
    x = rng.integers(0, 2, (20, 30)).astype(np.uint8)
    shifts = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    around = sum(np.roll(x, s, (0, 1)).astype(int) for s in shifts)
    return (4, 3), (8, 8), (x, np.zeros_like(x), i32(30), i32(20)), {1: (around == 3) | (x == 1) & (around == 2)}


@launch(FILE)
def im2col():
    x = floats(2, 6, 7)
    want = [x[c, i : i + 4, j : j + 5].ravel() for c in range(2) for i in range(3) for j in range(3)]
    return (1,), (32,), (x, zeros(18, 20), *map(i32, (2, 6, 7, 3, 4, 5))), {1: np.array(want)}


@launch(FILE)
def max_pool():
    x = floats(8, 12)
    windows = x.reshape(4, 2, 6, 2).transpose(0, 2, 1, 3).reshape(24, 4)
    best = windows.argmax(1)
    start = np.add.outer(np.arange(4) * 24, np.arange(6) * 2).ravel()
    where = start + np.array([0, 1, 12, 13])[best]
    return (1,), (32,), (x, zeros(24), zeros(24, dtype=i32), i32(12), i32(6), i32(24)), {1: windows.max(1), 2: where}


@launch(FILE, atol=1e-4)
def bilinear():
    x = floats(5, 6)
    rows = np.array([np.interp(np.linspace(0, 5, 16), np.arange(6), r) for r in x])
    want = np.array([np.interp(np.linspace(0, 4, 13), np.arange(5), c) for c in rows.T]).T
    return (2, 2), (8, 8), (x, zeros(13, 16), i32(6), i32(5), i32(16), i32(13)), {1: want}
