"""What the emulator runs, a card can be given: NVRTC compiles the text that CuPy gets, and finds the kernel in it.

No card is needed. conftest.py does the same with every kernel that any test of this folder builds.
"""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest

from distlearn.cuda import CompileError, RawKernel, UnsupportedFeature, compile_check, has_nvrtc, nvrtc
from distlearn.cuda.emulator.device_code import for_card
from distlearn.nn import MockDeviceArray
from tests.emulated import HOPPER, NEEDS_COMPILER, launched

__all__ = ["launched"]  # a fixture

pytestmark = pytest.mark.skipif(not has_nvrtc(), reason="NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
NOTEBOOKS = Path(__file__).parents[2] / "course" / "source"
MACROS = {"lab04": ("-DWIDTH=33",)}


def of_labs():
    """Every kernel in a cell of a solved lab, with the device functions of the lab that it calls."""
    for path in sorted(NOTEBOOKS.glob("*/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "\n".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code")
        tree = ast.parse(re.sub(r"^\s*[%!].*", "", code, flags=re.M))
        texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        for node in [n for n in tree.body if isinstance(n, ast.FunctionDef) and "return begin +" in ast.unparse(n)]:
            given = [n for n in tree.body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Constant)]
            exec(compile(ast.Module([*given, node], []), path.name, "exec"), names := {})
            pieces = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
            texts = [text for text in texts if text not in pieces] + [names[node.name]()]
        shared = [text for text in texts if "__device__" in text and "{" in text and "__global__" not in text]
        functions = {text: re.findall(r"__device__[^(]*?(\w+)\s*\(", text) for text in shared}
        for text in texts:
            for name in re.findall(r"__global__\s+void\s+(\w+)\s*\(", text if "{" in text else ""):
                needed = "".join(
                    t for t, own in functions.items() if t not in text and re.search(rf"\b({'|'.join(own)})\b", text)
                )
                yield needed + text, name, MACROS.get(path.stem, ())


@pytest.mark.nightly
@pytest.mark.parametrize("arch", [nvrtc.ARCHITECTURES[0], HOPPER])
def test_every_kernel_of_a_lab_compiles_and_is_found(arch):
    """Others are built by tests, and then compiled by conftest.py: all every night, a fourth with every commit."""
    known = list(of_labs())
    for code, name, options in known:
        card = for_card(code, options, [name])
        image, symbols, log = nvrtc.compile_as_cupy(card.text, card.options, (name,), arch)
        assert image is not None, f"{name}: {log}"
        assert b".text." + symbols[name].encode() + b"\0" in image, name
    assert len(known) > 10


ADD = "__global__ void k(float* x) { x[threadIdx.x] += 1; }"
NAMES = {  # name: source
    "k": ADD,
    "a::k": f"namespace a {{ {ADD} }}",
    "a::b::k": f"namespace a::b {{ {ADD} }}",
    "(void (*)(float*))k": ADD + ADD.replace("float*", "int*"),
    "static_cast<void (*)(float*)>(a::k)": f"namespace a {{ {ADD} {ADD.replace('float*', 'int*')} }}",
    "k<float>": "template <typename T> " + ADD.replace("float", "T"),
    "a::k<float, 2>": f"namespace a {{ template <typename T, int n> {ADD.replace('float', 'T')} }}",
    "k<>": "template <typename T = float> " + ADD.replace("float", "T"),
    "::k": ADD,
}


@NEEDS_COMPILER
@pytest.mark.parametrize("name", [*NAMES, "static", "namespace {}"])
def test_names_are_those_of_nvrtc(name, launched):
    code = NAMES.get(name) or {"static": f"static {ADD}", "namespace {}": f"namespace {{ {ADD} }}"}[name]
    kernel = RawKernel(code, name if name in NAMES else "k")
    x = np.zeros(32, np.float32)
    kernel((1,), (32,), (x,))
    there = MockDeviceArray(x.copy())
    kernel((1,), (32,), (there,))
    assert (there.get() == 2).all()
    assert len(launched()) == 1


@pytest.mark.nightly(but_every=3)
@NEEDS_COMPILER
@pytest.mark.parametrize(("code", "name"), [
    (ADD + ADD.replace("float", "int"), "k"), (f"namespace a {{ {ADD} }}", "k"), (NAMES["k<float>"], "k"),
    ("float twice(float x) { return 2 * x; }\n" + ADD.replace("+= 1", "= twice(1)"), "k"),
    (ADD.replace("+= 1", "= max(x[0], 2)"), "k"), ("using namespace cv;" + ADD.replace("+= 1", "= größe"), "k"),
    ("#include <cooperative_groups.h>\n" + ADD.replace("+= 1", "= tiled_partition(this_thread_block(), 8).shfl(1, 2)")
     .replace("__global__", "using namespace cooperative_groups; __global__"), "k"),
    (ADD.replace("void k", "void min"), "min"), ("extern \"C\" " + ADD.replace("void k", "void exp"), "exp"),
    (ADD.replace("+= 1", "= __half2float((half)2)"), "k"), (ADD.replace("+= 1", "= CUDART_PI_F"), "k"),
    ("struct V { float at(int i) { return i; } };\n" + ADD.replace("+= 1", "= V().at(1)"), "k"),
])  # fmt: skip
def test_both_refuse(code, name, launched):
    for array in (np.zeros(4, np.float32), MockDeviceArray(np.zeros(4, np.float32))):
        with pytest.raises(CompileError) as caught:
            RawKernel(code, name)((1,), (4,), (array,))
        assert ("host" in str(caught.value)) == ("twice" in code or "V()" in code)


KNOWN = [  # what nvcc knows without an include
    "int8_t a = 1; uint8_t b = 2; int16_t c = 3; uint16_t d = 4; x[0] = a + b + c + d;",
    "int32_t a = 1; uint32_t b = 2; int64_t c = 3; uint64_t d = 4; x[0] = a + b + c + d + (uintptr_t)x % 16;",
    "uint a = 3; ushort b = 4; ulong c = 5; x[0] = a + b + c;",
    "x[0] = INT_MAX / 2 + SHRT_MIN + UCHAR_MAX + FLT_EPSILON + (float)(DBL_MAX / DBL_MAX) + M_PI + CHAR_BIT;",
    "static_assert(offsetof(float4, z) == 8); x[0] = isinf(INFINITY) + isnan(NAN) + offsetof(float4, y) + pow(2, 3);",
    "x[0] = std::min(3, 4) + std::max(x[0], 1.0f) + std::numeric_limits<int>::digits + std::sqrt(4.0f);",
    "int a = 1, b = 2; std::swap(a, b); x[0] = a; std::array<int, 2> c = {1, 2}; x[0] += c[1];",
    "auto f = [=] __device__ (float v) { return v + 1; }; x[0] = f(x[0]);",
    "static_assert(std::is_same<uint32_t, unsigned>::value); x[0] = std::plus<float>()(1, 2);",
    "typedef unsigned long uint64_t; uint64_t n = 3; x[0] = n;",
]


@pytest.mark.nightly(but_every=3)
@NEEDS_COMPILER
@pytest.mark.parametrize("include", ["", "#include <cuda/std/cstdint>\n", "#include <cstdint>\n#include <cfloat>\n"])
def test_what_nvcc_has_without_an_include(include):
    functions = "".join(f"__device__ void f{i}(float* x) {{ {body} }}\n" for i, body in enumerate(KNOWN))
    calls = "".join(f"f{i}(x + {i}); " for i in range(len(KNOWN)))
    code = f"{include}{functions}__global__ void k(float* x) {{ {calls} }}"
    assert compile_check(code, HOPPER, names=["k"]).ok, str(compile_check(code, HOPPER))
    RawKernel(code, "k").compile()


@NEEDS_COMPILER
@pytest.mark.parametrize("call", ["rand()", "strlen(s)", "atoi(s)", "sprintf(s, s)", "memcmp(s, s, 3)", "exit(1)",
                                  "getenv(s)", "qsort(s, 1, 1, 0)", "abort()", "fprintf(stderr, s)"])  # fmt: skip
def test_functions_of_the_c_library_are_refused(call):
    code = f"__global__ void k(float* x, char* s) {{\n {call}; }}"
    with pytest.raises(UnsupportedFeature, match=rf"line 2: .*{call.partition('(')[0]}.* C library"):
        RawKernel(code, "k").compile()
    assert not compile_check(code, HOPPER).ok
    own = f"__device__ int {call.partition('(')[0]}() {{ return 1; }}\n__global__ void k(float* x) {{ x[0] = 1; }}"
    RawKernel(own, "k").compile()


@NEEDS_COMPILER
@pytest.mark.parametrize(
    "where",
    [
        "__constant__ float w[2];",
        "namespace a { namespace b { __constant__ float w[2]; } }",
        "static __constant__ float w[2];",
    ],
)
def test_variables_are_found_by_their_symbols(where, launched):
    inside = "a::b::" if "namespace" in where else ""
    kernel = RawKernel(f"{where}\n__global__ void k(float* x) {{ x[0] = {inside}w[1]; }}", "k")
    kernel.set_constant("w", np.ones(2, np.float32))
    module, _, symbols = kernel._compiled_by(MockDeviceArray(np.zeros(1)).__array_namespace__())
    module.get_global(symbols["w"])


def test_a_header_that_is_missing_is_named():
    log = 'kernel.cu(3): catastrophic error: could not open source file "cuda_fp16.h" (no directories in search list)\n'
    error = nvrtc.card_error("k", log, for_card("\n\n#include <cuda_fp16.h>\n" + ADD))
    assert 'line 3: could not open source file "cuda_fp16.h"' in str(error)
    assert 'pip install "distlearn[nvrtc]"' in str(error)
