"""What the checker knows of every cell of memory: who wrote and read it, and which array a wild index belongs to."""

import numpy as np
import pytest

from distlearn.cuda import RawKernel

i32, f32 = np.int32, np.float32


def check(body, compiler, n=1, block=32, grid=1, **kw):
    """Launch `body` on two arrays of 256 elements; `t` is the thread, `s` a shared array that every thread has set."""
    source = f"""extern "C" __global__ void k(float* x, float* y, int n) {{
int t = threadIdx.x; __shared__ float s[128], wide[8192]; s[t] = t; if (n == 77) wide[t] = 1; __syncthreads();
{body}
}}"""
    args = (np.zeros(256, f32), np.zeros(256, f32), i32(n))
    return RawKernel(source, "k", compiler=compiler).check((grid,), (block,), args, **kw)


def found(report):
    return [(e.kind, *sorted((e.line, e.other_line), reverse=True)) for e in report.errors]


FAR = [1 << 12, 1 << 20, 1 << 26, 2**31 - 1, -1, -23_345, -(1 << 26), -(2**31)]
PLACES = [(array, index) for array in "xy" for index in FAR] + [("s", i) for i in (128, 5000, 30_000, -1, -5000)]


@pytest.mark.parametrize(("array", "index"), PLACES)
def test_a_wild_index_is_told_of_its_own_array(array, index, compiler):
    report = check(f"float* p = {array};\nfloat v = p[n];\nif (v == 3) x[t] = 1;", compiler, n=index, block=1)
    assert [(e.kind, e.line, e.array, e.offset) for e in report.errors] == [("out-of-bounds", 4, array, 4 * index)]


RACES = {  # body, threads, what is found
    "the third warp reads": (
        "x[t] = s[0];\nif (t < 32) __syncwarp();\nif (t == 0) s[0] = 7;", 128, [("race", 5, 3)]
    ),
    "a reader of the own warp comes last": (
        "if (t >= 32) x[t] = s[0];\nif (t < 32) { x[t] = s[0]; __syncwarp(); }\nif (t == 0) s[0] = 7;", 128,
        [("race", 5, 3)],
    ),
    "the writer has read as well": (
        "if (t != 31) x[t] = s[31];\nfloat b = s[t];\nif (t == 31) s[t] = b + 1;", 32, [("race", 5, 3)]
    ),
    "a volatile read hides none": (
        "if (t < 32) x[t] = s[0];\nif (t >= 32) x[t] = ((volatile float*)s)[0];\nif (t == 127) atomicAdd(s, 1.0f);",
        128, [("race", 5, 3)],
    ),
    "a value that one thread alone uses": (
        "if (t == 5) s[0] = 7;\nfloat v = s[0];\nif (v > 0 && t == 0) x[0] = 1;", 32, [("race", 4, 3)]
    ),
    "a __syncwarp orders its warp": ("x[t] = s[0];\n__syncwarp();\nif (t == 0) s[0] = 7;", 32, []),
    "another half of the warp": (
        "x[t] = s[0];\n__syncwarp(t < 16 ? 0xffff : 0xffff0000);\nif (t == 5) s[0] = 7;", 32, [("race", 5, 3)]
    ),
    "the first half, with the second one last": (
        "x[t] = s[0];\n__syncwarp(t < 16 ? 0xffff : 0xffff0000);\nif (t == 20) s[0] = 7;", 32, [("race", 5, 3)]
    ),
    "handed on from lane to lane": (
        "if (t == 0) s[9] = 1;\nif (t < 2) __syncwarp(3);\n"
        "if (t == 1 || t == 2) __syncwarp(6);\nif (t == 2) x[0] = s[9];",
        32, [],
    ),
    "handed on in the wrong order": (
        "if (t == 1 || t == 2) __syncwarp(6);\nif (t == 0) s[9] = 1;\n"
        "if (t < 2) __syncwarp(3);\nif (t == 2) x[0] = s[9];",
        32, [("race", 6, 4)],
    ),
    "read again after lanes have met": (
        "if (t == 1) x[t] = s[0];\nif (t < 2) __syncwarp(3);\nif (t == 1) x[t] += s[0];\n"
        "if (t == 2 || t == 3) { __syncwarp(12); __syncwarp(12); x[t] = s[0]; }\n"
        "if (t == 0 || t == 2 || t == 3) __syncwarp(13);\nif (t == 0) s[0] = 7;\n__syncthreads();",
        32, [("race", 8, 5)],
    ),
    "read twice and met after both": (
        "if (t == 1) x[t] = s[0];\nif (t < 2) __syncwarp(3);\nif (t == 1) x[t] += s[0];\n"
        "if (t == 2 || t == 3) { __syncwarp(12); __syncwarp(12); x[t] = s[0]; }\n"
        "if (t < 4) __syncwarp(15);\nif (t == 0) s[0] = 7;\n__syncthreads();",
        32, [],
    ),
    "more __syncwarps than 16 bits count": (
        "s[t] = 1;\nfor (int i = 0; i < 65535 + n; i++) __syncwarp();\nx[t] = s[31 - t];", 32, []
    ),
    "lanes at different lines": (
        "float v = t;\nif (t < 16) v = __shfl_sync(~0u, v, 0);\nelse v = __shfl_sync(~0u, v, 1);\nx[t] = v;", 32,
        [("divergent-warp-operation", 5, 4)],
    ),
    "votes at different lines": (
        "int v = 0;\nif (t < 16) v = __any_sync(~0u, t == 3);\nelse v = __any_sync(~0u, t == 20);\nx[t] = v;", 32,
        [("divergent-warp-operation", 5, 4)],
    ),
    "__syncwarp at different lines": ("if (t < 16) __syncwarp();\nelse __syncwarp();\nx[t] = s[0];", 32, []),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_order_within_a_block(name, compiler):
    body, block, wanted = RACES[name]
    report = check(body, compiler, block=block)
    assert found(report) == wanted, str(report)


ROUNDS = {  # body: in a loop whose first round, r == 0, is right; threads, blocks, what is found
    "a write of what another thread reads": (
        "int i = r ? 0 : t;\nx[t] = s[i];\nif (r == 0 || t == 63) s[i] = 7;", 64, 1, [("race", 6, 5)]
    ),
    "a write before another thread reads": (
        "int i = r ? 0 : t;\nif (r == 0 || t == 0) s[i] = 7;\nx[t] = s[i];", 64, 1, [("race", 6, 5)]
    ),
    "a write of what another thread writes": ("s[r ? t / 2 : t] = t;\nx[t] = r;", 32, 1, [("race", 4, 4)]),
    "read and written by one thread": ("x[t] = s[t];\ns[t] = 7;\nx[t] += s[t];", 64, 1, []),
    "a write of what an earlier block reads": (
        "int b = blockIdx.x;\nif (r == b) y[t + 32 * b] = x[t + 64 * b];\nif (r == b) x[t + 128 - b * 128] = 1;", 32, 2,
        [("race-between-blocks", 6, 5)],
    ),
    "a read of what an earlier block writes": (
        "int b = blockIdx.x;\nif (r == b) x[t + 32 * b] = 1;\nif (r == b) y[t + 32 * b] = x[t + 128 - b * 128];", 32, 2,
        [("race-between-blocks", 6, 5)],
    ),
    "shared memory that nobody sets": (
        "__shared__ float u[64];\nif (r == 0) u[t] = 1;\ny[t] = u[t + r * 32];", 32, 1, [("uninitialised", 6, 0)]
    ),
    "shared memory that only the first block sets": (
        "__shared__ float u[32];\nif (blockIdx.x == 0) u[t] = 1;\nif (r == blockIdx.x) y[t + blockIdx.x * 32] = u[t];",
        32, 2, [("uninitialised", 6, 0)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDS)
def test_a_line_that_was_right_before(name, compiler):
    """The second access of a line takes a shorter way through the checker than the first."""
    body, block, grid, wanted = ROUNDS[name]
    body = f"for (int r = 0; r < 2; r++) {{ {body}\n__syncthreads(); }}".replace("{ ", "{\n", 1)
    report = check(body, compiler, block=block, grid=grid)
    assert found(report) == wanted, str(report)


LAST_BLOCK = """BEFORE
y[blockIdx.x * 32 + t] = 1; AFTER
if (t == 0) s[100] = atomicAdd(&x[200], 1.0f);
__syncthreads();
if (s[100] == gridDim.x - 1) { float sum = 0; for (int b = 0; b < gridDim.x; b++) sum += y[b * 32 + t]; x[t] = sum; }"""
FENCES = {
    "every thread": ("", "__threadfence(); __syncthreads();", False),
    "one for all, behind a barrier": ("", "__syncthreads(); if (t == 0) __threadfence();", False),
    "one for its warp, behind __syncwarp": ("", "__syncwarp(); if (t == 0) __threadfence();", False),
    "one thread for itself only": ("", "if (t == 0) __threadfence();", True),
    "before the write": ("__threadfence();", "__syncthreads();", True),
    "for the block only": ("", "__threadfence_block(); __syncthreads();", True),
    "none": ("", "__syncthreads();", True),
}


@pytest.mark.parametrize("name", FENCES)
def test_a_fence_is_of_its_thread(name, compiler):
    before, after, races = FENCES[name]
    report = check(LAST_BLOCK.replace("BEFORE", before).replace("AFTER", after), compiler, grid=4)
    assert found(report) == ([("race-between-blocks", 7, 4)] if races else []), str(report)


@pytest.mark.nightly(but_every=4)
@pytest.mark.parametrize("loop", ["\n;", "\nx[3] = t;", "\nn += i;", "\nif (i > 2000000000u) n++;"])
def test_an_unsigned_loop_without_end_has_a_line(loop, compiler):
    report = check(f"for (unsigned i = n; i >= 0; i--){loop}\nx[0] = n;", compiler, block=1, time_limit=0.2)
    (error,) = report.errors
    assert error.kind == "infinite-loop"
    assert error.line in (3, 4)
    assert "0 of 1 blocks were done" in error.message


LOCK = """if (blockDim.x < 64 || t < 64) for (bool done = false; !done;) if (atomicCAS((int*)&x[200], 0, 1) == 0) {
ACQUIRE
x[201] += 1;
RELEASE atomicExch((int*)&x[UNLOCKED], 0); done = true; }"""
LOCKS = {  # what stands around the protected line; whether it is a race
    "fences": ("__threadfence();", "__threadfence();", "200", False),
    "no fence": ("", "", "200", True),
    "none before the release": ("__threadfence();", "", "200", True),
    "another lock": ("atomicExch((int*)&x[200], 0); __threadfence();", "__threadfence();", "202 + t", True),
}


@pytest.mark.parametrize("grid", [1, 3])
@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_orders_through_fences(name, grid, compiler):
    acquire, release, unlocked, races = LOCKS[name]
    body = LOCK.replace("ACQUIRE", acquire).replace("RELEASE", release).replace("UNLOCKED", unlocked)
    report = check(body, compiler, block=40, grid=grid)
    between = grid > 1 and name != "another lock"  # which word it was is not asked between blocks
    found = {"race", *["race-between-blocks"] * between} if races else set()
    assert {(e.kind, e.line) for e in report.errors} == {(kind, 5) for kind in found}, str(report)


def test_a_lock_of_each_bucket(compiler):
    """Chains of a hash table, each with a lock of its own (CUDA by Example, appendix A)."""
    source = """struct Lock { int* mutex;
        Lock() { cudaMalloc((void**)&mutex, 4); }
        ~Lock() { cudaFree(mutex); }
        __device__ void lock() { while (atomicCAS(mutex, 0, 1) != 0); __threadfence(); }
        __device__ void unlock() { __threadfence(); atomicExch(mutex, 0); } };
    __global__ void add(const int* keys, int* heads, int* next, Lock* locks, int n) {
        for (int t = threadIdx.x + blockIdx.x * blockDim.x; t < n; t += blockDim.x * gridDim.x)
            for (int i = 0; i < 32; i++)
                if (t % 32 == i) {
                    int bucket = keys[t] % 8;
                    locks[bucket].lock();
                    next[t] = heads[bucket];
                    heads[bucket] = t;
                    locks[bucket].unlock();
                }
    }"""
    n = 200
    keys, heads, following = np.arange(n, dtype=i32) * 7, np.full(8, -1, i32), np.zeros(n, i32)
    locks = np.array([(np.zeros(1, i32),) for _ in range(8)], np.dtype([("mutex", "O")]))
    report = RawKernel(source, "add", compiler=compiler).check((2,), (64,), (keys, heads, following, locks, i32(n)))
    assert report.errors == [], str(report)
    found = []
    for node in heads:
        while node >= 0:
            found.append(node)
            node = following[node]
    assert sorted(found) == list(range(n))
