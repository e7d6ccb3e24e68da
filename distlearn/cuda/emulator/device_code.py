"""Finds the part of a .cu file that a kernel needs: the rest (main, host functions, headers, other kernels) is removed.

The file needs no preparation. Its own headers are read in (includes.py), branches of `#if` that are not taken are left
out, the rest is cut into declarations (declarations.py), and those that the kernel reaches by name are kept. What is
left out is blanked, so that lines and columns stay.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from distlearn.cuda.emulator.conditionals import first_branches, spaces, taken_branches
from distlearn.cuda.emulator.declarations import (
    DIRECTIVE,
    Declaration,
    Macro,
    closing,
    expand,
    function_name,
    macros_of,
    parameter_list,
    split,
)
from distlearn.cuda.emulator.includes import INCLUDE, Flat, flatten, is_device_header
from distlearn.cuda.emulator.source import (
    GRID_GROUP,
    UNSUPPORTED,
    lines_of,
    position,
    split_commas,
    unbalanced,
    without_comments,
)
from distlearn.cuda.errors import CompileError, UnsupportedFeature

# Types that only the host has: a variable or type made of them is left out even if a kernel seems to name it.
HOST_ONLY = re.compile(
    r"\b(FILE|(?:std\s*::\s*)?(?:vector|string|map|unordered_map|unique_ptr|shared_ptr|function|ostream|istream|fstream"
    r"|ifstream|ofstream|stringstream|thread|mutex|chrono|random_device|mt19937\w*|uniform_\w+_distribution)\s*[<\s&]"
    r"|cuda(?:Stream|Event|Error|Graph\w*|DeviceProp)_?t?|cublas\w+|cudnn\w+|thrust\s*::\s*\w+_vector)\b"
)

# The headers of the C++ library that CUDA has for device code.
CUDA_STD = {"algorithm", "array", "bit", "cfloat", "climits", "cmath", "complex", "cstddef", "cstdint", "functional",
            "limits", "numeric", "tuple", "type_traits", "utility"}  # fmt: skip
C_HEADERS = {"float.h", "limits.h", "math.h", "stddef.h", "stdint.h"}


@dataclass(frozen=True)
class DeviceCode:
    """The device code of one kernel; `text` has the lines and columns of `flat`, what is not needed is blank.

    `parameters` are the names of the kernel's parameters, `most_threads` what its `__launch_bounds__` allow,
    `of_host` the names of functions that were left out although the kernel names them, or something of that name.
    """

    text: str
    flat: Flat
    parameters: list[str]
    most_threads: int
    of_host: frozenset[str] = frozenset()

    @functools.cached_property
    def lines(self) -> list[str]:
        """The lines of the flattened source, as they were written."""
        return lines_of(self.flat.text)


def device_code(source: str, name: str, options=(), preprocessor=None) -> DeviceCode:
    """Return the part of a source that a kernel needs."""
    flat = flatten(source, options)
    text = taken_branches(flat.text, preprocessor) if preprocessor else flat.text
    code = without_comments(text)
    macros = macros_of(code) | _defined(options)
    declarations = split(code)
    kernel = _find(declarations, name)
    if kernel is None:
        raise CompileError(_no_kernel(declarations, name))
    written = code[kernel.begin : kernel.end]
    if "__global__" in written and "{" not in written and written.endswith(";"):
        line, column = position(text, kernel.begin)
        line = flat.place(line)[1]
        message = f"{base_name(name)!r} is declared in line {line}, but not defined: the source must contain its text"
        raise CompileError(message, [(line, column, message)])
    if unbalanced(text):  # cannot tell where declarations end: the compiler gets everything and reports the mistake
        return DeviceCode(text, flat, _parameters(kernel, name), 1024)
    kept = _reached(declarations, code, name, macros)
    of_host = _without_host(declarations, kept, code)
    text = _blank(text, [d for d in declarations if id(d) not in kept])
    refuse_unsupported(text, flat, macros)
    return DeviceCode(text, flat, _parameters(kernel, name), _most_threads(kernel), of_host)


def without_host_code(source: str, options=(), names=()) -> Flat:
    """Return a source for a compiler of device code alone: host functions, their includes and variables are blanked.

    Its own headers are read in. All kernels stay with what they need, and what `names` (name expressions) need. So
    do all branches of `#if`, which are for that compiler to choose; where a declaration begins and ends is read from
    the first of each. A source without host code is returned unchanged.
    """
    flat = flatten(source, options)
    code = first_branches(without_comments(flat.text))
    if unbalanced(code):
        return flat
    declarations = split(code)
    roots = [d for d in declarations if d.on_device or d.kind in ("using namespace", "instance", "static_assert")]
    kept = _closure(declarations, roots, macros_of(code), re.findall(r"[A-Za-z_]\w*", " ".join(names)))
    text = _blank(flat.text, [d for d in declarations if id(d) not in kept])
    return flat._replace(text=_with_device_headers(text))


def _with_device_headers(text: str) -> str:
    """Remove the headers of the host; for those of the C++ library that kernels need, use CUDA's own, in cuda::std."""
    code = without_comments(INCLUDE.sub("", text))
    uses_std = re.search(r"(?<!cuda::)\bstd::|\busing namespace std\b", code)

    def header(match):
        name = match[1] or match[2]
        name = "c" + name.removesuffix(".h") if name in C_HEADERS else name
        needed = re.search(r"\bu?int(8|16|32|64|ptr)_t\b", code) if name == "cstdint" else uses_std
        if name in CUDA_STD and needed:
            return f"#include <cuda/std/{name}>"
        return match[0] if is_device_header(match[1] or match[2]) else ""

    with_headers = INCLUDE.sub(header, text)
    if "<cuda/std/" in with_headers:
        return re.sub(r"(?<![\w:])std::|(?<=using namespace )std\b", lambda m: "cuda::" + m[0], with_headers)
    return re.sub(r"\busing namespace std\s*;", lambda m: spaces(m[0]), with_headers)


def card_options(source: str) -> tuple[str, ...]:
    """Return options that give NVRTC the INFINITY and NAN of nvcc, if a source uses them and does not define them."""
    code = without_comments(source)
    values = {"INFINITY": "__int_as_float(0x7f800000)", "NAN": "__int_as_float(0x7fffffff)"}
    return tuple(
        f"-D{name}={value}" for name, value in values.items()
        if re.search(rf"\b{name}\b", code) and not re.search(rf"#[ \t]*define[ \t]+{name}\b", code)
    )  # fmt: skip


def refuse_unsupported(text: str, flat: Flat, macros) -> None:
    """Raise `UnsupportedFeature` if device code uses what the emulator cannot run."""
    code = without_comments(text)
    plain = DIRECTIVE.sub(lambda m: spaces(m[0]), code)
    grids = "|".join({a or b for a, b in GRID_GROUP.findall(plain)} or {"this_grid"})
    for pattern, what, instead in UNSUPPORTED:
        pattern = pattern.replace("NAMES", grids)
        match = re.search(pattern, plain) or _in_used_macro(pattern, plain, macros)
        if match:
            line, column = position(plain, match.start())
            file, number = flat.place(line)
            shown = lines_of(flat.text)[line - 1].strip()
            where = f"line {number}" + (f" of {file}" if file else "")
            message = f"{where}: {what} cannot be run without a GPU: {instead}.\n    {shown}"
            raise UnsupportedFeature(message, [(number, column, f"{what}: {instead}")])


def _in_used_macro(pattern, plain, macros):
    for name, macro in macros.items():
        if re.search(pattern, macro.body) and (match := re.search(rf"\b{name}\b", plain)):
            return match
    return None


def _blank(text: str, declarations) -> str:
    """Blank declarations, except macros and conditions between their lines: those affect the text that follows."""
    out, at = [], 0
    for d in declarations:
        out.append(text[at : d.begin])
        part, last = text[d.begin : d.end], 0
        for match in DIRECTIVE.finditer(part):
            pragma = re.match(r"[ \t]*#[ \t]*pragma\b", match[0])
            out += [spaces(part[last : match.start()]), spaces(match[0]) if pragma else match[0]]
            last = match.end()
        out.append(spaces(part[last:]))
        at = d.end
    return "".join(out) + text[at:]


def _defined(options) -> dict[str, Macro]:
    given = {}
    for option in options:
        if match := re.match(r"-D\s*(\w+)(?:=(.*))?$", option, re.S):
            given[match[1]] = Macro(None, match[2] if match[2] is not None else "1")
    return given


def base_name(name: str) -> str:
    """Return the kernel's own name: "a::sgd<float, 4>" is of "sgd"."""
    return name.partition("<")[0].strip().lstrip("&").rpartition("::")[2].strip()


def _find(declarations, name) -> Declaration | None:
    wanted = base_name(name)
    found = [d for d in declarations if wanted in d.names and d.is_kernel]
    return max(found, key=lambda d: "{" in d.head or d.end - d.begin, default=None)


def _no_kernel(declarations, name) -> str:
    found = list(dict.fromkeys(n for d in declarations if d.is_kernel for n in sorted(d.names)))
    return f"the source has no __global__ function {name.partition('<')[0].strip()!r}; " + (
        f"it has {', '.join(found)}" if found else "it has none"
    )


def _closure(declarations, roots, macros, words=()) -> set[int]:
    """Return the ids of the declarations that some need, these included."""
    by_name: dict[str, list[Declaration]] = {}
    for d in declarations:
        for name in d.names:
            by_name.setdefault(name, []).append(d)
    kept, names, todo = {id(d) for d in roots}, set(), [*roots]
    waiting = set(words)
    while todo or waiting:
        if todo:
            waiting |= todo.pop().uses
        for name in waiting - names:
            names.add(name)
            todo_here = by_name.get(name, ())
            devices = [d for d in todo_here if d.on_device or d.kind != "function"]
            for d in devices or todo_here:
                if id(d) not in kept:
                    kept.add(id(d))
                    todo.append(d)
            if name in macros:
                waiting = waiting | set(re.findall(r"[A-Za-z_]\w*", expand(name, macros)))
        waiting -= names
    return kept


def _reached(declarations, code, name, macros) -> set[int]:
    """Return the ids of what is kept: the kernel, what it needs, and device variables."""
    wanted = base_name(name)
    always = [
        d for d in declarations
        if (d.is_kernel and wanted in d.names)
        or (d.kind == "variable" and d.on_device)
        or (d.kind == "function" and d.on_device and "operator" in d.names)
    ]  # fmt: skip
    kept = _closure(declarations, always, macros, re.findall(r"[A-Za-z_]\w*", name))
    known = {"std", "cooperative_groups", "cuda", "thrust"}
    own = set(re.findall(r"(?<!using )\bnamespace\s+(\w+)", re.sub(r"\s+", " ", code)))
    for d in declarations:
        if d.kind == "using namespace" and (next(iter(d.names)).partition("::")[0] in known | own):
            kept.add(id(d))
    names = set().union(*(d.names for d in declarations if id(d) in kept)) | set(macros)
    every = set().union(*(d.names for d in declarations))
    for d in declarations:
        if d.kind == "static_assert" and not (d.uses & every) - names:
            kept.add(id(d))
    return kept


def _without_host(declarations, kept, code) -> frozenset[str]:
    """Leave out what only the host can use; return the names of its functions."""
    names = set()
    for d in declarations:
        if id(d) in kept and not d.on_device and d.kind == "function":
            names |= d.names
            kept.discard(id(d))
        elif id(d) in kept and not d.on_device and d.kind == "variable" and HOST_ONLY.search(code[d.begin : d.end]):
            kept.discard(id(d))
    return frozenset(names)


def _parameters(kernel, name) -> list[str]:
    head = _head_of(kernel, base_name(name))
    return parameter_list(head) if head and function_name(head) else []


def _head_of(kernel, name) -> str:
    """Return the head of the kernel; a macro may have made several."""
    if match := re.search(rf"[^;{{}}]*\b{re.escape(name)}\s*\(", kernel.head):
        return kernel.head[match.start() : closing(kernel.head, match.end() - 1)]
    return kernel.head


def _most_threads(kernel) -> int:
    match = re.search(r"__launch_bounds__\s*\(", kernel.head)
    if not match:
        return 1024
    first = split_commas(kernel.head[match.end() : closing(kernel.head, match.end() - 1) - 1])[:1]
    if first and re.fullmatch(r"[\d\s+*/()<>-]+", first[0]):
        try:
            return int(eval(first[0], {"__builtins__": {}}))
        except (SyntaxError, ValueError, ZeroDivisionError, TypeError):
            return 1024
    return 1024
