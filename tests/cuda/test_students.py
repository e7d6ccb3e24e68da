"""Kernels as students write them: odd but right ones give no finding, wrong ones one finding each, where it is."""

import re

import numpy as np
import pytest

from distlearn.cuda import CompileError, RawKernel, UnsupportedFeature

i32, f32 = np.int32, np.float32
GLOBAL = 'extern "C" __global__ '


def check(source, args, compiler, block=(32,), **kw):
    return RawKernel(source, "k", compiler=compiler).check((1,), block, args, **kw)


WRONG = {  # source, arguments, block, (kind, line), a word of the message
    "a struct read past the end": (
        "struct P { float a, b, c; };\n"
        + GLOBAL + "void k(const P* p, P* q) {\n    int i = threadIdx.x; q[i] = p[i + 1];\n}",
        lambda: (np.zeros(12, f32), np.zeros(12, f32)), 4, ("out-of-bounds", 3), "p[12]",
    ),
    "memcpy past the end": (
        GLOBAL + "void k(const float* x, float* y) {\n    memcpy(y, x, 128);\n}",
        lambda: (np.zeros(31, f32), np.zeros(32, f32)), 1, ("out-of-bounds", 2), "x[31]",
    ),
    "one shared array overrun into the next": (
        GLOBAL + "void k(float* x) {\n    __shared__ float a[32]; __shared__ float b[32];\n"
        "    a[threadIdx.x] = 1; b[threadIdx.x] = 2; __syncthreads();\n"
        "    float* p = a;\n    x[threadIdx.x] = p[threadIdx.x + 16];\n}",
        lambda: (np.zeros(32, f32),), 32, ("out-of-bounds", 5), "a[32]",
    ),
    "a variable of the host": (
        "float factor = 2;\n" + GLOBAL + "void k(float* x) {\n    x[threadIdx.x] *= factor;\n}",
        lambda: (np.zeros(32, f32),), 32, ("out-of-bounds", 3), "declare it __device__",
    ),
    "what others miss of an ended thread": (
        GLOBAL + "void k(const float* x, float* y) {\n    __shared__ float s[32];\n    int t = threadIdx.x;\n"
        "    s[t] = x[t];\n    __syncthreads();\n    y[t] = __shfl_xor_sync(0xffffffff, s[t ^ 1], 1);\n}",
        lambda: (np.zeros(31, f32), np.zeros(32, f32)), 32, ("out-of-bounds", 4), "x[31]",
    ),
    "after letters of more than one byte": (
        GLOBAL + "void k(float* x) {\n    /* größer als 😀 */ x[threadIdx.x + 1] = 0;\n}",
        lambda: (np.zeros(32, f32),), 32, ("out-of-bounds", 2), "x[32]",
    ),
    "a name longer than the report keeps": (
        GLOBAL + "void k(float* a" + "b" * 80 + ") {\n    a" + "b" * 80 + "[32] = 0;\n}",
        lambda: (np.zeros(32, f32),), 1, ("out-of-bounds", 2), "abb",
    ),
    "frames that are too large together": (
        "__device__ float deep(float* x, int n) {\n    float a[22000];\n"
        "    for (int i = 0; i < 22000; i++) a[i] = n + x[i % 32];\n    return n ? deep(x, n - 1) + a[n] : a[5];\n}\n"
        + GLOBAL + "void k(float* x) {\n    if (threadIdx.x == 3) x[3] = deep(x, 9);\n}",
        lambda: (np.zeros(32, f32),), 4, ("stack-overflow", 1), "local memory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels(name, compiler):
    source, make, threads, found, word = WRONG[name]
    report = check(source, make(), compiler, (threads,))
    assert [(e.kind, e.line) for e in report.errors] == [found], str(report)
    assert word in report.errors[0].message


def test_columns_count_characters_of_the_source(compiler):
    """Neither what the emulator puts into a line nor letters of several bytes move them."""
    plain = GLOBAL + "void k(float* x) {\n    x[threadIdx.x + 1] = 0;\n}"
    before = "__shared__ float s[32]; /* äöü */ s[threadIdx.x] = 0; "
    source = plain.replace("x[threadIdx.x", before + "x[threadIdx.x")
    (there,) = check(plain, (np.zeros(32, f32),), compiler).errors
    (error,) = check(source, (np.zeros(32, f32),), compiler).errors
    assert (error.line, error.column) == (2, there.column + len(before))
    with pytest.raises(CompileError) as caught:
        check(source.replace("x[threadIdx.x + 1]", "y[0]"), (np.zeros(32, f32),), compiler)
    assert caught.value.problems[0][:2] == (2, 5 + len(before))


ODD = """#include <cuda_fp16.h>
namespace tools { __device__ float twice(float x) { return 2 * x; } }
#define BUFFER(n) __shared__ float buffer[n];
#define ARGUMENTS float* x, int n
__shared__ int total;
__device__ float table[2]{1, 2};
__managed__ int calls;
typedef struct { float a[32]; int n; } Pad;
extern "C" __global__ void k(ARGUMENTS) {
    extern __shared__
    volatile float
    rows[][16]; static __shared__ float own[32];
    __shared__ struct { float a[32]; int n; } pair; __shared__ union { float f[32]; int i[32]; } either;
    __shared__ Pad pad; volatile __shared__ float loud[32];
    __shared__ float4 wide[32];
    BUFFER(32)
    int t = threadIdx.x;  // "__shared__ float no[3];" }
    if (t == 0) total = n;
    rows[t / 16][t % 16] = t; own[t] = t; pair.a[t] = t; either.i[t] = t; pad.a[t] = t; loud[t] = t; buffer[t] = t;
    wide[t] = make_float4(t, t, t, t);
    atomicAdd(&calls, 1);
    __syncthreads();
    int u = 31 - t;
    x[t] = rows[u / 16][u % 16] + own[u] + pair.a[u] + either.i[u] + pad.a[u] + loud[u] + buffer[u] + wide[u].w
         + tools::twice(table[t % 2]) + total;
}"""


def test_declarations_of_all_kinds(compiler):
    x, t = np.zeros(32, f32), np.arange(32)
    kernel = RawKernel(ODD, "k", compiler=compiler)
    kernel((1,), (32,), (x, i32(5)), shared_mem=128)
    np.testing.assert_array_equal(x, 8 * (31 - t) + 2 * (1 + t % 2) + 5)


def test_bytes_of_an_array_of_integers(compiler):
    """Threads that write different bytes of one integer do not race."""
    source = GLOBAL + "void k(unsigned* x) { ((unsigned char*)x)[threadIdx.x] = threadIdx.x; }"
    x = np.zeros(16, np.uint32)
    report = check(source, (x,), compiler, (64,))
    assert report.errors == [], str(report)
    np.testing.assert_array_equal(x.view(np.uint8), np.arange(64))


def test_a_flood_of_text_is_cut(compiler, capsys):
    source = GLOBAL + 'void k() { while (true) printf("hello from thread %d\\n", threadIdx.x); }'
    report = check(source, (), compiler, time_limit=0.5)
    assert [e.kind for e in report.errors] == ["infinite-loop"]
    assert len(report.printed) < 2**20 + 200
    assert report.printed.endswith("the rest is left out)\n")
    assert capsys.readouterr().out == report.printed


@pytest.mark.parametrize(
    ("line", "at", "message"),
    [
        ("if (n) { x[0] = 1;", (1, None), "'{' is never closed"),
        ("x[0] = 1; }", (3, 1), "'}' closes nothing"),
        ("float a[n]; for (int i = 0; i < n; i++) a[i] = i; x[0] = a[n / 2];", (2, None), "must be a constant"),
        ("__shared__ float s[32] = {0}; x[0] = s[0];", (2, 1), "cannot have an initial value"),
    ],
)  # fmt: skip
def test_compile_errors(line, at, message, compiler):
    source = GLOBAL + "void k(float* x, int n) {\n" + line + "\n}"
    with pytest.raises(CompileError, match="line") as caught:
        RawKernel(source, "k", compiler=compiler).compile()
    assert message in str(caught.value)
    found = caught.value.problems[0]
    assert found[0] == at[0]
    assert at[1] in (None, found[1])


def test_a_kernel_that_returns_something(compiler):
    with pytest.raises(CompileError, match="must return void"):
        RawKernel(GLOBAL + "int k(float* x) { return 1; }", "k", compiler=compiler).compile()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("float* p = (float*)malloc(16);", "line 2: malloc or new in a kernel"),
        ("float* p = new float[4];", "line 2: malloc or new in a kernel"),
        ("#define SHARED __shared__\n", "line 2: the emulator cannot see a __shared__ variable in a macro"),
    ],
)
def test_refused_with_advice(body, message):
    with pytest.raises(UnsupportedFeature, match=message):
        RawKernel(GLOBAL + "void k(float* x) {\n" + body + "}", "k").compile()


@pytest.mark.parametrize(
    ("args", "kw", "message"),
    [
        ((np.zeros(8, ">f4"), 8, 1), {}, "another byte order"),
        ((np.zeros(8, f32), 8, -1), {}, "'m' is unsigned; -1 does not fit into 4 bytes: it takes 0 to 4294967295"),
        (np.zeros(3, f32), {}, r"args is a ndarray, expected a tuple: .*\(x,\)"),
        ((np.zeros(8, f32), 8, 1), {"grid": (100 / 32,)}, r"grid is \(3.125,\): expected whole.*-\(-n // block\)"),
        ((np.zeros(8, f32), 8, 1), {"block": (64,)}, r"has 64 threads, the kernel's __launch_bounds__ allows 32"),
        ((np.zeros(8, f32), 8, 1), {"shared_mem": "48k"}, "shared_mem is '48k'"),
    ],
)  # fmt: skip
def test_wrong_launches(args, kw, message):
    kernel = RawKernel("__global__ void __launch_bounds__(32) k(float* x, int n, unsigned m) {}", "k")
    with pytest.raises((TypeError, ValueError), match=message):
        kernel.check(args=args, **{"grid": (1,), "block": (8,)} | kw)


@pytest.mark.parametrize(
    "options", ["-DN=3", ("/DN=3",), {"N": "3"}, (3,), ("-DN=3", "M=3"), ("--fmad=false", "N=3"), ("",)]
)
def test_options_are_a_tuple_of_options(options):
    """NVRTC refuses them; the emulated kernel ran without its macro."""
    with pytest.raises(TypeError, match=re.escape(f"options is {options!r}, expected a tuple such as ('-DN=16',)")):
        RawKernel("", "k", options)


@pytest.mark.parametrize(
    "options", [("-DN=3", "-D n", "-UCOUNT"), ("-D", "N=3", "--define-macro", "n"), ("--define-macro=N=3", " -Dn=1")]
)
def test_options_define_macros(options):
    """However NVRTC reads them, also where the emulator's own headers have the name, as of a parameter."""
    source, x = "__global__ void k(float* x) { x[0] = 10 * N + n; }", np.zeros(1, f32)
    RawKernel(source, "k", ("--use_fast_math", *options))((1,), (1,), (x,))
    assert x == 31


def test_constants_have_a_size_and_a_type():
    source = "namespace a { __constant__ float w[3]; __global__ void k(float* x) { x[threadIdx.x] = w[threadIdx.x]; } }"
    kernel, x = RawKernel(source, "a::k"), np.zeros(3, f32)
    for value, kind in ((np.zeros(1000, f32), ValueError), (np.zeros(2, f32), ValueError), (np.zeros(3), TypeError)):
        kernel.set_constant("w", value)
        with pytest.raises(kind, match="variable 'w' has 3 items of type float"):
            kernel((1,), (3,), (x,))
    kernel.set_constant("w", np.arange(3, dtype=f32))
    kernel((1,), (3,), (x,))
    np.testing.assert_array_equal(x, np.arange(3))


def test_places_in_arrays_of_arrays(compiler):
    source = (
        GLOBAL
        + """void k(float* x) {
        __shared__ float tile[4][8][3];
        if (threadIdx.x == 0) x[0] = tile[2][5][1];
    }"""
    )
    (error,) = check(source, (np.zeros(1, f32),), compiler).errors
    assert "reads tile[2][5][1], which no thread" in error.message


def test_a_pair_of_halves_is_one_access(compiler):
    source = (
        "#include <cuda_fp16.h>\n"
        + GLOBAL
        + """void k(const half2* x, half2* y) {
        __shared__ half2 s[32];
        s[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        half2 v = s[31 - threadIdx.x];
        y[threadIdx.x] = __hadd2(v, v);
    }"""
    )
    x, y = np.arange(64, dtype=np.float16), np.zeros(64, np.float16)
    report = check(source, (x, y), compiler)
    assert report.errors == [], str(report)
    np.testing.assert_array_equal(y, 2 * x.reshape(32, 2)[::-1].ravel())
    for array, access in (("x", "read"), ("y", "write"), ("s", "read"), ("s", "write")):
        site = report.find(array, access)
        assert (site.size, site.requests, site.lanes) == (4, 1, 32), str(report)


def test_half_and_warp_functions(compiler):
    source = (
        "#include <cuda_fp16.h>\n#include <math_constants.h>\n"
        + GLOBAL
        + """void k(half* sums, int* y, float* f) {
        int t = threadIdx.x, same;
        atomicAdd(&sums[0], __float2half(1.0f));
        atomicAdd((half2*)(sums + 2), __float2half2_rn(2.0f));
        half a = __int2half_rn(t), b = __float2half(3.5f);
        y[t] = __hge(a, b) + 2 * __hle(a, b) + 4 * __heq(a, a) + 8 * __hne(a, a) + 16 * __half2int_rz(b);
        y[32 + t] = __reduce_add_sync(~0u, t) + 1000 * __reduce_max_sync(~0u, t);
        y[32 + t] += 100000 * __reduce_min_sync(~0u, t + 1);
        unsigned lanes = __match_all_sync(~0u, t < 40, &same);
        y[64 + t] = same + 2 * (lanes == ~0u) + 4 * (__match_all_sync(~0u, t, &same) == 0) + 8 * same;
        y[96 + t] = __byte_perm(0x33221100, 0x77665544, 0x7150) == 0x77115500 && __sad(-3, 4, 1u) == 8;
        f[t] = t ? sinpif(0.5f) + norm3df(2, 3, 6) : -CUDART_INF_F;
    }"""
    )
    sums, y, f = np.zeros(4, np.float16), np.zeros((4, 32), i32), np.zeros(32, f32)
    report = check(source, (sums, y, f), compiler)
    assert report.errors == [], str(report)
    t = np.arange(32)
    assert sums.tolist() == [32, 0, 64, 64]
    np.testing.assert_array_equal(y[0], (t >= 3.5) + 2 * (t <= 3.5) + 4 + 48)
    assert (y[1] == 496 + 31000 + 100000).all()
    assert (y[2] == 1 + 2 + 4).all()
    assert y[3].all()
    assert f[0] == -np.inf
    np.testing.assert_allclose(f[1:], 8, rtol=1e-6)


MEETING = {  # threads that do not meet, after a race; the finding that stands first
    "barriers in both arms": (
        "if (t < 32) __syncthreads();\n    else { s[t] = s[t - 32]; __syncthreads(); }", ("divergent-barrier", 5)
    ),
    "lanes that do not come": ("x[t] = s[63 - t];\n    if (t == 3) __syncwarp(0xff);", ("missing-lanes", 6)),
    "shuffles in both arms": (
        "x[t] = s[63 - t];\n    float v = t;\n    if (t % 2) v = __shfl_sync(~0u, v, 0);\n"
        "    else v = __shfl_sync(~0u, v, 1);\n    x[t] += v;",
        ("divergent-warp-operation", 7),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MEETING)
def test_threads_that_do_not_meet_come_before_races(name, compiler):
    body, wanted = MEETING[name]
    source = f"""{GLOBAL}void k(float* x) {{
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    {body}
    __syncthreads();
}}"""
    report = check(source, (np.ones(64, f32),), compiler, block=(64,))
    assert "race" in [e.kind for e in report.errors]
    assert (report.errors[0].kind, report.errors[0].line) == wanted, str(report)


def test_the_caret_stands_under_the_column():
    source = GLOBAL + "void k(float* x) {\n\tfloat y = /* größe */ (float)(1 << n) + missing;\n\tx[0] = y;\n}"
    with pytest.raises(CompileError) as caught:
        RawKernel(source, "k").compile()
    lines = str(caught.value).split("\n")
    carets = [(lines[i - 1], line.index("^")) for i, line in enumerate(lines) if line.strip() == "^"]
    assert {line[at:].rstrip(";") for line, at in carets} == {"n) + missing", "missing"}  # clang complains of one twice


def test_using_a_namespace_of_the_host():
    source = "#include <opencv2/core.hpp>\nusing namespace cv;\n" + GLOBAL + "void k(float* x) { x[threadIdx.x] = 1; }"
    assert check(source, (np.ones(32, f32),), None).errors == []


def test_a_kernel_that_is_only_declared():
    with pytest.raises(CompileError, match=r"line 2: 'k' is declared here, but not defined"):
        RawKernel("\n" + GLOBAL + "void k(float* x);", "k").compile()
