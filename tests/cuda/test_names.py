"""Names of a source that the runtime has as well: kernels, functions, types and variables of any name compile."""

import re
import string
import subprocess

import numpy as np
import pytest

from distlearn.cuda import RawKernel
from distlearn.cuda.emulator import build, translate
from distlearn.cuda.emulator.compilers import COMMON, find_compiler
from distlearn.cuda.emulator.device_code import WORD, split
from distlearn.cuda.emulator.source import flatten

f32, i32 = np.float32, np.int32
FLAGS = [*COMMON, "-w", "-I", str(build.RUNTIME)]
KEYWORDS = set(
    WORD.findall(
        "alignas alignof and asm auto bitand bitor bool break case char class compl const const_cast "
        "constexpr continue decltype default delete do double dynamic_cast else enum explicit extern false "
        "final float for friend if inline int long namespace new noexcept not nullptr operator or override "
        "private protected public register reinterpret_cast return short signed sizeof static static_assert "
        "static_cast struct switch template this thread_local throw true try typedef typename union unsigned "
        "using virtual void volatile wchar_t while xor"
    )
)


def names(compiler):
    """Return every word of the runtime's headers that is neither a keyword nor a macro, nor marked as the runtime's."""

    def preprocessed(*options):
        command = [*compiler.command, "-x", "c++", *FLAGS, *options, "-E", "-include", "cuda_emu.h", "-"]
        return subprocess.run(command, input="", capture_output=True, text=True, check=True).stdout

    macros = set(re.findall(r"#define (\w+)", preprocessed("-dM")))
    words = set(WORD.findall(re.sub(r'#.*|"[^"]*"', "", preprocessed("-P"))))
    return sorted(w for w in words - macros - KEYWORDS if not re.match("(?i)emu|_", w))


def compiles(compiler, text, exported=""):
    command = [*compiler.command, "-x", "c++", *FLAGS, "-fsyntax-only", "-"]
    done = subprocess.run(command, input=build.unit(text, exported), capture_output=True, text=True, check=False)
    return done.stderr[:2000]


def test_every_name_of_the_runtime(compiler):
    compiler = find_compiler(compiler)
    every = names(compiler)
    assert {"norm", "min", "float4", "complex", "atomicAdd", "plus", "half"} <= set(every)
    kernels = "".join(f"__global__ void {name}(float* x) {{ x[threadIdx.x] = 1; }}\n" for name in every)
    renamed = [(d.begin, d.end, name) for d, name in zip(split(kernels), every, strict=True)]
    exported = "".join(f"template struct emu::Kernel<&emu_kernel::{translate.RENAMED}{name}>;\n" for name in every)
    exported = "} } " + exported + "namespace emu_kernel { inline namespace emu_source {"
    assert compiles(compiler, translate.to_cpp(kernels, flatten(kernels), renamed=renamed).text, exported) == ""
    types = "".join(f"struct {name} {{ float v; }};\n" for name in every)
    assert compiles(compiler, translate.to_cpp(types, flatten(types)).text) == ""
    variables = "".join(f"__device__ float {name};\n" for name in every)
    assert compiles(compiler, translate.to_cpp(variables, flatten(variables)).text) == ""


KERNEL = 'extern "C" __global__ void NAME(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] = VALUE; }'
SOURCES = {  # the text, in which x[i] becomes 2
    "shift": KERNEL.replace("VALUE", "min(x[i] + 2, 5.0f)"),
    "half": "template <int m> __global__ void half(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] = m; }",
    "max": "__device__ float max(float a, float b, float c) { return max(max(a, b), c); }\n"
    + KERNEL.replace("VALUE", "max(x[i], 1.0f, max(2.0f, 1.0f))"),
    "rsqrt": "__device__ float rsqrt(float a) { return 2; }\n" + KERNEL.replace("VALUE", "rsqrt(x[i])"),
    "cuComplex": "struct cuComplex { float r, i; __device__ float magnitude2() { return r * r + i * i; } };\n"
    + KERNEL.replace("VALUE", "cuComplex{1, 1}.magnitude2()"),
    "plus": "struct plus { __device__ float operator()(float a, float b) { return a + b; } };\n"
    + KERNEL.replace("VALUE", "plus()(x[i], 2)"),
    "float4": "__device__ float4 operator+(float4 a, float b) { return make_float4(a.x + b, a.y, a.z, a.w); }\n"
    + KERNEL.replace("VALUE", "(make_float4(x[i], 0, 0, 0) + 2.0f).x"),
    "hypot": "template <class T> __device__ T hypot(T a) { return hypot(a, T(0)); }\n"
    + KERNEL.replace("VALUE", "hypot(x[i] + 2)"),
    "gamma": "__device__ float gamma(float y0) { return y0 + 2; }\n"  # names of the C library
    + KERNEL.replace("VALUE", "gamma(x[i])").replace("NAME", "index"),
    "swap": "__device__ void swap(float* a, float* b) { float t = *a; *a = *b; *b = t; }\n"
    "__device__ float swapped(float* x) { float two = 2; swap(x, &two); return *x; }\n"
    + KERNEL.replace("VALUE", "swapped(x + i)"),
}  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_names(name, run):
    source = SOURCES[name].replace("NAME", "shift" if name == "shift" else "k")
    kernel = "half<2>" if name == "half" else re.search(r"void (\w+)\(float\* x, int n\)", source)[1]
    x, _ = run(source, kernel, (1,), (32,), (np.zeros(4, f32), i32(4)))
    np.testing.assert_array_equal(x, 2)


def test_an_error_in_a_kernel_with_a_name_of_the_runtime():
    source = "__device__ float max(float a, float b, float c) { return a; }\n" + KERNEL.replace("NAME", "index")
    with pytest.raises(build.CompileError, match=r"line 2, column \d+: .*nothing"):
        RawKernel(source.replace("VALUE", "nothing"), "index").compile()


def test_macros_of_one_letter(compiler):
    """The emulator's own lines come after those of the source: a `#define K 512` is not theirs."""
    macros = "".join(f"#define {letter} 7\n" for letter in string.ascii_uppercase)
    source = (
        macros
        + """struct Pair { float one; int two; };
    __constant__ float table[4];
    __global__ void many(float* out, const float4* in, Pair* pairs, int count) {
        extern __shared__ float dynamic[];
        __shared__ float tile[32][33];
        int t = threadIdx.x;
        tile[0][t] = in[t].x + table[0];
        dynamic[t] = tile[0][t];
        __syncthreads();
        float sum = __shfl_down_sync(0xffffffff, tile[0][t], 1) + dynamic[31 - t];
        atomicAdd(&out[0], sum); pairs[t].two = (int)sum + __popc(t);
        assert(count > 0);
        if (t == 0) printf("%d", count + Q);
        if (count < 0) __trap();
    }"""
    )
    given = np.zeros(8, np.float32), np.zeros(128, np.float32).view("f4,f4,f4,f4"), np.zeros(32, "f4,i4"), np.int32(3)
    report = RawKernel(source, "many", compiler=compiler).check(1, 32, given, shared_mem=128)
    assert (report.errors, report.printed) == ([], "10")
