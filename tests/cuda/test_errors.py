"""Mistakes before a launch: each error says what was wrong and what to do."""

from types import SimpleNamespace

import numpy as np
import pytest

from distlearn.cuda import CompileError, CompilerNotFound, KernelError, RawKernel, UnsupportedFeature
from distlearn.cuda.emulator import compilers

i32, f32 = np.int32, np.float32
SAXPY = """extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}"""
X = np.ones(8, f32)


def launch(*args, grid=(1,), block=(8,), **kw):
    RawKernel(SAXPY, "saxpy")(grid, block, args, **kw)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((f32(2), X, X), r"takes 4 arguments \(float a, const float\* x, float\* y, int n\), got 3"),
        ((2.0, X, X, i32(8)), r"argument 'a' is float; got a NumPy float64.*Pass np.float32"),
        ((f32(2), X.astype(float), X, i32(8)), r"argument 'x' is const float\*; got an array of float64, shape \(8,\)"),
        ((f32(2), X, f32(1), i32(8)), r"argument 'y' is float\*, an array; got a NumPy float32"),
        ((f32(2), X, X, f32(8)), r"argument 'n' is int; got a NumPy float32.*Pass np.int32"),
        ((f32(2), X, X, 2**40), r"argument 'n' is int; 1099511627776 does not fit into 4 bytes"),
        ((f32(2), [1.0], X, i32(8)), r"argument 'x' .* got a Python list"),
    ],
)
def test_wrong_arguments(args, message):
    with pytest.raises(TypeError, match=message):
        launch(*args)


def test_array_with_gaps():
    with pytest.raises(ValueError, match="ascontiguousarray"):
        launch(f32(1), np.ones(16, f32)[::2], X, i32(8))


def test_python_integers_are_taken():
    y = np.zeros(8, f32)
    launch(f32(2), X, y, 8)
    assert (y == 2).all()


@pytest.mark.parametrize(
    ("geometry", "message"),
    [
        ({"block": (1025,)}, "block is .*1025.*x must be between 1 and 1024"),
        ({"block": (32, 32, 2)}, "has 2048 threads"),
        ({"grid": (0,)}, "grid is .*0.*between 1"),
        ({"grid": (1, 70000)}, "y must be between 1 and 65535"),
        ({"shared_mem": 1 << 20}, "shared_mem is 1048576"),
    ],
)
def test_wrong_geometry(geometry, message):
    with pytest.raises(ValueError, match=message):
        launch(f32(1), X, X, i32(8), **geometry)


def test_compile_error_is_at_the_students_line(compiler):
    with pytest.raises(CompileError, match="line 3, column") as caught:
        RawKernel(SAXPY.replace("a * x[i]", "a * z[i]"), "saxpy", compiler=compiler).compile()
    line, _, message = caught.value.problems[0]
    assert line == 3
    assert "z" in message
    assert "y[i] = a * z[i]" in str(caught.value)


def test_wrong_kernel_name():
    with pytest.raises(CompileError, match=r"no __global__ function 'sapxy'; it has saxpy"):
        RawKernel(SAXPY, "sapxy").compile()


@pytest.mark.parametrize("given", [(SAXPY.encode(), "saxpy"), (None, "saxpy"), (SAXPY, 3)], ids=str)
def test_what_is_no_source_is_named(given):
    with pytest.raises(TypeError, match=r"RawKernel\(code, name\): strings; got"):
        RawKernel(*given)


def test_arrays_of_another_library_are_named():
    class Foreign:
        shape, dtype = (32,), np.dtype("f4")

        def __array_namespace__(self, **kwargs):
            return SimpleNamespace(__name__="another.numpy")

    with pytest.raises(TypeError, match=r"saxpy: arrays of another\.numpy, expected NumPy or CuPy arrays"):
        RawKernel(SAXPY, "saxpy")((1,), (32,), (Foreign(),))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('asm("add.f32 %0, %1, %2;");', "inline PTX"),
        ("nvcuda::wmma::bmma_sync(d, a, b, c);", "tensor cores of 4 bits and of 1 bit"),
        ("child<<<1, 32>>>(x);", "dynamic parallelism"),
        ("cooperative_groups::this_grid().sync();", "whole grid"),
        ("auto g = cooperative_groups::this_grid();\n    g.sync();", "whole grid"),
        ("x[0] = tex2D<float>(t, 0, 0);", "textures"),
        ("long long t = clock64();", "clocks"),
        ("cuda::binary_semaphore<cuda::thread_scope_device> s(1);", "semaphores"),
        ("float* p; cudaMalloc(&p, 4);", "host calls"),
    ],
)
def test_unsupported_features_are_named_with_their_line(line, what):
    source = f'extern "C" __global__ void f(float* x) {{\n    // asm( in a comment is no matter\n    {line}\n}}'
    at = 3 + line.count("\n")
    with pytest.raises(UnsupportedFeature, match=f"line {at}: .*{what}") as caught:
        RawKernel(source, "f").compile()
    assert caught.value.problems[0][0] == at


def test_a_template_of_variables():
    source = """/* of weights */ template <class T> __constant__ T mask[9];
    __global__ void k(float* x) { x[0] = mask<float>[1]; }"""
    with pytest.raises(UnsupportedFeature, match="line 1: templates of __constant__ and __device__ variables"):
        RawKernel(source, "k").compile()


def test_no_compiler(monkeypatch):
    monkeypatch.setattr(compilers, "find_compilers", lambda: ())
    monkeypatch.delenv("DISTLEARN_CXX", raising=False)
    with pytest.raises(CompilerNotFound, match="pip install ziglang"):
        RawKernel(SAXPY, "saxpy").compile()


def test_a_compiler_that_is_not_there():
    with pytest.raises(CompilerNotFound, match="no turbo compiler was found"):
        RawKernel(SAXPY, "saxpy", compiler="turbo").compile()


def test_constant_that_does_not_exist():
    with pytest.raises(KernelError, match="no __constant__ or __device__ variable 'weights'"):
        RawKernel(SAXPY, "saxpy").set_constant("weights", X)


@pytest.mark.parametrize(("size", "dynamic"), [(10000, 20000), (16384, 0)])
def test_too_much_shared_memory(size, dynamic, compiler):
    source = f"""extern "C" __global__ void f(float* x) {{
        extern __shared__ float s[]; __shared__ float t[{size}];
        float* p = {dynamic} ? s : t;
        p[threadIdx.x] = t[threadIdx.x] = 1; __syncthreads(); x[threadIdx.x] = p[threadIdx.x] + t[threadIdx.x];
    }}"""
    report = RawKernel(source, "f", compiler=compiler).check((1,), (32,), (np.zeros(32, f32),), shared_mem=dynamic)
    (error,) = report.errors
    assert error.kind == "shared-memory-limit"
    assert dynamic or "only dynamic shared memory (extern __shared__) may be larger" in error.message


def test_built_kernels_are_cached(compiler, monkeypatch):
    RawKernel(SAXPY, "saxpy", compiler=compiler).compile()
    from distlearn.cuda.emulator import build

    monkeypatch.setattr(build.subprocess, "run", lambda *a, **k: pytest.fail("the compiler was called again"))
    RawKernel(SAXPY, "saxpy", compiler=compiler).compile()


MISTAKES = {
    "through a null pointer": "int* p = nullptr; x[0] = *p;",
    r"at address 0x8, through a null pointer": "const float* p = threadIdx.x < 2 ? y : nullptr; x[0] = p[threadIdx.x];",
    "calls a function through a null pointer": "float (*f)(float) = x[0] == 1 ? nullptr : &twice; x[0] = f(3);",
    "shared memory whose size only the launch knows is `extern __shared__": "__shared__ float s[TWO * (int)x[0]];",
    "dynamic shared memory, byte offset 0, but it has 0 bytes": "extern __shared__ float s[]; s[0] = 1;",
    "put_one is a kernel: device code cannot call it": "put_one(x);",
    "y is const here: it cannot be written": "y[threadIdx.x] = 3;",
    "the library cuFFT": "cufftComplex c;",
    "scales and floats of 8, 6 and 4 bits": "__nv_fp4_e2m1 c;",
    r"rand is a function of the C library": "x[0] = rand();",
    "the library CuTe": "auto t = cute::make_tensor(x, 3);",
    "divides the smallest integer by -1": "int i = -2147483647 - (int)y[0]; x[0] = i / (int)-y[0];",
}


@pytest.mark.parametrize("message", MISTAKES)
def test_is_said_to_be_what_it_is(message, compiler):
    source = "#define TWO 2\n__device__ float twice(float v) { return 2 * v; }\n"
    source += "__global__ void put_one(float* x) { x[0] = 1; }\n"
    source += f'extern "C" __global__ void k(float* x, const float* y) {{ {MISTAKES[message]} }}'
    with pytest.raises((KernelError, CompileError, UnsupportedFeature), match=message):
        RawKernel(source, "k", compiler=compiler)((1,), (32,), (X.copy(), X))
