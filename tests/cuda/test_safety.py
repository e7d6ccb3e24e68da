"""Whatever a kernel does, Python survives and the report comes in time; random guarded kernels agree with NumPy."""

import os
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

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


def test_a_smashed_stack_ends_the_program_only(compiler):
    source = """extern "C" __global__ void smash(float* x, int n) {
        float local[4]; float* p = local;
        for (int i = 0; i < n; i++) p[i] = 1;
        x[0] = p[n % 4];
    }"""
    report = RawKernel(source, "smash", compiler=compiler).check((1,), (1,), (np.zeros(4, f32), i32(1 << 20)))
    assert report.errors
    assert report.errors[0].kind in ("crash", "out-of-bounds")


FAST = {  # body, a word of the error
    "null pointer": ("float* p = (float*)(long long)(n - 5); p[threadIdx.x] = 1;", "address 0x"),
    "far away": ("x[(long long)n << 40] = 1;", "where nothing is"),
    "everywhere": ("for (long long i = -(1 << 24); i < 1 << 24; i++) x[i] = 1;", "crash"),
    "division": ("x[0] = 5 / (n - 5);", "divides an integer by zero"),
    "endless recursion": ("x[0] = deep(n);", "too much local memory"),
    "endless recursion on a fibre": ("__syncthreads(); x[0] = deep(n);", "too much local memory"),
    "assertion": ("assert(threadIdx.x < 7);", r"line 3, thread \(7, 0, 0\) of block \([01], 0, 0\) finds that assert"),
    "assertion on a fibre": ("__syncthreads(); assert(threadIdx.x < 7);", r"assert\(threadIdx.x < 7\) does not hold"),
    "trap": ("if (n == 5) __trap();", r"calls __trap\(\)"),
}


@pytest.mark.parametrize("name", FAST)
def test_wild_kernels_of_the_fast_build(name, compiler):
    body, word = FAST[name]
    x = np.ones(64, f32)
    with pytest.raises(KernelError, match=word):
        RawKernel(WILD_KERNEL.replace("BODY", body), "wild", compiler=compiler, checked=False)((2,), (64,), (x, i32(5)))
    assert (x == 1).all()  # what a crashed launch wrote does not come back
    good = 'extern "C" __global__ void good(float* x) { x[threadIdx.x] = 2; }'
    RawKernel(good, "good", compiler=compiler, checked=False)((1,), (64,), (x,))
    assert (x == 2).all()


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "fast"])
def test_local_arrays_have_96_kib(compiler, checked):
    source = """extern "C" __global__ void big(float* x, int n) {
        float local[23000]; for (int i = 0; i < n; i++) local[i] = x[i % 32];
        __syncthreads(); x[threadIdx.x] = local[n - 1 - threadIdx.x];
    }"""
    x = np.arange(32, dtype=f32)
    RawKernel(source, "big", compiler=compiler, checked=checked)((1,), (32,), (x, i32(22_976)))
    np.testing.assert_array_equal(x, np.arange(32)[::-1])
    with pytest.raises(KernelError, match="96 KiB"):
        RawKernel(source.replace("23000", "100000"), "big", compiler=compiler, checked=checked).compile()


def test_a_plain_launch_is_checked_for_races_while_it_is_small(compiler):
    source = """extern "C" __global__ void sum(const float* x, float* out) {
        if (threadIdx.x < 2) *out += x[blockIdx.x * blockDim.x + threadIdx.x];
    }"""
    kernel, out = RawKernel(source, "sum", compiler=compiler), np.zeros(1, f32)
    with pytest.raises(KernelError, match="race, line 2"):
        kernel((1,), (64,), (np.zeros(64, f32), out))
    kernel((1025,), (64,), (np.zeros(64 * 1025, f32), out))  # more than 65,536 threads


def test_a_process_of_kernels_that_dies_is_replaced(capsys):
    """Its memory is damaged by one launch and used by the next; a forked process has one of its own."""
    source = """extern "C" __global__ void k(float* x, long long n) {
        if (n) for (long long i = 0; i < 64; i++) x[i] = n;
        printf("%s\\n", "printed");
        if (n == 3) x[n << 40] = 1;
    }"""
    kernel = RawKernel(source, "k", checked=False)
    x = np.zeros(64, f32)
    for n in (1, 3, 2):
        if n == 3:
            with pytest.raises(KernelError, match="where nothing is"):
                kernel((1,), (1,), (x, np.int64(n)))
        else:
            kernel((1,), (1,), (x, np.int64(n)))
            assert (x == n).all()
            assert capsys.readouterr().out == "printed\n"
    if hasattr(os, "fork"):
        child = os.fork()
        if not child:
            kernel((1,), (1,), (x, np.int64(9)))
            os._exit(int(x[5]))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        kernel((1,), (1,), (x, np.int64(4)))
        assert (x == 4).all()


HIDDEN = {  # body, options: where the barrier stands
    "macro of the options": ("BAR;", ("-DBAR=__syncthreads()",)),
    "macro of the source": ("\n#define GLUE(a, b) a##b\nGLUE(__sync, threads)();", ()),
    "header": ("meet(0);", ()),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_barrier_that_the_text_hides(name, compiler, tmp_path):
    body, options = HIDDEN[name]
    include = '#include "meet.h"\n' if name == "header" else ""
    (tmp_path / "meet.h").write_text("__device__ inline int meet(int v) { __syncthreads(); return v; }")
    source = f"""{include}extern "C" __global__ void k(float* x) {{
        __shared__ float s[64]; s[threadIdx.x] = threadIdx.x;
        {body}
        x[threadIdx.x] = s[63 - threadIdx.x];
    }}"""
    x = np.zeros(64, f32)
    RawKernel(source, "k", (*options, f"-I{tmp_path}"), compiler=compiler, checked=False)((1,), (64,), (x,))
    np.testing.assert_array_equal(x, np.arange(64)[::-1])


INDEX = st.sampled_from(["i", "n - 1 - i", "i * s", "i + s", "i / (s + 1)", "i ^ s", "(i * 7 + s) % n", "i - s"])
VALUES = {
    "x[j]": lambda x, y, i, j: x[j],
    "x[j] * 2.0f + 1.0f": lambda x, y, i, j: x[j] * f32(2) + f32(1),
    "x[j] - y[i]": lambda x, y, i, j: x[j] - y[i],
    "(float)j": lambda x, y, i, j: j.astype(f32),
    "fmaxf(x[j], 0.5f)": lambda x, y, i, j: np.maximum(x[j], f32(0.5)),
}
SOURCE = """extern "C" __global__ void fuzz(const float* x, float* y, int n, int s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = INDEX;
    if (GUARD) y[i] = VALUE;
}"""
STEP = st.integers(0, 40) | st.integers(0, 1 << 20)


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.booleans(), INDEX, st.sampled_from(list(VALUES)), st.integers(1, 300), STEP, st.sampled_from([1, 32, 50, 128])
)
@example(False, "i - s", "x[j]", 1, 23_345, 1)  # once fell into the thread's own stack, in every other process
def test_random_kernels_agree_with_numpy_or_are_told_where_they_leave_an_array(guarded, index, value, n, s, block):
    guard = "i < n && j >= 0 && j < n" if guarded else "true"
    source = SOURCE.replace("INDEX", index).replace("VALUE", value).replace("GUARD", guard)
    rng = np.random.default_rng(n)
    x, y = rng.random(n, dtype=f32), rng.random(n, dtype=f32)
    grid, wanted = -(-n // block), y.copy()
    i = np.arange(grid * block)
    j = eval(index.replace("/", "//"), {"i": i, "n": n, "s": s})
    inside = (i < n) & (j >= 0) & (j < n)
    if guarded:
        i, j = i[inside], j[inside]
    report = RawKernel(source, "fuzz").check((grid,), (block,), (x, y, i32(n), i32(s)))
    if (i >= n).any() or ("x[j]" in value and ((j < 0) | (j >= n)).any()):
        assert {e.kind for e in report.errors} == {"out-of-bounds"}, str(report)
    else:
        assert report.errors == [], str(report)
        wanted[i] = VALUES[value](x, wanted, i, j)
        np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_an_array_given_twice_is_copied_once():
    x = np.zeros(4, np.float32)
    place = launch.Placement(launch.Bound([x, x, x[:2]], ["*kf4"] * 3, ["a", "b", "c"]))
    assert [len(arrays) for *_, arrays in place.ranges] == [2]
    assert place.of_argument == [(0, 0)] * 3


def test_the_fast_build_puts_pointers_into_structs_before_the_threads_run():
    """They are written once, so a pointer that a thread changes stays changed."""
    code = """struct Held { float* at; };
    extern "C" __global__ void move(Held* held, float* other) {
        if (threadIdx.x == 0) held->at = other;
        else held->at[threadIdx.x] = 1.0f;
    }"""
    x, other = np.zeros(4, np.float32), np.zeros(4, np.float32)
    held = np.array([(x,)], np.dtype([("at", "O")]))
    RawKernel(code, "move", checked=False)((1,), (4,), (held, other))
    assert (x.tolist(), other.tolist()) == ([0.0] * 4, [0.0, 1.0, 1.0, 1.0])
