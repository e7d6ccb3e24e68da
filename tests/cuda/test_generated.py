"""Random kernels: each equals NumPy, bit for bit, and nothing is found in them.

`GENERATED_LAUNCHES=10000 pytest tests/cuda/test_generated.py` makes as many launches.
"""

import os

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlearn.cuda import RawKernel

from .conftest import KINDS
from .generated import Generator

f32, i32 = np.float32, np.int32
LAUNCHES = int(os.environ.get("GENERATED_LAUNCHES", "60"))
PER_KERNEL = 3 if LAUNCHES < 1000 else 50  # with other data and another geometry


@settings(max_examples=max(1, LAUNCHES // PER_KERNEL), suppress_health_check=[HealthCheck.too_slow], database=None)
@given(st.randoms(use_true_random=False), st.integers(0, 2**32 - 1))
def test_random_kernels(random, seed):
    source, expected = Generator(random).kernel()
    kind = random.choice(KINDS)
    kernel = RawKernel(source, "k", compiler=kind)
    rng = np.random.default_rng(seed)
    for _ in range(PER_KERNEL):
        blocks, threads, n = int(rng.integers(1, 4)), 32 * int(rng.integers(1, 9)), int(rng.integers(1, 80))
        x = (rng.normal(size=n) * 10.0 ** rng.integers(-3, 12)).astype(f32)
        x[rng.random(n) < 0.1] = rng.choice([np.nan, np.inf, -np.inf, 0])
        y, sums = expected(blocks, threads, x, n)
        got, counted = np.zeros(y.shape, f32), np.zeros(8, i32)
        kernel((blocks,), (threads,), (x, got, counted, i32(n)))
        np.testing.assert_array_equal(got, y, err_msg=f"{kind}\n{source}")
        np.testing.assert_array_equal(counted, sums, err_msg=f"{kind}\n{source}")
