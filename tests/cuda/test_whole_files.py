"""A .cu file as it is: what is the host's is put aside, headers are read in, kernels are found behind macros."""

import numpy as np
import pytest

from distlearn.cuda import CompileError, RawKernel, UnsupportedFeature, compile_check, has_nvrtc
from distlearn.cuda.emulator.device_code import for_card, split
from distlearn.cuda.emulator.source import without_comments

i32, f32 = np.int32, np.float32

WHOLE = """#include <iostream>
#include <vector>
#include "helper_that_is_nowhere.h"
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define BOUNDS(a, b) __launch_bounds__((a) * (b), 2)
#define KERNEL extern "C" __global__ void
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { std::cerr << "no\\n"; exit(1); } } while (0)
#define MAKE(name, op) __global__ void name##_kernel(const float* a, const float* b, float* c, int n) { \\
        int i = blockIdx.x * blockDim.x + threadIdx.x; \\
        if (i < n) c[i] = a[i] op b[i]; }
using namespace std;
typedef struct { int width; float* elements; } Matrix;
#ifdef THRICE
__device__ float scaled(float x) { return 3 * x;
#else
__device__ float scaled(float x) { return 2 * x;
#endif
}
template <typename T, int N> struct Times { __device__ T operator()(T x) const { return x * N; } };
MAKE(add, +)
MAKE(subtract, -)
std::vector<float> data;
static int counter = 0;
float on_host(std::vector<float>& v) { return v[0] + counter; }
template <typename T, typename F>
__global__ void BOUNDS(32, (4)) apply(T* x, int n, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = f(x[i]);
}
KERNEL plain(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] = scaled(x[i]) + CEIL_DIV(n, 4); }
__global__ void sample(cudaTextureObject_t t) {}
int main(int argc, char** argv) {
    std::vector<float> v(10);
    float* d;
    CHECK(cudaMalloc(&d, 40));
    plain<<<CEIL_DIV(10, 4), 4>>>(d, 10);
    apply<float><<<1, 2>>>(d, 10, Times<float, 2>());
    std::cout << on_host(v) << std::endl;
    return 0;
}
"""


def test_a_kernel_of_a_whole_file(compiler):
    for options, factor in ((), 2), (("-DTHRICE",), 3):
        x = np.arange(10, dtype=f32)
        RawKernel(WHOLE, "plain", options, compiler=compiler)((1,), (16,), (x, i32(10)))
        np.testing.assert_array_equal(x, factor * np.arange(10) + 3)


def test_kernels_made_by_a_macro():
    a, b, c = np.arange(9, dtype=f32), np.ones(9, f32), np.zeros(9, f32)
    for name, wanted in (("add_kernel", a + b), ("subtract_kernel", a - b)):
        kernel = RawKernel(WHOLE, name)
        assert kernel.parameters == ["a", "b", "c", "n"]
        kernel((1,), (16,), (a, b, c, i32(9)))
        np.testing.assert_array_equal(c, wanted)


def test_a_template_by_its_name_expression():
    kernel, x = RawKernel(WHOLE, "apply<float, Times<float, 3>>"), np.arange(9, dtype=f32)
    kernel((1,), (16,), (x, i32(9), np.zeros(1, "V1")[0]))
    np.testing.assert_array_equal(x, 3 * np.arange(9))
    with pytest.raises(ValueError, match="__launch_bounds__ allows 128"):
        kernel((1,), (129,), (x, i32(9), np.zeros(1, "V1")[0]))


def test_what_is_refused_is_refused_for_the_kernels_that_use_it():
    with pytest.raises(UnsupportedFeature, match=r"line 31: textures .*hardware of their own"):
        RawKernel(WHOLE, "sample").compile()


def test_a_kernel_that_is_not_there():
    wanted = "no __global__ function 'on_host'; it has add_kernel, subtract_kernel, apply, plain, sample"
    with pytest.raises(CompileError, match=wanted):
        RawKernel(WHOLE, "on_host").compile()


def test_a_function_of_the_host_is_named():
    source = "float twice(float x) { return 2 * x; }\n__global__ void k(float* x) { x[0] = twice(x[0]); }"
    with pytest.raises(CompileError, match=r"line 2, (?s:.*)twice is a function of the host: write __device__"):
        RawKernel(source, "k").compile()
    parameter = source.replace("float* x)", "float* x, int twice)").replace("twice(x[0])", "twice")
    RawKernel(parameter, "k")((1,), (1,), (np.zeros(1, f32), i32(3)))


MEMBERS = {  # of the host, beside one of the device
    "marked": "__host__ void alloc(int m) { cudaMalloc(&d, m * 4); }",
    "unmarked": "void alloc(int m) { cudaMalloc(&d, m * 4); }",
    "constructor and destructor": "V(const std::vector<float>& x) : d(nullptr), n{0} { cudaMalloc(&d, x.size()); }\n"
    "~V() { cudaFree(d); }",
    "declared": "V(); void alloc(int); static V make(int n);",
    "std::string": "std::string name() const { return std::string(n, ' '); }",
    "nested": "struct Log { std::string text() { return printed(); } }; static std::string printed() { return {}; }",
    "behind a label": "public: V() = default; private: void grow() { cudaMallocManaged(&d, n *= 2); }\npublic:",
    "operator": "V& operator=(const V& other) { cudaMemcpy(d, other.d, 4, cudaMemcpyDefault); return *this; }",
}


@pytest.mark.nightly(but_every=3)
@pytest.mark.parametrize("template", [False, True])
@pytest.mark.parametrize("name", MEMBERS)
def test_host_members_of_a_struct_are_left_out(name, template):
    source = f"""#include <string>
{"template <typename T> " * template}struct V {{
    {MEMBERS[name]}
    {"T" if template else "float"}* d; int n;
    __host__ __device__ float& at(int i) const {{ return d[i]; }}
}};
__global__ void k(V{"<float>" * template} v) {{ int i = threadIdx.x; if (i < v.n) v.at(i) += 1; }}"""
    x = np.zeros(4, f32)
    v = np.array((x, 4), np.dtype([("d", "O"), ("n", "i4")], align=True))[()]
    assert RawKernel(source, "k").check((1,), (8,), (v,)).errors == []
    assert (x == 1).all()
    assert not has_nvrtc() or compile_check(source, 90, names=["k"]).ok


def test_a_host_member_that_a_kernel_calls_is_named():
    source = "struct V { float x; V(float a) : x(a) {} float twice() { return 2 * x; } };\n"
    for body, called in (("V v = {1}; x[0] = v.twice();", "V::twice"), ("V v(3.0f); x[0] = v.x;", "V::V")):
        kernel = RawKernel(source + f"__global__ void k(float* x) {{ {body} }}", "k")
        with pytest.raises(CompileError, match=f"line 2, (?s:.*){called} is a function of the host: write __device__"):
            kernel.compile()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "tile.cuh").write_text(
        "#pragma once\n#include <cstdio>\n#define SIZE 32\ntemplate <typename T> __device__ T first(const T* x) {\n"
        "    __shared__ T tile[SIZE];\n    tile[threadIdx.x] = x[threadIdx.x];\n    __syncthreads();\n"
        "    return tile[SIZE - 1 - threadIdx.x];\n}\n"
    )
    (tmp_path / "all.h").write_text('#include "common/tile.cuh"\n#include "common/tile.cuh"\nint main_of_header();\n')
    return tmp_path


HEADER_KERNEL = '#include "all.h"\n__global__ void k(float* x) {\n    x[threadIdx.x] = first(x);\n}\n'


def test_headers_of_its_own_are_translated_like_the_source(folder):
    x = np.arange(32, dtype=f32)
    RawKernel(HEADER_KERNEL, "k", (f"-I{folder}",))((1,), (32,), (x,))
    np.testing.assert_array_equal(x, np.arange(32)[::-1])


def test_places_in_headers(folder):
    report = RawKernel(HEADER_KERNEL, "k", (f"-I{folder}",)).check((1,), (32,), (np.zeros(31, f32),))
    error = report.errors[0]
    assert (error.kind, error.file, error.line, error.source.strip()) == (
        "out-of-bounds", "tile.cuh", 6, "tile[threadIdx.x] = x[threadIdx.x];"
    )  # fmt: skip
    assert "line 6 of tile.cuh" in str(error)
    header = folder / "common" / "tile.cuh"
    header.write_text(header.read_text().replace("= x[", "= y["))
    with pytest.raises(CompileError, match=r"line 6 of tile\.cuh, column") as caught:
        RawKernel(HEADER_KERNEL, "k", (f"-I{folder}",)).compile()
    assert caught.value.problems[0][0] == 6


def test_a_header_that_is_nowhere_is_named_if_it_may_matter():
    source = '#include "mine.h"\n__global__ void k(float* x) { x[0] = MINE; }'
    with pytest.raises(CompileError, match=r"header not found: mine.h; add their folder to the options: -I"):
        RawKernel(source, "k").compile()


@pytest.mark.parametrize(
    ("code", "kinds", "names"),
    [
        ("struct V { float x; __device__ float len() const { return x; } };", ["type"], {"V"}),
        ("typedef struct { int n; } *Pointer, Plain;", ["type"], {"Pointer", "Plain"}),
        ("enum Mode { FAST, SLOW = 3 };", ["type"], {"Mode", "FAST", "SLOW"}),
        ("struct V f(int n) { return {}; }", ["function"], {"f"}),
        ("template <int N = (3 > 2)> __device__ int f(const int (&a)[N]) { return a[0]; }", ["function"], {"f"}),
        ("__device__ V operator()(V a, V b) { return a; }", ["function"], {"operator"}),
        ("__constant__ float w[3] = {1, 2, 3}, v;", ["variable"], {"w", "v"}),
        ("using T = float; namespace a { namespace b { int c{3}; } }", ["type", "variable"], {"T", "c"}),
        ("__device__ void f(); __device__ void g() {} ; int x;", ["function", "function", "variable"], {"f", "g", "x"}),
        ("__global__ void __launch_bounds__((1 << 4) * 2) k(float (*p)[4]) {}", ["function"], {"k"}),
        ("auto f = [](int a) { return a; };", ["variable"], {"f"}),
        ("float V::len() const { return 1; }", ["function"], {"V", "len"}),
    ],
)
def test_declarations(code, kinds, names):
    found = split(without_comments(code))
    assert [d.kind for d in found] == kinds
    assert set().union(*(d.names for d in found)) == names


@pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
def test_what_a_card_is_given_has_nothing_of_the_host():
    kept = for_card(WHOLE).text.partition('"kernel.cu"\n')[2]
    assert "iostream" not in kept
    assert "main" not in kept
    assert kept.count("\n") == WHOLE.count("\n")
    assert compile_check(WHOLE, [80], names=["apply<float, Times<float, 2>>"]).ok
    plain = "__device__ int n;\n__global__ void k(float* x) { x[0] = n; }"
    assert for_card(plain).text == f'#line 1 "kernel.cu"\n{plain}'


@pytest.mark.parametrize("include", ["<mma.h>", "<torch/extension.h>", '"my_own_header.h"'])
def test_half_of_other_headers(include):
    """Names of half precision come with headers of others, too; of one that is not there nobody can say."""
    source = "__global__ void k(half* x) { x[threadIdx.x] = __float2half(2.0f); }"
    with pytest.raises(UnsupportedFeature, match="half needs #include"):
        RawKernel(source, "k").compile()
    x = np.zeros(32, np.float16)
    RawKernel(f"#include {include}\n{source}", "k")(1, 32, (x,))
    assert (x == 2).all()
