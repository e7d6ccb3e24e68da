"""What is read from CUDA C before a compiler sees it: what cannot be run, the parameters, brackets that go astray."""

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
    (r"\b(malloc|free)\s*\(|\bnew\s+\w|\bdelete\s*(\[\s*\]\s*)?\w", "malloc or new in a kernel", "pass an array in"),
    (r"\bcuda(Malloc|Free|Memcpy|DeviceSynchronize)\w*\s*\(", "host calls of the CUDA runtime", "allocate in Python"),
    (r"\b__shfl(_up|_down|_xor)?\s*\(|\b__(ballot|any|all)\s*\(", "shuffles without _sync, gone since Volta",
     "use __shfl_sync and its kin, with a mask"),
]  # fmt: skip

KERNEL = r"__global__\s[^;{}()]*(?:__launch_bounds__\s*\([^)]*\)\s*)?[^;{}()]*?\b%s\s*\("
WARP_OR_BARRIER = re.compile(r"__sync(threads|warp)|__shfl|__ballot_sync|__any_sync|__all_sync|__match|__reduce")


def without_comments(source: str) -> str:
    """Return the source with comments and the contents of strings blanked; every character keeps its place."""

    def blank(match):
        text = match[0]
        if text[0] in "\"'":
            return text[0] + re.sub(r"[^\n]", " ", text[1:-1]) + text[-1]
        return re.sub(r"[^\n]", " ", text)

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, source, flags=re.S)


def lines_of(source: str) -> list[str]:
    """Return the lines as compilers count them: `str.splitlines` would also end one at a form feed, say."""
    return [line.rstrip("\r") for line in source.split("\n")]


def position(text: str, at: int) -> tuple[int, int]:
    """Return the line and column, from 1, of a character."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def unbalanced(source: str) -> tuple[int, int, str] | None:
    """Return line, column and message for the first bracket without its other half, or None."""
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


def refuse_unsupported(source: str) -> None:
    """Raise `UnsupportedFeature` if the source uses what the emulator cannot run."""
    code = without_comments(source)
    for pattern, what, instead in UNSUPPORTED:
        if match := re.search(pattern, code):
            line, column = position(code, match.start())
            text = lines_of(source)[line - 1].strip()
            message = f"line {line}: {what} cannot be run without a GPU: {instead}.\n    {text}"
            raise UnsupportedFeature(message, [(line, column, f"{what}: {instead}")])


def needs_fibres(source: str) -> bool:
    """Say whether the threads of a block meet anywhere; if not, they can run one after another in a plain loop."""
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


def _find_kernel(code: str, name: str) -> re.Match | None:
    """Find a kernel up to the bracket that opens its parameters."""
    return re.search(KERNEL % re.escape(name.partition("<")[0].rpartition("::")[2].strip()), code)


def parameter_names(source: str, name: str) -> list[str]:
    """Return the names of a kernel's parameters, as far as the text shows them (macros are not expanded).

    Raises
    ------
    CompileError
        If the source has no kernel of that name; the message lists those it has.
    """
    code = without_comments(source)
    match = _find_kernel(code, name)
    if not match:
        found = list(dict.fromkeys(re.findall(KERNEL % r"(\w+)", code)))
        raise CompileError(
            f"the source has no __global__ function {name.partition('<')[0].strip()!r}; "
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


def most_threads(source: str, name: str) -> int:
    """Return how many threads a block of the kernel may have, by its `__launch_bounds__` if that is a plain number."""
    match = _find_kernel(without_comments(source), name)
    bound = match and re.search(r"__launch_bounds__\s*\(\s*(\d+)\s*[,)]", match[0])
    return int(bound[1]) if bound else 1024
