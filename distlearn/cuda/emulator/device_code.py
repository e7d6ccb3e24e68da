"""Finds the part of a .cu file that a kernel needs: the rest (main, host functions, headers, other kernels) is blanked.

The file needs no preparation. Its own headers are read in, branches of `#if` that are not taken are left out, the rest
is cut into top-level declarations, and those that the kernel reaches by name are kept. Lines and columns stay.

This is not a C++ parser. It knows brackets, templates and the macros of the file, which is enough to see where a
function, a type or a variable begins and ends, whether it belongs to the host or the device, and which others it needs.
In doubt it lists too many names rather than too few: an extra name only keeps an extra declaration.
"""

from __future__ import annotations

import contextlib
import functools
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from .source import (
    C_LIBRARY,
    DIRECTIVE,
    GRID_GROUP,
    INCLUDE,
    UNSUPPORTED,
    CompileError,
    Flat,
    UnsupportedFeature,
    bracketed,
    closing,
    definitions,
    error_at,
    first_branches,
    flatten,
    is_device_header,
    spaces,
    split_commas,
    taken_branches,
    unbalanced,
    without_comments,
    without_directives,
)  # fmt: skip

DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(\(([^)]*)\))?(.*)", re.S)
WORD = re.compile(r"[A-Za-z_]\w*")
# Not names of functions, although a bracket follows.
SPECIFIERS = {"__launch_bounds__", "__attribute__", "__align__", "__builtin_align__", "alignas", "decltype", "noexcept",
              "__declspec", "explicit", "requires", "__cluster_dims__", "__block_size__", "__maxnreg__"}  # fmt: skip
DEVICE = {"__global__", "__device__", "__constant__", "__shared__", "__managed__"}
NO_NAME = {"void", "int", "float", "double", "bool", "char", "long", "short", "unsigned", "signed", "return", "if",
           "for", "while", "switch", "sizeof", "defined"}  # fmt: skip
SKIPPED = re.compile(r"(?:[\s;}]|\b(?:public|private|protected)\s*:(?!:))+")  # between declarations
RECORD = re.compile(r"\b(struct|class|union|enum)\b")


@dataclass
class Macro:
    """A macro."""

    parameters: list[str] | None  # None if it takes none, not even brackets
    body: str
    at: int = -1  # where it is defined


@dataclass(eq=False)
class Declaration:
    """A top-level declaration."""

    begin: int
    end: int
    kind: str  # "function", "type", "variable", "using namespace", "static_assert", "instance" or "other"
    head: str  # the text before its body, macros expanded
    names: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    scope: str = ""  # the namespaces around it: "a::b::"

    @property
    def is_kernel(self) -> bool:
        return bool(re.search(r"\b__global__\b", self.head))

    @property
    def on_device(self) -> bool:
        """Whether it is marked for the device; a constexpr function is for both."""
        words = set(WORD.findall(self.head))
        return bool(words & DEVICE) or (self.kind == "function" and bool(words & {"constexpr", "consteval"}))


def names_of(declarations) -> set[str]:
    """Return the names that declarations introduce."""
    return set().union(*(d.names for d in declarations))


def macros_of(code: str) -> dict[str, Macro]:
    """Return the macros that a text defines, the last definition of each; comments must be blanked."""
    found = {}
    for directive in DIRECTIVE.finditer(code):
        if match := DEFINE.match(directive[0].replace("\\\r\n", " ").replace("\\\n", " ")):
            parameters = [p.strip() for p in match[3].split(",")] if match[2] else None
            found[match[1]] = Macro(parameters, match[4].strip(), directive.start())
    return found


def closing_angle(text: str, at: int) -> int:
    """Return the place after the `>` that closes the `<` at `at`."""
    depth = 0
    while match := re.compile(r"[(\[{<;]|(?<!-)>").search(text, at):
        at = match.end()
        if match[0] == ";":
            return match.start()
        if match[0] in "<>":
            depth += 1 if match[0] == "<" else -1
            if not depth:
                return at
        else:
            at = closing(text, match.start())
    return len(text)


def expand(text: str, macros: dict[str, Macro], known=frozenset()) -> str:
    """Return a text with its macros expanded, as far as names, brackets and lines matter: without `#`."""
    out, at = [], 0
    for match in WORD.finditer(text):
        if match.start() < at or match[0] not in macros or match[0] in known:
            continue
        macro, end = macros[match[0]], match.end()
        body = macro.body
        if macro.parameters is not None:
            given, end = bracketed(text, end)
            if given is None:
                continue
            body = _substitute(macro, given, macros, known)
        body = re.sub(r"\s*##\s*", "", body)
        lines = "\n" * text.count("\n", match.end(), end)
        out += [text[at : match.start()], expand(body, macros, known | {match[0]}), lines]
        at = end
    return "".join(out) + text[at:]


def _substitute(macro, given, macros, known):
    names, given = list(macro.parameters), [text.strip() for text in given]
    if names and names[-1].endswith("..."):
        fixed = len(names) - 1
        given = [*given[:fixed], ", ".join(given[fixed:])]
        names[-1] = names[-1][:-3].strip() or "__VA_ARGS__"
    values = dict(zip(names, given, strict=False))

    def put(match):
        if match[0] not in values:
            return match[0]
        pasted = "##" in (macro.body[match.start() - 3 : match.start()] + macro.body[match.end() : match.end() + 3])
        return values[match[0]] if pasted else expand(values[match[0]], macros, known)

    return WORD.sub(put, macro.body)


def _without_template(head: str) -> str:
    while match := re.match(r"\s*(?:template\s*(<)|extern\s+template\b)", head):
        if not match[1]:
            return head
        head = head[closing_angle(head, match.start(1)) :]
    return head


def _brackets_removed(head: str) -> str:
    """Remove the specifiers that have brackets: the remaining brackets are those of parameters and initial values."""
    at, out = 0, ""
    for match in WORD.finditer(head):
        if match.start() >= at and match[0] in SPECIFIERS:
            out += head[at : match.start()]
            _, at = bracketed(head, match.end())
    return out + head[at:]


def function_name(head: str) -> tuple[str, int] | None:
    """Return the name of the function that a head declares (with its scope) and where its brackets open, or None."""
    # The place is in `_brackets_removed(_without_template(head))`.
    text = _brackets_removed(_without_template(head))
    if match := re.search(r"\boperator\s*(\(\s*\)|[^\s(\w]+|\w[\w\s*&]*)\s*\(", text):
        return "operator", match.end() - 1
    match = re.search(r"((?:[A-Za-z_]\w*\s*(?:<[^()]*>)?\s*::\s*)*~?[A-Za-z_]\w*)\s*(?:<[^()]*>)?\s*\(", text)
    name = re.sub(r"\s|<.*?>", "", match[1]) if match else ""
    return (name, match.end() - 1) if name and name not in NO_NAME else None


def split(code: str) -> list[Declaration]:
    """Return the declarations of a text at namespace scope, in order; comments must be blanked."""
    plain = without_directives(code)
    return list(_scope(plain, 0, len(plain), macros_of(code)))


def _scope(text, at, end, macros, scope=""):
    """Yield the declarations between two places."""
    opening = re.compile(r'\s*(?:inline\s+)?(?:namespace\b\s*([\w:]*)[^{};=]*|extern\s*"[^"]*"\s*)\{')
    while at < end:
        if match := SKIPPED.match(text, at, end):
            at = match.end()
            continue
        if match := opening.match(text, at, end):
            inner = min(closing(text, match.end() - 1), end)
            yield from _scope(text, match.end(), inner - 1, macros, scope + (f"{match[1]}::" if match[1] else ""))
            at = inner
            continue
        d = _read(text, at, end, macros)
        while d.kind == "function" and (match := re.compile(r"\s*(?:,[^{;]*)?\{").match(text, d.end, end)):
            d.end = closing(text, match.end() - 1)  # behind `: x(a), y{b}` of a constructor
        d.scope = scope
        yield d
        at = max(d.end, at + 1)


def _read(text, at, end, all_macros) -> Declaration:
    macros = {name: macro for name, macro in all_macros.items() if macro.at < at}
    word = WORD.match(text, at, end)
    if word and word[0] in macros and (whole := _whole_macro(text, word, end, macros)):
        return whole
    stop, body, i, head_end = end, False, at, None
    while match := re.compile(r"[;{(\[]").search(text, i, end):
        i = match.start()
        if match[0] == ";":
            stop = i + 1
            break
        close = min(closing(text, i), end)
        if match[0] == "{":
            head_end = i if head_end is None else head_end
            if _opens_function(_brackets_removed(_without_template(expand(text[at:i], macros)))):
                stop, body = close, True
                break
        i = close
    written = text[at : head_end if head_end is not None else stop]
    inside = {name: macro for name, macro in all_macros.items() if macro.at < stop}
    return _describe(at, stop, expand(written, macros), text[at:stop], body, inside)


def _opens_function(head: str) -> bool:
    """Say whether the `{` after this head is a function's: the head has parameters in brackets and no initial value."""
    before = head.partition("(")[0]
    if "(" not in head or (RECORD.search(before) and not re.search(r"\w+[\s*&]+\w+\s*$", before)):
        return False
    return "=" not in before or "operator" in before


def _whole_macro(text, word, end, macros) -> Declaration | None:
    """Read a macro that expands to whole declarations: KERNEL(add, +), with or without a semicolon."""
    macro, stop = macros[word[0]], word.end()
    if macro.parameters is not None:
        given, stop = bracketed(text, stop)
        if given is None:
            return None
    after = re.compile(r"\s*").match(text, stop, end).end()
    expanded = expand(text[word.start() : stop], macros).strip()
    if not expanded.endswith(("}", ";")) and text[after : after + 1] != ";":
        return None
    inner = split(expanded)
    kind = max(inner, key=lambda d: (d.is_kernel, d.on_device)).kind if inner else "other"
    head, uses = " ".join(d.head for d in inner), {word[0]}.union(*(d.uses for d in inner))
    return Declaration(word.start(), stop, kind, head, names_of(inner), uses)


def _describe(at, stop, head, written, body, macros) -> Declaration:
    text, bare = expand(written, macros), _without_template(head)
    plain = _brackets_removed(bare)

    def made(kind, names=()):
        return Declaration(at, stop, kind, head, set(names), {*WORD.findall(text), *WORD.findall(written)})

    if match := re.match(r"\s*using\s+namespace\s+([\w:\s]+)", bare):
        return made("using namespace", [match[1].strip()])
    if re.match(r"\s*static_assert\b", bare):
        return made("static_assert")
    if re.match(r"\s*(extern\s+)?template\b(?!\s*<)", bare):
        return made("instance")
    if re.match(r"\s*(typedef|using)\b", bare):
        return made("type", _typedef_names(_without_template(text)))
    name = function_name(head) if body or "(" in plain.partition("=")[0] else None
    scopes = name[0].split("::") if name else []
    record = RECORD.search(bare)
    if record and not (body and name):
        if name and "{" not in text:  # a function that returns a struct is declared
            return made("function", scopes)
        names = WORD.findall(plain[record.end() :].partition(":")[0].partition("{")[0])[:1]
        names += WORD.findall(text.rpartition("}")[2]) if "}" in text else []
        return made("type", names + (WORD.findall(text.partition("{")[2]) if record[1] == "enum" else []))
    if name and (body or not re.search(r"[\w\])]\s*=", plain)):
        return made("function", [scopes[0], scopes[-1]])
    parts = split_commas(_brackets_removed(_without_template(text)).rstrip("; \n"))
    names = [m[1] for part in parts if (m := re.match(r"[^=({\[]*?(\w+)\s*(?:[=({\[;]|$)", part.strip(), re.S))]
    return made("variable" if names else "other", names)


def _typedef_names(text: str) -> set[str]:
    if match := re.match(r"\s*using\s+(\w+)\s*=", text):
        return {match[1]}
    if re.match(r"\s*using\b", text):
        return set(WORD.findall(text)[-1:])
    outer = re.sub(r"\{.*\}", " ", text, flags=re.S)
    tag = re.match(r"\s*typedef\s+(?:struct|class|union|enum)\s+(\w+)", text)
    names = {m[1] for m in re.finditer(r"(\w+)\s*(?:\[[^\]]*\]\s*)*[,;]", outer)}
    names |= set(re.findall(r"\(\s*\*\s*(\w+)\s*\)", outer)) | ({tag[1]} if tag else set())
    if re.match(r"\s*typedef\s+enum\b", text):
        names |= set(WORD.findall(text.partition("{")[2]))
    return names


# Types that only the host has: a variable or type made of them is left out even if a kernel seems to name it.
HOST_ONLY = re.compile(
    r"\b(FILE|(?:std\s*::\s*)?(?:vector|string|map|unordered_map|unique_ptr|shared_ptr|function|ostream|istream|fstream"
    r"|ifstream|ofstream|stringstream|thread|mutex|chrono|random_device|mt19937\w*|uniform_\w+_distribution)\s*[<\s&]"
    r"|cuda(?:Stream|Event|Error|Graph\w*|DeviceProp)_?t?|cublas\w+|cudnn\w+|thrust\s*::\s*\w+_vector)\b"
)

# The headers of the C++ library that CUDA has for device code.
CUDA_STD = {name: name for name in ("array", "bit", "cfloat", "climits", "cmath", "complex", "cstddef", "cstdint",
            "functional", "limits", "numeric", "tuple", "type_traits", "utility")}  # fmt: skip
CUDA_STD["algorithm"] = "functional"  # which has the minimum and the maximum
C_HEADERS = {"float.h", "limits.h", "math.h", "stddef.h", "stdint.h"}


@dataclass(frozen=True)
class DeviceCode:
    """The device code of one kernel."""

    text: str  # with the lines and columns of `flat`; unneeded parts are blank
    flat: Flat
    parameters: list[str]
    most_threads: int  # that its `__launch_bounds__` allow
    of_host: dict[str, str] = field(default_factory=dict)  # functions left out: a word, and the function it names


def device_code(source: str, name: str, options=(), preprocessor=None) -> DeviceCode:
    """Return the part of a source that a kernel needs."""
    flat = flatten(source, options)
    text = taken_branches(flat.text, preprocessor) if preprocessor else flat.text
    code = without_comments(text)
    macros = macros_of(code) | macros_of(definitions(options))
    declarations = split(code)
    kernel = _find(declarations, name)
    if kernel is None:
        found = list(dict.fromkeys(n for d in declarations if d.is_kernel for n in sorted(d.names)))
        has = f"it has {', '.join(found)}" if found else "it has none"
        raise CompileError(f"the source has no __global__ function {name.partition('<')[0].strip()!r}; {has}")
    written = code[kernel.begin : kernel.end]
    if "__global__" in written and "{" not in written and written.endswith(";"):
        message = f"{base_name(name)!r} is declared here, but not defined: the source must contain its text"
        raise error_at(CompileError, flat, kernel.begin, message)
    if base_name(name) in {"min", "max", "abs", *(word for word, _ in _of_nvcc())}:
        message = f"a kernel cannot be called {base_name(name)!r}: CUDA has functions of that name"
        raise error_at(CompileError, flat, kernel.begin, message)
    if unbalanced(text):  # the ends of declarations are unknown: the compiler gets everything and reports the mistake
        return DeviceCode(text, flat, parameters_of(kernel, name), 1024)
    text, of_host, kept = _device_part(text, lambda declared, code: _reached(declared, code, name, macros))
    kernel = _find(kept, name)
    refuse_unsupported(text, flat, macros, names_of(kept))
    return DeviceCode(text, flat, parameters_of(kernel, name), _most_threads(kernel), of_host)


def _device_part(text: str, reach) -> tuple[str, dict[str, str], list[Declaration]]:
    """Blank what the device does not need; return the text, functions of the host, and what is kept."""
    # `reach` returns the declarations to keep. Where a declaration begins and ends is read from the first of
    # each branch of `#if`.
    code = first_branches(without_comments(text))
    text, of_host = _without_host_members(text, code)
    code = first_branches(without_comments(text))
    declarations = split(code)
    kept = reach(declarations, code)
    of_host |= _without_host(kept, code)
    text = _blank(text, [d for d in declarations if d not in kept])
    return text, of_host, [d for d in declarations if d in kept]


CUBLAS = re.compile(r'#\s*include\s*[<"](?:cublas|mma\.h|torch/|ATen/|c10/)')
OF_CUBLAS = ("cuda_fp16.h", "cuda_bf16.h", "cuComplex.h")  # headers that those of cuBLAS and PyTorch include
# Names that a card's compiler has from its headers alone, and the emulator always.
OF_HEADERS = {
    "cuda_fp16.h": r"\b(?:__half2?|half2?)\b(?=[\s*&]*\w*[\s]*[=;,)>\[{(])",
    "cuda_bf16.h": r"\b(?:__nv_bfloat162?|nv_bfloat162?)\b",
    "cuda_fp8.h": r"\b__nv_fp8\w*|\b__nv_cvt_\w*fp8\w*",
    "cooperative_groups": r"\bcooperative_groups\b",
    "mma.h": r"\bnvcuda\b|\bwmma\s*::",
    "cuComplex.h": r"\bcu(?:Float|Double)?Complex\b",
    "thrust/complex.h": r"\bthrust::complex\b",
    "math_constants.h": r"\bCUDART_\w+",
}


class CardCode(NamedTuple):
    """A source for NVRTC."""

    text: str  # `flat.text` behind what nvcc has and NVRTC lacks; its first line is line 1 of "kernel.cu"
    flat: Flat
    options: tuple[str, ...]
    of_host: dict[str, str]


def for_card(source: str, options=(), names=()) -> CardCode:
    """Return a source for a compiler of device code alone: host functions, their includes and variables are blanked."""

    # Its own headers are read in. All kernels stay with what they need, and what `names` (name expressions) need. So do
    # all branches of `#if`, which are for that compiler to choose. Lines and columns stay.
    def reach(declarations, code):
        roots = [d for d in declarations if d.on_device or d.kind in ("instance", "static_assert")]
        roots += _using_namespaces(declarations, code)
        return _closure(declarations, roots, macros_of(code), WORD.findall(" ".join(names)))

    flat, of_host = flatten(source, options), {}
    if not unbalanced(first_branches(without_comments(flat.text))):
        text, of_host, _ = _device_part(flat.text, reach)
        flat = flat._replace(text=text)
    known = _known_to_nvcc(flat.text)
    known += "".join(f"#include <{header}>\n" for header in OF_CUBLAS if CUBLAS.search(flat.text))
    text = _with_device_headers(flat.text, has_std="<cuda/std/" in known)
    return CardCode(f'{known}#line 1 "kernel.cu"\n{text}', flat, ("--std=c++17", *options), of_host)


LAMBDA = re.compile(r"(?<=\])\s*__(?:device|host)__(?:\s*__(?:device|host)__)?")  # which NVRTC does not allow there


def _with_device_headers(text: str, *, has_std: bool) -> str:
    """Remove the headers of the host; for those of the C++ library that kernels need, use CUDA's own, in cuda::std."""
    code = without_comments(INCLUDE.sub("", text))
    uses_std = re.search(r"(?<!cuda::)\bstd::|\busing namespace std\b", code)

    def header(match):
        name = match[1] or match[2]
        name = "c" + name.removesuffix(".h") if name in C_HEADERS else name
        if name == "thrust/complex.h":
            return "#include <cupy/complex.cuh>"
        if name in CUDA_STD and uses_std:
            return f"#include <cuda/std/{CUDA_STD[name]}>"
        return match[0] if is_device_header(match[1] or match[2]) else ""

    with_headers = LAMBDA.sub(lambda m: spaces(m[0]), INCLUDE.sub(header, text))
    if has_std or "<cuda/std/" in with_headers:
        return re.sub(r"(?<![\w:])std::|(?<=using namespace )std\b", lambda m: "cuda::" + m[0], with_headers)
    return re.sub(r"\busing namespace std\s*;", lambda m: spaces(m[0]), with_headers)


@functools.cache
def _of_nvcc() -> list[tuple[str, str]]:
    """Return each word that a source may use (a pattern), and the line that it then needs."""
    found = []
    for line in (Path(__file__).parent / "runtime" / "nvcc.h").read_text(encoding="utf-8").splitlines():
        text, _, words = line.partition("  // ")
        if "NAME" in text:
            found += [(name, text.replace("NAME", name)) for name in words.split()]
        elif text.startswith("#include"):
            found.append((rf"(?<!cuda::)std::(?:{words})", text))
        elif match := re.match(r"(?:using|#define) (\w+)", text):
            found.append((match[1], text))
        elif words:
            found.append((f"(?:{words})", text))
    return found


def _known_to_nvcc(text: str) -> str:
    """Return declarations that nvcc has from the host's headers, if a source uses them and does not declare them."""
    code, out = without_comments(text), []
    for name, line in _of_nvcc():
        own = rf"\b(?:using|define|struct|enum|class)\s+{name}\b|\btypedef\b[^;{{}}]*\b{name}\s*;"
        if re.search(rf"\b{name}\b", code) and not re.search(own, code):
            out.append(line + "\n")
    return "".join(out)


def refuse_unsupported(text: str, flat: Flat, macros, own) -> None:
    """Raise `UnsupportedFeature` if device code uses a feature that the emulator or a card does not have."""
    plain = without_directives(without_comments(text))
    grids = "|".join({a or b for a, b in GRID_GROUP.findall(plain)} or {"this_grid"})
    for pattern, what, instead in UNSUPPORTED:
        pattern = pattern.replace("NAMES", grids)
        uses = (re.search(rf"\b{name}\b", plain) for name, m in macros.items() if re.search(pattern, m.body))
        if match := re.search(pattern, plain) or next(filter(None, uses), None):
            message = f"{what} cannot be run without a GPU: {instead}"
            raise error_at(UnsupportedFeature, flat, match.start(), message)
    if match := re.search(r"[^\x00-\x7f]", plain):
        message = f"{match[0]!r} in a name: NVIDIA's compiler takes ASCII only"
        raise error_at(UnsupportedFeature, flat, match.start(), message)
    for header, pattern in OF_HEADERS.items():
        included = re.search(rf"#\s*include\s*[<\"]{header}", flat.text)
        included = included or flat.missing or (header in OF_CUBLAS and CUBLAS.search(flat.text))
        match = None if included else re.search(pattern, plain)
        if match and match[0] not in own and not re.search(rf"\b(?:int|unsigned|float|auto)\s+{match[0]}\b", plain):
            message = f"{match[0]} needs #include <{header}>: a card's compiler has it from there"
            raise error_at(UnsupportedFeature, flat, match.start(), message)
    for match in C_LIBRARY.finditer(plain):
        if match[1] not in own:
            advice = "write the loop, or compute it in Python; a kernel has printf, memcpy and memset"
            message = f"{match[1]} is a function of the C library, which a card does not have: {advice}"
            raise error_at(UnsupportedFeature, flat, match.start(1), message)


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


def base_name(name: str) -> str:
    """Return the kernel's own name: "a::sgd<float, 4>" is of "sgd", and so is "(void (*)(float*))sgd"."""
    if match := re.match(r"\s*static_cast\s*(?=<)", name):
        name = name[closing_angle(name, match.end()) :].strip(" ()")
    elif name.lstrip().startswith("("):
        name = name[closing(name, name.index("(")) :]
    return name.partition("<")[0].strip().lstrip("&").rpartition("::")[2].strip()


def _find(declarations, name) -> Declaration | None:
    wanted = base_name(name)
    found = [d for d in declarations if wanted in d.names and d.is_kernel]
    return max(found, key=lambda d: "{" in d.head or d.end - d.begin, default=None)


def scope(text: str, name: str) -> str:
    """Return the namespaces of a variable at namespace scope: "a::b::"."""
    found = split(without_comments(text))
    return next((d.scope for d in found if d.kind == "variable" and name in d.names), "")


def _closure(declarations, roots, macros, words=()) -> set[Declaration]:
    """Return `roots`, and what they and `words` need."""
    by_name: dict[str, list[Declaration]] = {}
    for d in declarations:
        for name in d.names:
            by_name.setdefault(name, []).append(d)
    kept, seen = set(roots), set()
    todo = {*words}.union(*(d.uses for d in roots))
    while todo:
        name = todo.pop()
        seen.add(name)
        named = by_name.get(name, [])
        for d in [d for d in named if d.on_device or d.kind != "function"] or named:
            kept.add(d)
            todo |= d.uses - seen
        if name in macros:
            todo |= {*WORD.findall(expand(name, macros))} - seen
    return kept


def _reached(declarations, code, name, macros) -> set[Declaration]:
    """Return the declarations to keep: the kernel, those that it needs, and device variables."""
    wanted = base_name(name)
    always = [
        d for d in declarations
        if (d.is_kernel and wanted in d.names)
        or (d.kind == "variable" and d.on_device)
        or (d.kind == "function" and d.on_device and "operator" in d.names)
    ]  # fmt: skip
    kept = _closure(declarations, always, macros, WORD.findall(name))
    kept.update(_using_namespaces(declarations, code))
    lacking = names_of(declarations) - names_of(kept) - set(macros)
    return kept | {d for d in declarations if d.kind == "static_assert" and not d.uses & lacking}


def _using_namespaces(declarations, code) -> list[Declaration]:
    known = {"std", "cooperative_groups", "cuda", "thrust", "nvcuda"}
    known |= set(re.findall(r"(?<!using )\bnamespace\s+(\w+)", re.sub(r"\s+", " ", code)))
    using = [d for d in declarations if d.kind == "using namespace"]
    return [d for d in using if next(iter(d.names)).partition("::")[0] in known]


def _without_host(kept, code) -> dict[str, str]:
    """Leave out declarations that only the host can use; return the names of its functions."""
    host = [d for d in kept if not d.on_device]
    functions = [d for d in host if d.kind == "function"]
    variables = [d for d in host if d.kind == "variable" and HOST_ONLY.search(code[d.begin : d.end])]
    kept -= {*functions, *variables}
    return {name: name for d in functions for name in d.names}


def host_hints(of_host: dict[str, str], said: str) -> list[str]:
    """Return a hint for each function of the host that a compiler's messages name."""
    return [
        f"  hint: {shown} is a function of the host: write __device__ before it so that a kernel may call it"
        for word, shown in sorted(of_host.items()) if re.search(rf"\b{word}\b", said)
    ]  # fmt: skip


# Other compilers make these, or count them into the layout; and pointers to functions.
KEPT_MEMBER = re.compile(r"\bvirtual\b|=\s*(?:default|delete)\s*;|\(\s*(?:\w+\s*::\s*)?\*")


def _without_host_members(text: str, code: str) -> tuple[str, dict[str, str]]:
    """Blank the functions of structs that are not for the device; return the names they are called by."""
    plain, macros, declarations = without_directives(code), macros_of(code), split(code)
    defined = names_of(d for d in declarations if d.on_device)  # a member may be, outside its struct
    found = list(_host_members(plain, declarations, macros, defined))
    return _blank(text, [d for d, *_ in found]), {word: name for _, word, name in found}


def _host_members(plain, declarations, macros, defined):
    """Yield the members of structs that are functions and not for the device, a word of each call, and their name."""
    for record in (d for d in declarations if d.kind == "type"):
        head, brace, _ = plain[record.begin : record.end].partition("{")
        bare = _without_template(head)
        kind = RECORD.search(bare)
        if not brace or not kind or kind[1] == "enum":
            continue
        struct = (WORD.findall(_brackets_removed(bare[kind.end() :])) or [""])[0]
        at = record.begin + len(head)
        for d in _scope(plain, at + 1, closing(plain, at) - 1, macros):
            written = plain[d.begin : d.end]
            yield from _host_members(plain, [d], macros, defined)
            if d.kind != "function" or d.on_device or KEPT_MEMBER.search(written):
                continue
            if "{" in written or not d.names & defined:
                name = function_name(d.head)[0]
                operator = re.search(r"operator\s*(\(\s*\)|[^(]+)", d.head)
                word = struct if operator or name.strip("~") == struct else name
                yield d, word, f"{struct}::{operator[0].strip() if operator else name}"


def kernels_of(source: str) -> dict[str, str]:
    """Return the names of the kernels that a source defines, in order; for templates arguments that may fit."""
    code = without_comments(source)
    found = [d for d in split(code) if d.is_kernel and "{" in code[d.begin : d.end]]
    return {name: _fitting(d.head) for d in found for name in sorted(d.names)}


def _fitting(head: str) -> str:
    match = re.match(r"\s*template\s*<(.*?)>\s*\w*__global__", head, re.S)
    kinds = [part.split()[0] for part in split_commas(match[1])] if match else []
    fitting = {"typename": "float", "class": "float", "bool": "1"}
    return f"<{', '.join(fitting.get(kind, '32') for kind in kinds)}>" * bool(kinds)


def parameters_of(kernel, name) -> list[str]:
    """Return the names of the parameters in a kernel's head; a macro may have made several heads."""
    head = kernel.head
    if match := re.search(rf"[^;{{}}]*\b{re.escape(base_name(name))}(?=\s*\()", head):
        head = head[match.start() : bracketed(head, match.end())[1]]
    if not function_name(head):
        return []
    given, _ = bracketed(_brackets_removed(_without_template(head)), function_name(head)[1])
    names = []
    for i, parameter in enumerate(given):
        plain = re.sub(r"=.*", "", parameter, flags=re.S).strip()
        word = re.search(r"\(\s*\*\s*(\w+)|(\w+)\s*(?:\[[^\]]*\]\s*)*$", plain)
        names.append(word[1] or word[2] if word else f"argument {i}")
    return [] if names == ["void"] else names


def _most_threads(kernel) -> int:
    if match := re.search(r"__launch_bounds__(?=\s*\()", kernel.head):
        first, *_ = bracketed(kernel.head, match.end())[0]
        with contextlib.suppress(SyntaxError, ValueError, ZeroDivisionError, TypeError):
            return int(eval(first, {"__builtins__": {}})) if re.fullmatch(r"[\d\s+*/()<>-]+", first) else 1024
    return 1024
