"""Sectors and bank conflicts of any access pattern, against a few lines of NumPy that follow NVIDIA's description."""

import numpy as np
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
    degrees = [d for warp in warps(index) for d in degrees_of(np.arange(warp.size), warp, out.itemsize)]
    site = report.find("dynamic shared memory", "read")
    assert (site.wavefronts, site.worst_conflict) == (sum(degrees), max(degrees))


def degrees_of(lanes, index, item):
    """Return the wavefronts of each part of a request that is served at a time: of 8 bytes, half of the lanes."""
    found = []
    for part in range(0, 32, 16 if item == 8 else 32):
        first = index[(lanes >= part) & (lanes < part + (16 if item == 8 else 32))] * item // 4
        if first.size:
            words = np.unique(np.concatenate([first, first + 1]) if item == 8 else first)
            found.append(int(np.bincount(words % 32).max()))
    return found


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(list(TYPES)), st.integers(0, 999), st.integers(1, 32))
def test_many_requests_of_one_line(name, seed, lanes):
    """Patterns that come again, shifted, with other lanes, or not: what was counted once is not counted wrong later."""
    rng = np.random.default_rng(seed)
    kinds = [rng.integers(0, 256, lanes), np.arange(lanes) * rng.integers(0, 9), np.full(lanes, 3)]
    index = np.stack([kinds[rng.integers(3)] + rng.integers(0, 256) * rng.integers(2) for _ in range(40)])
    index[(rng.random(index.shape) < 0.2) & (rng.random((40, 1)) < 0.4)] = -1
    dtype = TYPES[name]
    args = np.zeros(512, dtype), index.astype(np.int32), np.zeros(lanes, dtype), np.int32(40)
    report = RawKernel(ROWS, f"rows<{name}>").check((1,), (lanes,), args, shared_mem=512 * args[0].itemsize)
    assert report.errors == []
    item, sectors, ideal, degrees = args[0].itemsize, 0, 0, []
    for row in index:
        active = np.flatnonzero(row >= 0)
        sectors += np.unique(row[active] * item // 32).size
        ideal += -(-np.unique(row[active]).size * item // 32)
        degrees += degrees_of(active, row[active], item)
    line = next(i for i, text in enumerate(ROWS.split("\n"), 1) if "sum += x" in text)
    (far,) = (s for s in report.sites if s.line == line)
    (near,) = (s for s in report.sites if s.line == line + 1)
    assert far.requests == near.requests == sum((row >= 0).any() for row in index)
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
