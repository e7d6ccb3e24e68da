"""Whatever a kernel does, Python survives and the report comes in time."""

import time

import numpy as np
import pytest

from distlearn.cuda import KernelError, RawKernel
from distlearn.cuda.emulator import launch

i32, f32 = np.int32, np.float32

WILD_KERNEL = """__device__ int deep(int n) { volatile int a[100]; a[n % 100] = n; return deep(n + 1) + a[n % 100]; }
    extern "C" __global__ void wild(float* x, int n) {
        BODY
    }"""
WILD = {
    "null pointer": ("float* p = (float*)(long long)(n - 5); p[threadIdx.x] = 1;", "out-of-bounds"),
    "far away": ("x[1LL << 40] = 1;", "out-of-bounds"),
    "before the array": ("x[-1] = 1;", "out-of-bounds"),
    "endless recursion": ("x[0] = deep(n);", "stack-overflow"),
    "endless loop": ("while (n > 0) x[threadIdx.x] = n;", "infinite-loop"),
    "huge memset": ("memset(x, 0, 1 << 30);", "out-of-bounds"),
    "assertion": ("assert(n == 3);", "assertion-failed"),
    "shared through a pointer": ("__shared__ float s[8]; float* p = s; p[n + 100] = 1;", "out-of-bounds"),
}


@pytest.mark.parametrize("name", WILD)
def test_wild_kernels(name, compiler):
    body, kind = WILD[name]
    start = time.monotonic()
    report = RawKernel(WILD_KERNEL.replace("BODY", body), "wild", compiler=compiler).check(
        (2,), (64,), (np.zeros(64, f32), i32(5)), time_limit=0.5
    )
    assert report.errors, str(report)
    assert report.errors[0].kind == kind, str(report)
    assert report.errors[0].line in (1, 3)
    assert time.monotonic() - start < 60


def test_many_blocks_are_no_endless_loop(compiler):
    """The time limit ends a launch that is too large: its kernel may be right, but in its last block."""
    body = "for (int i = 0; i < n; i++) x[threadIdx.x + (blockIdx.x == gridDim.x - 1)] += blockIdx.x;"
    kernel = RawKernel(WILD_KERNEL.replace("BODY", body), "wild", compiler=compiler).compile()
    ended, error = kernel.check((1 << 20,), (64,), (np.zeros(64, f32), i32(100)), time_limit=1.0).errors[-2:]
    assert ended.kind == "unfinished"
    assert "of 1048576 blocks and the last: a smaller grid" in ended.message
    assert (error.kind, error.block) == ("out-of-bounds", ((1 << 20) - 1, 0, 0))


def test_a_smashed_stack_ends_the_program_only(compiler):
    source = """extern "C" __global__ void smash(float* x, int n) {
        float local[4]; float* p = local;
        for (int i = 0; i < n; i++) p[i] = 1;
        x[0] = p[n % 4];
    }"""
    report = RawKernel(source, "smash", compiler=compiler).check((1,), (1,), (np.zeros(4, f32), i32(1 << 20)))
    assert report.errors
    assert report.errors[0].kind in ("crash", "out-of-bounds")


def test_local_arrays_have_96_kib(compiler):
    source = """extern "C" __global__ void big(float* x, int n) {
        float local[23000]; for (int i = 0; i < n; i++) local[i] = x[i % 32];
        __syncthreads(); x[threadIdx.x] = local[n - 1 - threadIdx.x];
    }"""
    x = np.arange(32, dtype=f32)
    RawKernel(source, "big", compiler=compiler)((1,), (32,), (x, i32(22_976)))
    np.testing.assert_array_equal(x, np.arange(32)[::-1])
    with pytest.raises(KernelError, match="96 KiB"):
        RawKernel(source.replace("23000", "100000"), "big", compiler=compiler).compile()


def test_a_plain_launch_is_checked_for_races_while_it_is_small(compiler):
    source = """extern "C" __global__ void sum(const float* x, float* out) {
        if (threadIdx.x < 2) *out += x[blockIdx.x * blockDim.x + threadIdx.x];
    }"""
    kernel, out = RawKernel(source, "sum", compiler=compiler), np.zeros(1, f32)
    with pytest.raises(KernelError, match="race, line 2"):
        kernel((1,), (64,), (np.zeros(64, f32), out))
    kernel((1025,), (64,), (np.zeros(64 * 1025, f32), out))  # more than 65,536 threads


def test_an_array_given_twice_is_copied_once():
    x = np.zeros(4, np.float32)
    place = launch.Placement(launch.Bound([x, x, x[:2]], ["*kf4"] * 3, ["a", "b", "c"]))
    assert [r.nbytes for r in place.ranges] == [16]
    assert place.of_argument == [(0, 0)] * 3


def test_a_pointer_in_a_struct_that_a_thread_changes_stays_changed():
    code = """struct Held { float* at; };
    extern "C" __global__ void move(Held* held, float* other) {
        if (threadIdx.x == 0) held->at = other;
        __syncthreads();
        held->at[threadIdx.x] = 1.0f;
    }"""
    x, other = np.zeros(4, np.float32), np.zeros(4, np.float32)
    held = np.array([(x,)], np.dtype([("at", "O")]))
    RawKernel(code, "move")((1,), (4,), (held, other))
    assert (x.tolist(), other.tolist()) == ([0.0] * 4, [1.0] * 4)
