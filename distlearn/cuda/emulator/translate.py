"""Translates CUDA C, line by line, into the C++ that the header `runtime/cuda_emu.h` completes.

Nearly all of CUDA C is made valid C++ by that header. What needs the text itself:

- `#include` is blanked: the emulator's header has what CUDA's have, a source's own were read in before; - `extern
"C"` is blanked (names are in a namespace instead, where they cannot clash with the C library's); - `extern
__shared__ T x[];` becomes a pointer to dynamic shared memory, or an object that converts to one; - after a
`__shared__`, `__constant__` or `__device__` variable comes a call that registers its name and size with the
checker; - casts get a card's results, where C++ leaves them to the processor: `(int)1e10f` is the largest integer
on a card and
  the smallest here. C++ cannot overload casts, so types of `runtime/arithmetic.h` are put in. Unchanged is what no cast
  is written for (`int i = x;`): a sanitizer reports it when the card's result would be another.

Each is done on its own line, so that line numbers stay; `Translated.column` leads back to the columns.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from .device_code import DEFINE, RECORD, split
from .source import (
    DIRECTIVE,
    INCLUDE,
    CompileError,
    Flat,
    UnsupportedFeature,
    closing,
    error_at,
    position,
    spaces,
    split_commas,
    without_comments,
    without_directives,
)

WORDS = (
    r"(?:unsigned|signed)(?:\s+(?:char|short|int|long\s+long(?:\s+int)?|long(?:\s+int)?))?"
    r"|char|short|int|long\s+long(?:\s+int)?|long(?:\s+int)?|u?int(?:8|16|32|64)_t|size_t|uint|uchar|ushort|ulong"
)
# Names that a source gives to types: parameters of templates, and its own.
NAMED = re.compile(r"\b(?:typename|class)\s+(\w+)\s*(?=[,>=])|\btypedef\b[^;{}()]*?(\w+)\s*;|\busing\s+(\w+)\s*=")
BEFORE_OPERAND = re.compile(r"(?:[=+\-*/%&|^~!<>?:,;({\[}]|\b(?:return|else|case))\s*$")
IN_EXPRESSION = re.compile(r"(?:[=+\-*/%?\[|^~!(,<>&]|\breturn|\?[^;{}]*:)\s*$")


def card_casts(code: str) -> list[tuple[int, int, str]]:
    """Return (begin, end, new text) of the casts of a source; comments and strings must be blank."""
    edits = []
    parameters: set[str] = set()  # of macros

    def text_of_macro(directive):
        defines = DEFINE.match(directive[0])
        parameters.update(re.findall(r"\w+", (defines and defines[3]) or ""))
        header = directive[0][: defines.start(4)] if defines else directive[0]
        return spaces(header)[:-1] + "=" + directive[0][len(header) :]  # an expression can follow

    code = DIRECTIVE.sub(text_of_macro, code)
    names = {re.escape(name) for found in NAMED.findall(code) for name in found if name}
    types = rf"(?:std\s*::\s*)?(?:{'|'.join([WORDS, *names])})"
    of_macro = rf"|\(\s*({'|'.join(parameters)})\s*\)(?=\s*[\w(])" if parameters else "|(?!)()"
    cast = re.compile(rf"\(\s*({types})\s*\)(?=\s*[\w(+\-~!.*']){of_macro}")
    after_cast = re.compile(rf"\(\s*(?:{types}|float|double|bool)\s*\)\s*$")
    function_cast = re.compile(rf"(?<![\w.>:])({types})(?=\((?!\s*[*&]\s*\w*\s*\)\s*[(\[]))")  # not `int(*f)(int)`
    static_cast = re.compile(rf"\bstatic_cast\s*<\s*({types})\s*>(?=\s*\()")
    for match in cast.finditer(code):
        before = code[max(0, match.start() - 40) : match.start()]
        if BEFORE_OPERAND.search(before) or after_cast.search(before):
            edits.append((match.end(), match.end(), f"(emu::To<{match[1] or match[2]}>)"))
    edits += [(m.start(), m.end(), f"emu::Made<{m[1]}>::of") for m in static_cast.finditer(code)]
    for match in function_cast.finditer(code):
        if IN_EXPRESSION.search(code[max(code.rfind(c, 0, match.start()) for c in ";{}") + 1 : match.start()]):
            edits.append((match.start(), match.end(), f"emu::Made<{match[1]}>::of"))
    return edits


# `::sqrtf`: CUDA's functions are in a namespace here.
GLOBAL_SCOPE = re.compile(r"(?<![\w>:\s])\s*?::(?=\s*[A-Za-z_])|(?<=\breturn\s)::(?=\s*[A-Za-z_])")
QUALIFIER = re.compile(r"\b__(shared|constant|device|managed)__\b")
# Attributes that may be in brackets before the name of a variable; any other bracket begins a function's parameters.
IN_BRACKETS = re.compile(r"\b(?:__align__|__attribute__|alignas|decltype|__launch_bounds__)\s*$")
ALIGNMENT = re.compile(r"(?:__align__|__attribute__|alignas)\s*\((?:[^()]|\([^()]*\))*\)")
OPENS_RECORD = re.compile(RECORD.pattern + r"[^;{}=()]*$")
RENAMED = "emu_source_"  # before the name of a kernel that the runtime has, too
NAME = re.compile(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)\s*(?:[={].*)?$", re.S)


class Declaration(NamedTuple):
    """Variables of one declaration: `words` are its qualifiers, `names` the variables with their brackets."""

    begin: int
    end: int
    words: set[str]
    type: str
    names: list[tuple[str, str]]
    initialised: bool
    in_function: bool


class Edit(NamedTuple):
    """Replace the characters from `begin` to `end` with `text`."""

    begin: int
    end: int
    text: str


class Translated:
    """C++ made of CUDA C; `text` is the compiler's input."""

    def __init__(self, source: str, edits: list[Edit]):
        self.source, out, at = source, "", 0
        self._places = [(0, 0, 0)]  # (from here on in the new text, from here on in the source, 1 if it goes along)
        for edit in sorted(edits):
            out += source[at : edit.begin]
            self._places.append((len(out), edit.begin, 0))
            out += edit.text + "\n" * (source.count("\n", edit.begin, edit.end) - edit.text.count("\n"))
            at = edit.end
            self._places.append((len(out), at, 1))
        self._places[0] = (0, 0, 1)
        self.text = out + source[at:]
        self._lines = [m.end() for m in re.finditer(r"^|\n", self.text)]
        self._source_lines = [m.end() for m in re.finditer(r"^|\n", source)]

    def column(self, line: int, column: int) -> int:
        """Return the source's column, in characters, for a column of the new text, in bytes as compilers count."""
        if not (column and 0 < line <= len(self._lines)):
            return column
        begin = self._lines[line - 1]
        bytes_before = self.text[begin : begin + column].encode()[: column - 1]
        at = begin + len(bytes_before.decode(errors="ignore"))
        new, old, along = self._places[bisect_right(self._places, (at, len(self.source), 1)) - 1]
        return max(1, old + along * (at - new) - self._source_lines[line - 1] + 1)


def declarations(code: str) -> list[Declaration]:
    """Return the variables of a kernel source in the card's memories; comments must be blanked."""
    bodies = [(code.find("{", d.begin, d.end), d.end) for d in split(code) if d.kind in ("function", "type")]
    code = without_directives(code)
    found: list[Declaration] = []
    for match in QUALIFIER.finditer(code):
        at = match.start()
        if found and at < found[-1].end:
            continue
        begin = max(code.rfind(c, 0, at) for c in ";{}") + 1
        begin += len(re.match(r"\s*", code[begin:])[0])
        in_function = any(0 <= opened < at < end for opened, end in bodies)
        if declaration := _declaration(code, begin, at, in_function):
            found.append(declaration)
    return found


def _declaration(code, begin, at, in_function) -> Declaration | None:
    """Read the declaration around a qualifier; None if it declares a function."""
    i, body = at, begin
    while (match := re.compile(r"[;}{(\[]").search(code, i)) and match[0] not in ";}":
        i = match.start()
        if match[0] == "(" and not IN_BRACKETS.search(code[begin:i]):
            before = code[max(body, at) : i]
            if "=" not in before or re.search(r"\boperator\b", before):
                return None
        end = closing(code, i)
        if match[0] == "{" and OPENS_RECORD.search(code[body:i]):
            body = end  # the variables come after the body of their type
        i = end
    if not match or match[0] == "}":
        return None
    i = match.start()
    words = set(re.findall(r"\w+", re.split(r"[={]", code[begin:i])[0]))
    parts = split_commas(ALIGNMENT.sub(" ", code[body:i]))
    matches = [m for m in (NAME.search(part.strip()) for part in parts) if m]
    if not matches:
        return None
    first = parts[0].strip()[: matches[0].start()]
    kind = re.sub(r"\b(?:extern|static|__shared__)\b", " ", first)
    initialised = any(re.search(r"[={]", re.sub(r"\[[^\]]*\]", "", part)) for part in parts)
    names = [(m[1], m[2].strip()) for m in matches]
    return Declaration(begin, i + 1, words, " ".join(kind.split()), names, initialised, in_function)


def global_names(source: str) -> list[str]:
    """Return the names of the `__constant__` and `__device__` variables."""
    found = declarations(without_comments(source))
    return [name for d in found if not d.in_function and "__shared__" not in d.words for name, _ in d.names]


def overlaid(source: str) -> list[tuple[str, int, int, str]]:
    """Return a warning for each array of dynamic shared memory that begins where another of its function does."""
    code, found = without_comments(source), []
    dynamic = [d for d in declarations(code) if {"extern", "__shared__"} <= d.words and d.in_function]
    for first, second in pairwise(dynamic):
        between = f"{{{code[first.end : second.begin]} "
        names = first.names[0][0], second.names[0][0]
        if closing(between, 0) == len(between) and names[0] != names[1]:  # the first one's function has not ended
            text = f"{names[1]} begins where {names[0]} does: cut both from one array, {names[1]} = ...&{names[0]}[n]"
            found.append(("overlaid", *position(code, second.begin), text))
    return found


LOCAL_ARRAYS = re.compile(rf"(?<=[;{{}}])\s*(?:float|double|half|bool|{WORDS})\s+([^;(){{}}=]*\][^;(){{}}=]*);")
ADDS = re.compile(r"@\s*(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)=)|(?:\+\+|--)\s*@")
SETS = re.compile(r"(?<!&)&(?!&)[^;{}]*@|@\s*=(?!=)|[(,]\s*@\s*[,)]")  # by its address, =, or a call


def never_set(source: str) -> list[tuple[str, int, int, str]]:
    """Return a warning for each local array whose elements are added to, and of which none is ever set."""
    # Compilers warn of scalars alone. What an address, a call or a macro may set is passed over: a warning is right.
    code, found = without_comments(source), []
    bodies = [(d.begin, d.end) for d in split(code) if d.kind == "function"]
    directives = "".join(DIRECTIVE.findall(code))
    for match in LOCAL_ARRAYS.finditer(code):
        if not any(begin < match.start() < end for begin, end in bodies):
            continue
        scope = code[match.end() : match.end() + closing("{" + code[match.end() :], 0) - 2]
        for array in re.finditer(r"(\w+)\s*\[", match[1]):
            use = rf"\b{array[1]}\b((?:\s*\[(?:[^\[\]]|\[[^\]]*\])*\])*)"
            uses = re.sub(use, lambda m: "@" if m[1] else " &@", scope)  # @ is an element; a name alone, its address
            if ADDS.search(uses) and not SETS.search(uses) and array[1] not in directives:
                at = match.start(1) + array.start()
                text = f"{array[1]} is added to but never set: at first its elements can be anything"
                found.append(("uninitialised-local", *position(code, at), text))
    return found


def to_cpp(source: str, flat: Flat, *, arithmetic: bool = True, renamed=()) -> Translated:
    """Return CUDA C as C++, with the `arithmetic` of a card or of C++."""
    # `renamed` are kernels that have a name of the runtime: where the declaration begins and ends, and the name.
    code = without_comments(source)
    edits = [Edit(m.start(), m.end(), " " * len(m[0])) for m in INCLUDE.finditer(code)]
    edits += [Edit(m.start(), m.end(), "  ") for m in GLOBAL_SCOPE.finditer(code)]
    for match in re.finditer(r'extern(\s*)"( *)"(\s*\{)?', code):
        if source[match.start() : match.end()].partition('"')[2].startswith('C"'):
            edits.append(
                Edit(match.start(), match.end(), "inline namespace emu_c {" if match[3] else " " * len(match[0]))
            )
    for begin, end, name in renamed:
        if match := re.compile(rf"\b{name}(?=\s*(?:<[^()]*>\s*)?\()").search(code, begin, end):
            edits.append(Edit(match.start(), match.end(), RENAMED + name))
    edits += _in_macros(code, flat)
    for d in declarations(code):
        if "__shared__" not in d.words:
            constant = int("__constant__" in d.words)
            if "template" in d.words:
                at = code.index("template", d.begin)
                raise error_at(UnsupportedFeature, flat, at, "templates of __constant__ and __device__ variables "
                             "cannot be run without a GPU: declare one for each type")  # fmt: skip
            if not d.in_function:
                edits.append(Edit(d.end, d.end, "".join(f" EMU_GLOBAL({name}, {constant})" for name, _ in d.names)))
        elif "extern" in d.words:
            edits.append(Edit(d.begin, d.end, _dynamic_shared(d)))
        elif d.initialised:
            raise error_at(CompileError, flat, d.begin, "a __shared__ variable cannot have an initial value: "
                         "let threads write it, then call __syncthreads()")  # fmt: skip
        else:
            word = "EMU_SHARED" if d.in_function else "EMU_SHARED_GLOBAL"
            edits += [
                Edit(d.begin + m.start(), d.begin + m.end(), " " * 6)  # `__shared__` implies it
                for m in re.finditer(r"\bstatic\b", code[d.begin : d.end])
            ]
            edits.append(Edit(d.end, d.end, "".join(f" {word}({name})" for name, _ in d.names)))
    guesses = set()  # what is read before a compare-and-swap of the same place
    for match in re.finditer(r"\batomicCAS(?:_\w+)?\s*\(\s*(&?)\s*((?:[^(),]|\([^()]*\))+?)\s*,", code):
        place = ("" if match[1] else r"\*\s*") + re.escape(match[2])
        reads = re.finditer(rf"(?<![=!<>])=\s*({place})(?=\s*[,;])", code)
        guesses |= {Edit(*read.span(1), f"emu_guess({read[1]})") for read in reads}
    edits += guesses
    if arithmetic:
        own = card_casts(code)
        edits += [Edit(*e) for e in own if not any(e[0] < other.end and other.begin < e[1] for other in edits)]
    return Translated(source, edits)


def _in_macros(code, flat) -> list[Edit]:
    """Complete declarations in the text of a macro that also end there."""
    edits = []
    for match in DIRECTIVE.finditer(code):
        if "__shared__" not in match[0]:
            continue
        whole = re.search(r"__shared__\s+[^;={}#]*?(\w+)\s*((?:\[[^\]]*\]\s*)*);", match[0])
        if not whole or match[0].count("__shared__") > 1:
            raise error_at(UnsupportedFeature, flat, match.start(), "the emulator cannot see a __shared__ variable "
                         "in a macro: write its declaration out, or end the macro with its semicolon")  # fmt: skip
        edits.append(Edit(match.start() + whole.end(), match.start() + whole.end(), f" EMU_SHARED({whole[1]})"))
    return edits


def _dynamic_shared(d: Declaration) -> str:
    """Translate `extern __shared__ T x[]`: in a function to a pointer, outside to an object that converts to one."""
    out = ""
    for name, brackets in d.names:
        row = brackets.partition("]")[2].strip()  # of `T x[][16]`
        if d.in_function and row:
            out += f"{d.type} (* const {name}){row} = ({d.type} (*){row})emu_dynamic_shared();"
        elif d.in_function:
            out += f"{d.type}* const {name} = ({d.type}*)emu_dynamic_shared();"
        else:
            out += f"static const emu::DynamicShared<{d.type}> {name};"
    return out
