"""CUDA C text: comments, lines and brackets, a source's own headers, branches of `#if`, unsupported features."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.M)  # with the lines that a backslash adds
# Of a cooperative group of the grid; `NAMES` is replaced with the variables that hold one.
GRID_BARRIER = r"\bthis_grid\s*\(\s*\)\s*\.\s*sync\b|\b(?:NAMES)\s*\.\s*sync\b|\bsync\s*\(\s*(?:NAMES)\s*\)"
GRID_GROUP = re.compile(r"\bgrid_group\s*&?\s*(\w+)|\b(\w+)\s*=\s*[\w:\s]*\bthis_grid\s*\(")
# A pattern and the error when the source uses it. Words are matched outside comments and strings.
UNSUPPORTED = [
    (r"\basm\s*(volatile\s*)?\(|\b__asm", "inline PTX", "it is specific to NVIDIA's processors, write it in CUDA C"),
    (r"\bexperimental\s*::\s*(precision|bmma)|\bbmma_sync\b", "tensor cores of 4 bits and of 1 bit", "use signed char"),
    (GRID_BARRIER, "a barrier over the whole grid", "blocks run one after another here, so they cannot wait for each "
     "other; end the kernel and launch another"),
    (r"<< ?<", "dynamic parallelism (a launch from a kernel)", "launch the second kernel from Python"),
    (r"\bthis_multi_grid\s*\(|\bmulti_grid_group\b", "a group over several GPUs", "launch a kernel for each"),
    (r"\bcuda::(barrier|pipeline|memcpy_async|ptx)\b|\b__pipeline_\w+|\bmemcpy_async\b", "asynchronous copies",
     "use a loop"),
    (r"\bcuda::(std::)?(binary|counting)_semaphore\b", "semaphores", "use a lock of atomicCAS and __threadfence"),
    (r"\btex(1D|2D|3D|Cubemap)\w*\s*[(<]|\bsurf(1D|2D|3D)\w*\s*[(<]|\bcuda(Texture|Surface)Object_t\b"
     r"|\btexture\s*<", "textures", "they are read by hardware of their own, read an array"),
    (r"\bcub::|\bthrust::(?!(complex|conj|norm|abs|arg|real|imag|exp|log|sqrt|polar|pair|swap|plus|maximum|minimum)\b)",
     "the libraries cub and thrust", "write the loop, or call CuPy from Python"),
    (r"\bcufft\w*\b", "the library cuFFT", "call numpy.fft from Python"),
    (r"\b__nv_fp(8\w*e8m0|6\w*|4\w*)\b", "scales and floats of 8, 6 and 4 bits", "round a float to their values"),
    (r"\b(cute|cutlass)\s*::|\busing\s+namespace\s+(cute|cutlass)\b", "the library CuTe", "write the loop"),
    (r"\bcurand\w*\b", "random numbers of cuRAND", "draw them with NumPy and pass them in"),
    (r"\b(clock|clock64|globaltimer)\s*\(", "clocks on the device", "time the launch from Python"),
    (r"(?<!\.)(?<!>)\b(malloc|free)\s*\(|\bnew\s+\w|\bdelete\s*(\[\s*\]\s*)?\w", "malloc or new in a kernel",
     "pass an array in"),
    (r"\bcuda(Malloc|Free|Memcpy|DeviceSynchronize)\w*\s*\(", "host calls of the CUDA runtime", "allocate in Python"),
]  # fmt: skip
# Functions that the emulator's C library has, and neither nvcc nor NVRTC in a kernel.
C_LIBRARY = re.compile(
    r"(?<![.>:\w])(?:std::)?(s?rand|exit|abort|atexit|system|getenv|ato(?:f|i|ll?)|strto\w+"
    r"|str(?:len|n?cmp|n?cpy|n?cat|chr|str|dup)|mem(?:cmp|move|chr)|qsort|bsearch|(?:f|s|sn|v|vf|vs|vsn)printf|puts"
    r"|putchar|scanf|f(?:open|close|read|write|flush|puts))\s*\("
)


def without_comments(source: str) -> str:
    """Return the source with comments and the contents of strings blanked; every character keeps its place."""

    def blank(match):
        text = match[0]
        if text[0] in "\"'":
            return text[0] + spaces(text[1:-1]) + text[-1]
        return spaces(text)

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, source, flags=re.S)


def without_directives(code: str) -> str:
    """Return the text with `#` lines blanked."""
    return DIRECTIVE.sub(lambda m: spaces(m[0]), code)


def lines_of(source: str) -> list[str]:
    """Return the lines as compilers count them: `str.splitlines` would also split at a form feed."""
    return [line.rstrip("\r") for line in source.split("\n")]


def position(text: str, at: int) -> tuple[int, int]:
    """Return the line and column, from 1, of a character."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def closing(text: str, at: int) -> int:
    """Return the place after the bracket that closes the one at `at` (the end of the text if none does)."""
    pairs, opened = {")": "(", "]": "[", "}": "{"}, []
    for match in re.compile(r"[()\[\]{}]").finditer(text, at):
        if match[0] in "([{":
            opened.append(match[0])
        elif opened and opened[-1] == pairs[match[0]]:
            opened.pop()
            if not opened:
                return match.end()
    return len(text)


def bracketed(text: str, at: int) -> tuple[list[str] | None, int]:
    """Return what is listed in the `(...)` that follows a place, and where it ends; without one None and the place."""
    match = re.compile(r"\s*\(").match(text, at)
    if not match:
        return None, at
    end = closing(text, match.end() - 1)
    return split_commas(text[match.end() : end - 1]), end


def unbalanced(source: str) -> tuple[int, int, str] | None:
    """Return line, column and message for the first unmatched bracket, or None."""
    code, opened = without_comments(source), []
    for match in re.finditer(r"[(){}\[\]]", code):
        if match[0] in "([{":
            opened.append(match)
        elif not opened or opened[-1][0] + match[0] not in ("()", "[]", "{}"):
            if opened and match[0] == "}":  # a bracket was left open inside the braces
                break
            return (*position(code, match.start()), f"this '{match[0]}' closes nothing")
        else:
            opened.pop()
    return (*position(code, opened[-1].start()), f"this '{opened[-1][0]}' is never closed") if opened else None


def split_commas(text: str) -> list[str]:
    """Split at the commas that are not inside brackets."""
    parts, depth, angles, current = [], 0, 0, ""
    for character in re.findall("<<|.", text, re.S):  # a shift is no bracket
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            angles += (character == "<") - (character == ">" and angles > 0)
        if character == "," and depth == angles == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current] if current.strip() else parts


CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b")
MACRO = re.compile(r"[ \t]*#[ \t]*(define|undef)\b")


def spaces(text: str) -> str:
    """Replace all characters with spaces, except ends of lines."""
    return re.sub(r"[^\n]", " ", text)


def taken_branches(text: str, preprocessor) -> str:
    """Blank the lines in branches of `#if` that a preprocessor does not take, and the `#if` lines themselves."""
    # It is given the conditions and macros, and a placeholder for every other line: what returns is taken.
    code = without_comments(text)
    asked = [f"emu_line_{number}_" for number in range(code.count("\n") + 1)]
    first_of = list(range(len(asked)))  # by line: the first line of the directive it belongs to
    for match in DIRECTIVE.finditer(code):
        first, more = code.count("\n", 0, match.start()), match[0].count("\n")
        first_of[first : first + more + 1] = [first] * (more + 1)
        if CONDITION.match(match[0]):
            asked[first] = match[0]
        elif MACRO.match(match[0]):
            asked[first] += f"\n{match[0]}"
        asked[first + 1 : first + more + 1] = [""] * more
    if not any(map(CONDITION.match, asked)):
        return text
    taken = {int(n) for n in re.findall(r"\bemu_line_(\d+)_", preprocessor("\n".join(asked)))}
    lines = zip(text.split("\n"), first_of, strict=True)
    return "\n".join(line if first in taken else spaces(line) for line, first in lines)


def first_branches(code: str) -> str:
    """Blank the text between `#else` (or `#elif`) and `#endif`; comments must be blanked."""
    out, depth, blank = [], 0, []
    for line in code.split("\n"):
        match = CONDITION.match(line)
        word = match[1] if match else ""
        if word.startswith("if"):
            depth += 1
        elif word.startswith("el") and depth not in blank:
            blank.append(depth)
        elif word == "endif":
            blank = [level for level in blank if level != depth]
            depth -= 1
        out.append(spaces(line) if blank and not word else line)
    return "\n".join(out)


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")[^\n]*$', re.M)
# Headers that every compiler for CUDA has; the emulator's own header replaces them all.
CUDA_HEADER = re.compile(
    r"(cuda[\w./]*|device_launch_parameters\.h|device_functions\.h|math_constants\.h|math_functions\.h"
    r"|vector_types\.h|vector_functions\.h|cooperative_groups(/\w+)?\.h|cuComplex\.h|sm_\w+\.h|mma\.h|crt/.*"
    r"|curand_kernel\.h|cub/.*|thrust/.*|nv/.*)$"
)
HOST_API = re.compile(r"(cuda|cuda_runtime(_api)?|cuda_profiler_api|device_launch_parameters|device_functions)\.h$")
DEEPEST = 50  # headers within headers


class Flat(NamedTuple):
    """A source with its own headers in the place of their `#include` lines; the source itself is the file ""."""

    text: str
    places: list[tuple[str, int]]  # file and line of each line of the text
    missing: list[str]  # headers in quotes that were not found

    def place(self, line: int) -> tuple[str, int]:
        """Return the file and line of a line of the text."""
        return self.places[line - 1] if 0 < line <= len(self.places) else ("", line)

    def line(self, line: int) -> str:
        """Return the text of a line; empty for one outside of the text."""
        lines = lines_of(self.text)
        return lines[line - 1] if 0 < line <= len(lines) else ""


def definitions(options) -> str:
    """Return -DN=16 and -UN as lines of a source: as a flag, N would be replaced in the runtime's templates, too."""
    lines = []
    for kind, text in _given(options, "-D|--define-macro|-U|--undefine-macro"):
        name, given, value = text.partition("=")
        lines.append(f"#undef {name}" if "U" in kind or "un" in kind else f"#define {name} {value if given else 1}")
    return "\n".join(lines)


def _given(options, names: str) -> list[tuple[str, str]]:
    # As NVRTC reads them: "-DN=3", "-D N=3", "-D", "N=3" and "--define-macro=N=3" are the same.
    return re.findall(rf"(?<=\0)({names})[=\0 ]*([^\0]+)", "\0".join(["", *map(str.strip, options)]))


def is_cuda_header(name: str) -> bool:
    """Say whether a header comes with CUDA."""
    return bool(CUDA_HEADER.match(name))


def is_device_header(name: str) -> bool:
    """Say whether a header comes with CUDA and has something for kernels: NVRTC finds those, not the runtime's."""
    return is_cuda_header(name) and not HOST_API.match(name)


def flatten(source: str, options=()) -> Flat:
    """Replace `#include` lines with the headers, where they are in folders named by -I; others keep their line."""
    flat, once = Flat("", [], []), set()
    lines: list[str] = []
    folders = [Path(folder.strip()) for _, folder in _given(options, "-I|--include-path")]

    def append(text, path=None, depth=0):
        if depth > DEEPEST:
            raise CompileError(f"headers include each other more than {DEEPEST} deep, the last is {path}")
        plain = lines_of(without_comments(text))
        for number, line in enumerate(lines_of(text), 1):
            is_directive = re.match(r"[ \t]*#", plain[number - 1])
            match = INCLUDE.match(line) if is_directive else None
            if path and is_directive and re.match(r"[ \t]*#[ \t]*pragma[ \t]+once\b", line):
                once.add(path)
                line = ""
            elif match:
                quoted, wanted = match[2], match[1] or match[2]
                near = [path.parent] if path else []
                found = (folder / wanted for folder in [*near, *folders] if (folder / wanted).is_file())
                header = next(found, None) if quoted or not is_cuda_header(wanted) else None
                if header:
                    header, line = header.resolve(), ""
                    if header not in once:
                        append(header.read_text(encoding="utf-8", errors="replace"), header, depth + 1)
                elif quoted and not is_cuda_header(wanted):
                    flat.missing.append(wanted)
            lines.append(line)
            flat.places.append((path.name if path else "", number))

    append(source)
    return flat._replace(text="\n".join(lines))


# -- errors ------------------------------------------------------------------------------------------------------------


class KernelError(RuntimeError):
    """A kernel did something that would be wrong on a GPU; `report` holds the findings of the emulator."""

    def __init__(self, message: str, report: Any = None):
        super().__init__(message)
        self.report = report


class CompileError(KernelError):
    """The source does not compile; `problems` is a list of (line, column, message)."""

    def __init__(self, message: str, problems: Sequence[Any] = ()):
        super().__init__(message)
        self.problems = list(problems)


def place_in_words(line: int, file: str) -> str:
    """Return "line 3", or "line 3 of tile.cuh"."""
    return f"line {line}" + (f" of {file}" if file else "")


def error_at(kind: type[CompileError], flat: Flat, at: int, message: str) -> CompileError:
    """Return an error about a place of a text: with file, line and the line's text."""
    line, column = position(flat.text, at)
    file, number = flat.place(line)
    return kind(
        f"{place_in_words(number, file)}: {message}\n    {flat.line(line).strip()}", [(number, column, message)]
    )


class UnsupportedFeature(CompileError):
    """The source uses something that exists on a GPU but that the emulator cannot run."""


class CompilerNotFound(KernelError):
    """No C++ compiler was found to build the kernel with."""
