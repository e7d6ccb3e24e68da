"""The source compiled for real cards, with no card: needs the wheel nvidia-cuda-nvrtc."""

import re

import pytest

from distlearn.cuda import CompilerNotFound, compile_check, has_nvrtc, nvrtc
from distlearn.cuda.emulator.build import RUNTIME

needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)")


@needs_nvrtc
def test_what_a_host_compiler_lets_pass():
    source = """extern "C" __global__ void f(float* x) {
    x[0] = size_of(x);
    FILE* y = 0;
}"""
    check = compile_check(source, ["sm_75", 90])
    assert not check.ok
    assert [(p.severity, p.line, p.column) for p in check.problems] == [
        ("error", 2, 12),
        ("error", 3, 5),
        ("error", 3, 11),
    ]
    assert "size_of" in check.problems[0].message
    assert "x[0] = size_of(x)" in str(check)


@needs_nvrtc
def test_infinity_is_known_as_to_nvcc():
    assert compile_check("__global__ void f(float* x) { x[0] = INFINITY; x[1] = NAN; }", [80]).ok
    assert compile_check("#define NAN 3\n__global__ void f(float* x) { x[0] = NAN; }", [80]).ok


@needs_nvrtc
@pytest.mark.parametrize("header", ["", "#include <cmath>\n"])
def test_functions_of_std_that_the_emulator_has_are_found_by_nvrtc(header):
    """nvcc finds them in the host's headers, with and without the #include; NVRTC has some of them nowhere."""
    names = re.findall(r"EMU_STD\((\w+)\)", (RUNTIME / "standard.h").read_text(encoding="utf-8"))[1:]
    given = dict.fromkeys(["atan2", "pow", "fmod", "fmin", "fmax", "hypot", "copysign", "remainder"], "a, b")
    given |= {"nextafter": "a, b", "fdim": "a, b", "ldexp": "a, 2", "frexp": "a, &i", "modf": "a, &b", "fma": "a, b, c"}
    calls = "".join(f"*x++ = std::{name}({given.get(name, 'a')});\n" for name in names)
    source = f"{header}__global__ void all_of_std(float* x, float a, float b, float c, int i) {{\n{calls}}}"
    assert len(names) > 50
    assert compile_check(source, [80]).ok, compile_check(source, [80])


@needs_nvrtc
def test_missing_header_and_too_much_shared_memory():
    (problem,) = compile_check("#include <cuda_nothing.h>\n__global__ void f() {}", [80]).problems
    assert problem.line == 1
    assert "cuda_nothing.h" in problem.message
    source = """extern "C" __global__ void f(float* x) {
        __shared__ float s[20000]; s[threadIdx.x] = 1; __syncthreads(); x[0] = s[3]; }"""
    (problem,) = compile_check(source, [80]).problems
    assert "too much shared data" in problem.message


@needs_nvrtc
def test_templates_and_sizes():
    source = "template <typename T> __global__ void twice(T* x) { x[threadIdx.x] *= T::none; }"
    assert compile_check(source, [80]).ok  # nobody asked for it, so nobody noticed
    assert not compile_check(source, [80], names=["twice<float>"]).ok
    good = source.replace("T::none", "2")
    check = compile_check(good, [75, 100], names=["twice<float>"])
    assert check.ok
    assert all(size > 500 for size in check.sizes.values())


@needs_nvrtc
def test_unknown_architecture():
    with pytest.raises(ValueError, match=r"does not compile for \{35\}, only for \("):
        compile_check("", ["sm_35"])


def test_not_installed(monkeypatch):
    monkeypatch.setattr(nvrtc, "_library", lambda: None)
    with pytest.raises(CompilerNotFound, match="needs no GPU"):
        compile_check("")


@needs_nvrtc
def test_places_in_odd_sources():
    """Letters of several bytes, a form feed, a bracket that is never closed: the line and column are the source's."""
    start = 'extern "C" __global__ void k(float* x) {'
    for source, place in (
        (start + "\n  /* äö😀 */ x[0] = yy;\n}", (2, 20)),
        (start + "\n\f\n\tx[0] = yy;\n}", (3, 9)),
        (start + "\n  if (x) {\n  x[0] = 1;\n}", (1, len(start))),
    ):
        (problem,) = compile_check(source, "sm_80").problems
        assert (problem.line, problem.column) == place, problem


@needs_nvrtc
def test_headers_of_the_library_are_cudas_own():
    source = """#include <cstdint>
#include <algorithm>
#include <iostream>
__global__ void f(float* x) { x[0] = std::max(uint8_t(3), uint8_t(x[1])); }
int main() { std::cout << 1; }"""
    assert compile_check(source, 80).ok
    (problem,) = compile_check("#include <string>\n__global__ void f(float* x) { std::string s; }", 80).problems[:1]
    assert problem.line == 2


@needs_nvrtc
def test_what_cannot_be_asked_for():
    with pytest.raises(ValueError, match="'sm_90x': expected a number such as 90"):
        compile_check("", ["sm_90x"])
    with pytest.raises(TypeError, match="tuples of strings"):
        compile_check("", [80], options="-DN=2")
