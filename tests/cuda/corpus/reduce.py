"""Launches of reduce.cu."""

import numpy as np

from . import floats, i32, launch, u32, zeros

FILE = "reduce.cu"
X = np.random.default_rng(0).integers(-50, 100, 1000).astype(i32)


def partial(per_block):
    padded = np.pad(X, (0, -X.size % per_block))
    return padded.reshape(-1, per_block).sum(1)


@launch(FILE, shared_mem=512)
def reduce_interleaved():
    return (8,), (128,), (X, zeros(8, dtype=i32), u32(1000)), {1: partial(128)}


@launch(FILE, shared_mem=512)
def reduce_strided_index():
    return (8,), (128,), (X, zeros(8, dtype=i32), u32(1000)), {1: partial(128)}


@launch(FILE, "reduce_template<int, 128, false>")
def reduce_template():
    return (4,), (128,), (X, zeros(4, dtype=i32), u32(1000)), {1: partial(256)}


@launch(FILE, atol=1e-3)
def dot():
    a, b = floats(1000), floats(1000, seed=1)
    return (3,), (128,), (a, b, zeros(1), i32(1000)), {2: a @ b}


@launch(FILE)
def argmax_rows():
    x = floats(5, 300)
    return (5,), (128,), (x, zeros(5, dtype=i32), i32(300)), {1: x.argmax(1)}


@launch(FILE, shared_mem=256)
def sum_by_any_group():
    x = X[:64]
    args = (x, zeros(1, dtype=i32), zeros(4, dtype=i32))
    return (1,), (64,), args, {1: x.sum(), 2: x.reshape(4, 16).sum(1)}


@launch(FILE, atol=1e-4)
def mean_by_last_block():
    x = floats(1000)
    return (4,), (64,), (x, zeros(4), zeros(1), i32(1000)), {2: x.mean()}


@launch(FILE)
def count_votes():
    groups = np.pad(X, (0, 24)).reshape(-1, 128)
    want = [(X > 0).sum(), (groups > 90).any(1).sum(), (X & 1).sum()]
    return (8,), (128,), (X, zeros(3, dtype=i32), i32(1000)), {1: want}
