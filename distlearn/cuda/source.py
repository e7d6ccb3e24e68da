"""What is done to CUDA C before a C++ compiler reads it, and what is refused with an explanation.

Nearly all of CUDA C is made valid C++ by the header `emulator/cuda_emu.h`. Four things need the text itself, and are
done on their own line, so that line numbers stay:

- `#include` of CUDA's and the C library's headers is blanked (the emulator's header has them all);
- `extern "C"` is blanked (names live in a namespace instead, where they cannot clash with the C library's);
- `extern __shared__ T x[];` becomes a pointer to dynamic shared memory, or an object that converts to one;
- after a `__shared__`, `__constant__` or `__device__` variable comes a call that tells the checker its name and size.
"""

from __future__ import annotations

import re

from distlearn.cuda.errors import CompileError, UnsupportedFeature

# A pattern and what to say when the source uses it. Words are matched outside comments and strings.
UNSUPPORTED = [
    (r"\basm\s*(volatile\s*)?\(|\b__asm", "inline PTX", "write it in CUDA C"),
    (r"\b(nvcuda::)?wmma\s*::|\bmma\.h\b|\bmma_sync\b", "tensor cores (wmma)", "use an ordinary matrix product"),
    (r"<<<", "dynamic parallelism (a launch from a kernel)", "launch the second kernel from Python"),
    (r"\bthis_grid\s*\(|\bgrid_group\b", "a barrier over the whole grid", "end the kernel and launch another"),
    (r"\bcooperative_groups\b", "cooperative groups", "use __syncthreads, __syncwarp and the __shfl functions"),
    (r"\bcuda::(barrier|pipeline|memcpy_async)|\b__pipeline_\w+|\bmemcpy_async\b", "asynchronous copies", "use a loop"),
    (r"\btex(1D|2D|3D)\w*\s*[(<]|\bsurf(1D|2D|3D)\w*\s*[(<]|\bcudaTextureObject_t\b", "textures", "read an array"),
    (r"\b(cub|thrust)::", "the libraries cub and thrust", "write the loop, or call CuPy from Python"),
    (r"\bcurand\w*\b", "random numbers of cuRAND", "draw them with NumPy and pass them in"),
    (r"\b__activemask\s*\(", "__activemask", "compute the mask with __ballot_sync before the branch"),
    (r"\b(clock|clock64|globaltimer)\s*\(", "clocks on the device", "time the launch from Python"),
    (r"\b(__nv_)?bfloat16\w*\b|\bnv_bfloat16\b", "bfloat16", "use half or float"),
    (r"\bcuda(Malloc|Free|Memcpy|DeviceSynchronize)\w*\s*\(", "host calls of the CUDA runtime", "allocate in Python"),
    (r"\b__shfl(_up|_down|_xor)?\s*\(|\b__(ballot|any|all)\s*\(", "shuffles without _sync, gone since Volta",
     "use __shfl_sync and its kin, with a mask"),
]  # fmt: skip

BLANKED = re.compile(
    r'^[ \t]*#[ \t]*include[ \t]*[<"]('
    r"cuda[\w./]*|device_launch_parameters\.h|math_constants\.h|vector_types\.h|sm_\w+\.h"
    r"|c?(assert|math|stdint|stddef|stdio|stdlib|string|float|limits)(\.h)?|cuda/std/\w+"
    r')[>"]',
    re.M,
)
GLOBAL_VARIABLE = re.compile(
    r"\b(?:__device__\s+|__constant__\s+|static\s+|const\s+)*__(?:constant|device)__\s+([^;=(){}]*?)(?:=[^;]*)?;"
)
DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\([^)]*\)\s*)?"
    r"((?:[\w:]+\s+)*[\w:]+(?:\s*<[^;>]*>)?\s*\**)\s*\b(\w+)\s*\[\s*\]\s*;"
)
WORDS = {"volatile", "float", "float2", "float4", "double", "double2", "int", "int2", "int4", "unsigned", "uint",
         "uint2", "uint4", "long"}  # fmt: skip
WARP_OR_BARRIER = re.compile(r"__sync(threads|warp)|__shfl|__ballot_sync|__any_sync|__all_sync|__match_any_sync")


def without_comments(source: str) -> str:
    """Return the source with comments and the contents of strings blanked; every character keeps its place."""

    def blank(match):
        text = match[0]
        if text[0] in "\"'":
            return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]
        return re.sub(r"[^\n]", " ", text)

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, source, flags=re.S)


def refuse_unsupported(source: str) -> None:
    """Raise `UnsupportedFeature` if the source uses what the emulator cannot run."""
    code = without_comments(source)
    for pattern, what, instead in UNSUPPORTED:
        if match := re.search(pattern, code):
            line = code.count("\n", 0, match.start()) + 1
            column = match.start() - code.rfind("\n", 0, match.start())
            text = source.splitlines()[line - 1].strip()
            message = f"line {line}: {what} cannot be run without a GPU: {instead}.\n    {text}"
            raise UnsupportedFeature(message, [(line, column, f"{what}: {instead}")])


def needs_fibres(source: str) -> bool:
    """Say whether the threads of a block meet anywhere; if not, they can run one after another in a plain loop."""
    return bool(WARP_OR_BARRIER.search(without_comments(source)))


def declared_names(declaration: str) -> list[str]:
    """Return the variables of a declaration: `float a[4][5], b` declares a and b."""
    names = []
    for part in split_commas(declaration.partition("=")[0] if "," not in declaration else declaration):
        if match := re.search(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)(?:=.*)?$", part.strip(), re.S):
            names.append(match[1])
    return names


def split_commas(text: str) -> list[str]:
    """Split at the commas that are not inside brackets."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current] if current.strip() else parts


def _dynamic_shared(text: str) -> str:
    """Give `extern __shared__ T x[]` a meaning: in a function a pointer, outside an object that turns into one."""
    code, depth, at, out = without_comments(text), [], 0, ""
    for match in DYNAMIC_SHARED.finditer(code):
        for brace in re.finditer(r"((?:namespace(?:\s+\w+)?)\s*)?\{|\}", code[at : match.start()]):
            if brace[0] == "}":
                depth = depth[:-1]
            else:
                depth.append(not brace[1])  # a namespace is not a function
        name, item = match[2], match[1].strip()
        inside = f"{item}* const {name} = ({item}*)emu_dynamic_shared();"
        out += text[at : match.start()] + (inside if any(depth) else f"static const emu::DynamicShared<{item}> {name};")
        at = match.end()
    return out + text[at:]


def dynamic_shared_alignment(source: str) -> int:
    """Return the bytes that races in dynamic shared memory are told apart by: 4, or 1 if its items may be smaller."""
    types = [m[1].split() for m in DYNAMIC_SHARED.finditer(without_comments(source))]
    return 4 if all(WORDS.issuperset(t) for t in types) else 1


def to_cpp(source: str) -> str:
    """Return CUDA C as the C++ that `emulator/cuda_emu.h` completes, line by line the same."""
    text = BLANKED.sub("", source)
    text = re.sub(r'extern\s+"C"\s*\{', "inline namespace emu_c {", text)
    text = re.sub(r'extern\s+"C"', lambda m: " " * len(m[0]), text)
    text = _dynamic_shared(text)
    code = without_comments(text)
    inserts = []
    for match in re.finditer(r"(?<!extern )\b__shared__\s+([^;={}]*);", code):
        inserts.append((match.end(), "".join(f" EMU_SHARED({n})" for n in declared_names(match[1]))))
    for match in GLOBAL_VARIABLE.finditer(code):
        constant = int("__constant__" in match[0])
        inserts.append((match.end(), "".join(f" EMU_GLOBAL({n}, {constant})" for n in declared_names(match[1]))))
    for at, insert in sorted(inserts, reverse=True):
        text = text[:at] + insert + text[at:]
    return text


def global_names(source: str) -> list[str]:
    """Return the names of the `__constant__` and `__device__` variables."""
    return [n for m in GLOBAL_VARIABLE.finditer(without_comments(source)) for n in declared_names(m[1])]


def parameter_names(source: str, name: str) -> list[str]:
    """Return the names of a kernel's parameters.

    Raises
    ------
    CompileError
        If the source has no kernel of that name; the message lists those it has.
    """
    code = without_comments(source)
    plain = name.partition("<")[0].strip()
    kernel = r"__global__\s[^;{}()]*(?:__launch_bounds__\s*\([^)]*\)\s*)?[^;{}()]*?\b%s\s*\("
    match = re.search(kernel % re.escape(plain), code)
    if not match:
        found = re.findall(kernel % r"(\w+)", code)
        raise CompileError(
            f"the source has no __global__ function {plain!r}; "
            + (f"it has {', '.join(found)}" if found else "it has none")
        )
    depth, end = 1, match.end()
    while depth and end < len(code):
        depth += (code[end] == "(") - (code[end] == ")")
        end += 1
    names = []
    for i, parameter in enumerate(split_commas(code[match.end() : end - 1])):
        word = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)?$", parameter.strip())
        names.append(word[1] if word else f"argument {i}")
    return [] if names == ["void"] else names
