"""Helpers for CUDA C text: remove comments, split at commas, find unmatched brackets; and the unsupported features."""

from __future__ import annotations

import re

# Of a cooperative group of the grid; `NAMES` is replaced with the variables that hold one.
GRID_BARRIER = r"\bthis_grid\s*\(\s*\)\s*\.\s*sync\b|\b(?:NAMES)\s*\.\s*sync\b|\bsync\s*\(\s*(?:NAMES)\s*\)"
GRID_GROUP = re.compile(r"\bgrid_group\s*&?\s*(\w+)|\b(\w+)\s*=\s*[\w:\s]*\bthis_grid\s*\(")
# A pattern and what to say when the source uses it. Words are matched outside comments and strings.
UNSUPPORTED = [
    (r"\basm\s*(volatile\s*)?\(|\b__asm", "inline PTX", "it is specific to NVIDIA's processors, write it in CUDA C"),
    (r"\b(nvcuda::)?wmma\s*::|\bmma_sync\b", "tensor cores (wmma)", "use an ordinary matrix product"),
    (GRID_BARRIER, "a barrier over the whole grid", "blocks run one after another here, so they cannot wait for each "
     "other; end the kernel and launch another"),
    (r"<<<", "dynamic parallelism (a launch from a kernel)", "launch the second kernel from Python"),
    (r"\bthis_multi_grid\s*\(|\bmulti_grid_group\b", "a group over several GPUs", "launch a kernel for each"),
    (r"\bcuda::(barrier|pipeline|memcpy_async|ptx)\b|\b__pipeline_\w+|\bmemcpy_async\b", "asynchronous copies",
     "use a loop"),
    (r"\btex(1D|2D|3D|Cubemap)\w*\s*[(<]|\bsurf(1D|2D|3D)\w*\s*[(<]|\bcuda(Texture|Surface)Object_t\b"
     r"|\btexture\s*<", "textures", "they are read by hardware of their own, read an array"),
    (r"\bcub::|\bthrust::(?!(complex|conj|norm|abs|arg|real|imag|exp|log|sqrt|polar|pair|swap|plus|maximum|minimum)\b)",
     "the libraries cub and thrust", "write the loop, or call CuPy from Python"),
    (r"\bcufft\w*\b", "the library cuFFT", "call numpy.fft from Python"),
    (r"\b__nv_fp8\w*|\b__nv_cvt_\w*fp8\w*", "8-bit floats (fp8)", "use half, or round a float to their values"),
    (r"\b(cute|cutlass)\s*::|\busing\s+namespace\s+(cute|cutlass)\b", "the library CuTe", "write the loop"),
    (r"\bcurand\w*\b", "random numbers of cuRAND", "draw them with NumPy and pass them in"),
    (r"\b(clock|clock64|globaltimer)\s*\(", "clocks on the device", "time the launch from Python"),
    (r"(?<!\.)(?<!>)\b(malloc|free)\s*\(|\bnew\s+\w|\bdelete\s*(\[\s*\]\s*)?\w", "malloc or new in a kernel",
     "pass an array in"),
    (r"\bcuda(Malloc|Free|Memcpy|DeviceSynchronize)\w*\s*\(", "host calls of the CUDA runtime", "allocate in Python"),
    (r"\b__shfl(_up|_down|_xor)?\s*\(|\b__(ballot|any|all)\s*\(", "shuffles without _sync, gone since Volta",
     "use __shfl_sync and similar functions, with a mask"),
]  # fmt: skip

WARP_OR_BARRIER = re.compile(
    r"__sync(threads|warp)|__shfl|__ballot_sync|__any_sync|__all_sync|__match|__reduce"
    r"|__activemask|cooperative_groups"
)


def without_comments(source: str) -> str:
    """Return the source with comments and the contents of strings blanked; every character keeps its place."""

    def blank(match):
        text = match[0]
        if text[0] in "\"'":
            return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]
        return re.sub(r"[^\n]", " ", text)

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, source, flags=re.S)


def lines_of(source: str) -> list[str]:
    """Return the lines as compilers count them: `str.splitlines` would also split at a form feed."""
    return [line.rstrip("\r") for line in source.split("\n")]


def position(text: str, at: int) -> tuple[int, int]:
    """Return the line and column, from 1, of a character."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


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


def needs_fibres(source: str) -> bool:
    """Whether the threads of a block synchronise anywhere; if not, they can run one after another in a plain loop."""
    return bool(WARP_OR_BARRIER.search(without_comments(source)))


def split_commas(text: str) -> list[str]:
    """Split at the commas that are not inside brackets."""
    parts, depth, angles, current = [], 0, 0, ""
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if depth == 0:
            angles += (character == "<") - (character == ">" and angles > 0)
        if character == "," and depth == angles == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current] if current.strip() else parts
