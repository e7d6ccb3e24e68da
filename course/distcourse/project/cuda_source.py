"""Rules for a `.cu` that is handed in: the words it may use; whatever else would reach past the emulator's counts."""

from __future__ import annotations

import re

from .reading import Refused, text_of

MOST_LINES, MOST_BYTES = 400, 2**15
_TYPES = """
void bool char short int long unsigned signed float double float2 float3 float4 int2 int3 int4 uint2 uint4 size_t
uint32_t int32_t uint64_t int64_t auto"""
_QUALIFIERS = "const constexpr __restrict__ __shared__ __global__ __device__ __forceinline__ inline"
_CONTROL = """
if else for while do switch case default return break continue true false sizeof reinterpret_cast static_cast
threadIdx blockIdx blockDim gridDim warpSize"""
_FUNCTIONS = """
sqrtf rsqrtf fmaf fabsf fmaxf fminf min max abs floorf ceilf __fdividef __fmaf_rn __fadd_rn __fmul_rn __fsqrt_rn
__frsqrt_rn __frcp_rn __fdiv_rn __syncthreads __syncwarp __shfl_sync __shfl_xor_sync __shfl_down_sync __shfl_up_sync
__ballot_sync __any_sync __all_sync atomicAdd atomicMax atomicMin make_float2 make_float3 make_float4 make_int2
make_int4 __ldg __float2int_rn __int2float_rn"""
TYPES, QUALIFIERS, FUNCTIONS = set(_TYPES.split()), set(_QUALIFIERS.split()), set(_FUNCTIONS.split())
WORDS = TYPES | QUALIFIERS | FUNCTIONS | set(_CONTROL.split())
REASONS = {
    "state that outlives a launch": "static __managed__ __constant__ thread_local extern",
    "hides accesses from the counts": "volatile union",
    "changes what is compiled and counted": "__attribute__ _Pragma __pragma alignas pragma",
    "a kernel must not know the time": "clock clock64 __nanosleep",
    "redefines names": "operator namespace using typedef define undef",
    "not needed here, and refused": "template struct class enum goto new delete throw try catch decltype friend",
    "moves the counts to other lines": "line",
    "reads other files": "include include_next embed",
    "may detect the judge": "if ifdef ifndef elif __CUDA_ARCH__ __FILE__ __LINE__ __COUNTER__",
}
WHY = {word: reason for reason, words in REASONS.items() for word in words.split()}
FORBIDDEN = [
    (r"\basm\b|\b__asm", "inline assembly is not counted"),
    (r"\?\?[=/'()!<>-]|%:|<:|:>|<%|%>", "digraphs and trigraphs are refused"),
    (r"[\"'`@$]", "texts and characters are not needed"),
    (r"\(\s*[*&]+\s*(?:const\s*)?\w*\s*(?:\[\s*\w*\s*\]\s*)?\)\s*\(", "a pointer to a function calls what nobody sees"),
    (rf"\b(?:{'|'.join(TYPES)})\s*\(\s*(?:{'|'.join(FUNCTIONS)})\s*\)", "redefines a word of CUDA"),
    (r"::", ":: reaches names of the host"),
    (r"\[\s*\[", "attributes change what is compiled and counted"),
    (
        r"\b(?:char|short|int|long|unsigned|signed|size_t|void|u?int\d+_t|u?int[234])\s*(?:const\s*)?[*&]",
        "a pointer that is not to floats: operations on integers are not counted",
    ),
    (r"\blong\s+double\b|\bdouble\s+long\b", "long double is not counted"),
]
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\.\d[\w.]*|->|\S")
SUFFIX = "_u"
"""Every name of a source ends in it when it is compiled, so that none is a name of the host's or the emulator's."""


def check_source(data: bytes, name: str, kernel: str) -> str:
    """Return a source that follows the rules, ready to be compiled, or refuse it with the line."""
    text = text_of(data, name)
    if len(data) > MOST_BYTES or text.count("\n") > MOST_LINES:
        raise Refused(f"{name}: {MOST_BYTES:,} bytes and {MOST_LINES} lines are allowed")

    def no(at: int, why: str):
        raise Refused(f"{name}, line {text.count(chr(10), 0, at) + 1}: {why}")

    if found := re.search(r"(\\|\?\?/)[ \t]*\n", text):  # it would join a comment with the next line
        no(found.start(), "a backslash at the end of a line: lines that go on are refused")
    code = re.sub(
        r'//[^\n]*|/\*.*?\*/|\bextern\s*"C"', lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S
    )  # as long
    if found := re.search(r"#[ \t]*(\w*)[^\n]*", code):
        pastes = "## pastes words together" if "##" in found[0] else f"#{found[1]}: {WHY.get(found[1], 'refused')}"
        no(found.start(), pastes)
    for pattern, why in FORBIDDEN:
        if found := re.search(pattern, code):
            no(found.start(), why)
    if len(re.findall(rf"\b__global__\s+void\s+{kernel}\s*\(", code)) != 1:
        raise Refused(f'{name}: expected one kernel, extern "C" __global__ void {kernel}(...)')
    return re.sub(rf"\b__global__(?=\s+void\s+{kernel}\b)", 'extern "C" __global__', _renamed(code, no, kernel))


def _renamed(code: str, no, kernel: str) -> str:
    """Refuse words that reach out, and what is kept outside functions; mark all names as the source's own."""
    out, stack, before, first = [], [], "", ""  # `first`: of the statement
    for match in TOKEN.finditer(code):
        word, at = match[0], match.start()
        first = first or word
        if word in "([{":
            stack.append(("values" if before == "=" else word, first))
            first = "" if stack[-1][0] == "{" else first
        elif word in ")]}":
            if not stack:
                no(at, f"this {word} closes nothing")
            kind, first = stack.pop()
            first = "" if kind == "{" else first
        elif word == ";":
            if not stack and first not in (";", "constexpr"):
                no(at, "a declaration outside functions: state that outlives a launch, or a name of the host")
            first = ""
        elif re.match(r"[A-Za-z_]", word):
            if before in (".", "->"):
                if word not in ("x", "y", "z", "w"):
                    no(at, f".{word}: expected .x, .y, .z or .w")
            elif word in WORDS:
                if before in TYPES and word not in TYPES | QUALIFIERS:
                    no(at, f"{word}: redefines a word of CUDA")
            elif word in WHY or word.startswith("_"):
                no(at, f"{word}: {WHY.get(word, 'not among the words that are allowed')}")
            elif word != kernel:
                out.append((match.end(), SUFFIX))
        before = word
    for at, suffix in reversed(out):
        code = code[:at] + suffix + code[at:]
    return code
