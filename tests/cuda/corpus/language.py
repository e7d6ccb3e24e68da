"""Launches of language.cu."""

import numpy as np

from . import floats, i32, launch, u32, zeros

FILE = "language.cu"
rng = np.random.default_rng(0)


@launch(FILE)
def fft_step():
    x = (floats(32) + 1j * floats(32, seed=1)).astype(np.complex64).reshape(4, 2, 4)
    odd = x[:, 1] * np.exp(-1j * np.pi * np.arange(4) / 4)
    want = np.stack([x[:, 0] + odd, x[:, 0] - odd], 1)
    return (1,), (16,), (x.ravel(), zeros(32, dtype=np.complex64), i32(32), i32(4)), {1: want.ravel()}


@launch(FILE)
def bits():
    x = rng.integers(1, 2**31, 32).astype(u32)
    text = [f"{v:032b}" for v in x]
    want = [
        t.count("1") + 100 * t.index("1") + 10000 * (32 - t.rindex("1")) + 1000000 * int(t[:27:-1], 2) for t in text
    ]
    return (1,), (32,), (x, zeros(32, dtype=i32)), {1: want}


@launch(FILE)
def pack_nibbles():
    x = rng.integers(0, 256, (32, 8)).astype(np.uint8)
    want = ((x & 15).astype(np.uint64) << (4 * np.arange(8, dtype=np.uint64))).sum(1)
    return (1,), (32,), (x, zeros(32, dtype=u32), np.int8(0)), {1: want.astype(u32)}


@launch(FILE)
def recursion():
    fibonacci = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89]
    return (1,), (12,), (zeros(12, dtype=i32),), {0: np.array(fibonacci) * np.tile([2, 3, 5, 7], 3) + 7}


@launch(FILE)
def vectors_of_own():
    a, b = floats(40, 3), floats(40, 3, seed=1)
    return (2,), (32,), (a, b, zeros(40), zeros(40, 3), i32(40)), {2: (a * b).sum(1), 3: a + 2 * b}
