"""Sectors and bank conflicts of any access pattern, against a few lines of NumPy that follow NVIDIA's description."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn.cuda import RawKernel

ROWS = """template <typename T> __global__ void rows(const T* x, const int* index, T* out, int n) {
    extern __shared__ char raw[];
    T* s = (T*)raw;
    T sum = 0;
    for (int i = threadIdx.x; i < 512; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    for (int row = 0; row < n; row++) {
        int i = index[row * blockDim.x + threadIdx.x];
        if (i >= 0) {
            sum += x[i];
            sum += s[i];
        }
    }
    out[threadIdx.x] = sum;
}"""
TYPES = {"char": np.int8, "short": np.int16, "float": np.float32, "double": np.float64}


def warps(index):
    return [index[i : i + 32] for i in range(0, index.size, 32)]


def degrees_of(lanes, index, item):
    """Return the wavefronts of each part of a request that is served at a time: of 8 bytes, half of the lanes."""
    found = []
    for part in range(0, 32, 16 if item == 8 else 32):
        first = index[(lanes >= part) & (lanes < part + (16 if item == 8 else 32))] * item // 4
        if first.size:
            words = np.unique(np.concatenate([first, first + 1]) if item == 8 else first)
            found.append(int(np.bincount(words % 32).max()))
    return found


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(list(TYPES)), st.integers(0, 999), st.integers(1, 128))
def test_sectors_and_bank_conflicts(name, seed, threads):
    """Strides, permutations and anything, some lanes idle: a pattern that comes again, or shifted, is counted anew."""
    rng, dtype = np.random.default_rng(seed), TYPES[name]
    kinds = [rng.integers(0, 512, threads), np.arange(threads) * rng.integers(0, 41), np.full(threads, 3)]
    kinds += [rng.permutation(threads), np.arange(threads) * rng.integers(0, 9)]
    index = np.stack([kinds[rng.integers(5)] + rng.integers(0, 512) * rng.integers(2) for _ in range(40)]) % 512
    index[(rng.random(index.shape) < 0.2) & (rng.random((40, 1)) < 0.4)] = -1
    x, out = np.arange(512).astype(dtype), np.zeros(threads, dtype)
    args = x, index.astype(np.int32), out, np.int32(40)
    report = RawKernel(ROWS, f"rows<{name}>").check((1,), (threads,), args, shared_mem=512 * x.itemsize)
    assert report.errors == []
    np.testing.assert_array_equal(out, (2 * np.where(index < 0, 0, x[index])).sum(0, dtype=dtype))
    item, sectors, ideal, degrees = x.itemsize, 0, 0, []
    requests = [part for row in index for part in warps(row) if (part >= 0).any()]
    for part in requests:
        active = np.flatnonzero(part >= 0)
        sectors += np.unique(part[active] * item // 32).size
        ideal += -(-np.unique(part[active]).size * item // 32)
        degrees += degrees_of(active, part[active], item)
    line = next(i for i, text in enumerate(ROWS.split("\n"), 1) if "sum += x" in text)
    (far,) = (s for s in report.sites if s.line == line)
    (near,) = (s for s in report.sites if s.line == line + 1)
    assert far.requests == near.requests == len(requests)
    assert far.lanes == near.lanes == (index >= 0).sum()
    assert (far.sectors, far.ideal_sectors) == (sectors, ideal)
    assert (near.wavefronts, near.ideal_wavefronts, near.worst_conflict) == (sum(degrees), len(degrees), max(degrees))


def test_lanes_of_one_instruction_in_two_arrays():
    source = """__global__ void k(float* x, float* y) {
        float* p = threadIdx.x % 4 ? x : y;
        p[threadIdx.x] = 1;
    }"""
    x, y = np.zeros(32, np.float32), np.zeros(32, np.float32)
    report = RawKernel(source, "k").check((1,), (32,), (x, y))
    found = {site.array: (site.requests, site.lanes, site.sectors) for site in report.sites}
    assert found == {"x": (1, 24, 4), "y": (1, 8, 4)}
