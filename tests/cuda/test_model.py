"""Sectors and bank conflicts of any access pattern, against a few lines of NumPy that follow NVIDIA's description."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.cuda import RawKernel

GATHER = """template <typename T> __global__ void gather(const T* x, const int* index, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[index[i]];
}"""
BANKS = """template <typename T> __global__ void banks(const int* index, T* out, int n) {
    extern __shared__ char raw[];
    T* s = (T*)raw;
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = (T)i;
    __syncthreads();
    out[threadIdx.x] = s[index[threadIdx.x]];
}"""
TYPES = {"char": np.int8, "short": np.int16, "float": np.float32, "double": np.float64}


def warps(index):
    return [index[i : i + 32] for i in range(0, index.size, 32)]


def patterns(size):
    """Index arrays as kernels have them: strides, blocks, permutations, and anything."""
    affine = st.builds(lambda a, b, n: (np.arange(n) * a + b) % size, st.integers(0, 40), st.integers(0, size), LANES)
    anything = st.builds(lambda seed, n: np.random.default_rng(seed).integers(0, size, n), st.integers(0, 999), LANES)
    return st.one_of(affine, anything)


LANES = st.integers(1, 128)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(TYPES)), patterns(1024))
def test_sectors(name, index):
    dtype = TYPES[name]
    x, out = np.arange(1024).astype(dtype), np.zeros(index.size, dtype)
    report = RawKernel(GATHER, f"gather<{name}>").check(
        (-(-index.size // 64),), (64,), (x, index.astype(np.int32), out, np.int32(index.size))
    )
    assert report.errors == []
    np.testing.assert_array_equal(out, x[index])
    site = report.find("x")
    item = x.itemsize
    wanted = sum(np.unique(w * item // 32).size for w in warps(index))
    ideal = sum(-(-np.unique(w).size * item // 32) for w in warps(index))
    assert (site.requests, site.lanes) == (len(warps(index)), index.size)
    assert (site.sectors, site.ideal_sectors) == (wanted, ideal)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(TYPES)), patterns(512))
def test_bank_conflicts(name, index):
    dtype = TYPES[name]
    out = np.zeros(index.size, dtype)
    report = RawKernel(BANKS, f"banks<{name}>").check(
        (1,), (index.size,), (index.astype(np.int32), out, np.int32(512)), shared_mem=512 * out.itemsize
    )
    assert report.errors == []
    np.testing.assert_array_equal(out, np.arange(512).astype(dtype)[index])
    lanes = 16 if out.itemsize == 8 else 32  # 8 bytes are served for half a warp at a time
    degrees = []
    for warp in warps(index):
        for group in (warp[i : i + lanes] for i in range(0, warp.size, lanes)):
            first = group * out.itemsize // 4
            words = np.unique(np.concatenate([first, first + 1]) if out.itemsize == 8 else first)
            degrees.append(np.bincount(words % 32).max())
    site = report.find("dynamic shared memory", "read")
    assert (site.wavefronts, site.worst_conflict) == (sum(degrees), max(degrees))


def test_what_a_warp_needs_for_a_matrix_column():
    """The number everybody remembers: 32 sectors for 32 floats that lie a row apart."""
    index = np.arange(32) * 32
    x, out = np.zeros(1024, np.float32), np.zeros(32, np.float32)
    report = RawKernel(GATHER, "gather<float>").check((1,), (32,), (x, index.astype(np.int32), out, np.int32(32)))
    assert report.find("x").sectors_per_request == pytest.approx(32)
