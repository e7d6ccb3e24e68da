"""Shifts and casts of CUDA C with a card's results, where C++ leaves them to the processor.

`1 << 40` is 0 on a card and 256 on an x86; `(int)1e10f` is the largest integer there and the smallest here. C++ can
overload neither, so the text is changed: operators and types of `runtime/arithmetic.h` are put in, with the precedence
that `<<` and a cast have. Unchanged are a shift by a literal below 32, which is the same on both, and what no cast
is written for (`int i = x;`): a sanitizer reports it when the card's result would be another.
"""

from __future__ import annotations

import re

WORDS = (
    r"(?:unsigned|signed)(?:\s+(?:char|short|int|long\s+long(?:\s+int)?|long(?:\s+int)?))?"
    r"|char|short|int|long\s+long(?:\s+int)?|long(?:\s+int)?|u?int(?:8|16|32|64)_t|size_t|uint|uchar|ushort|ulong"
)
# Names that a source gives to types: parameters of templates, and its own.
NAMED = re.compile(r"\b(?:typename|class)\s+(\w+)\s*(?=[,>=])|\btypedef\b[^;{}()]*?(\w+)\s*;|\busing\s+(\w+)\s*=")
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.M)
MACRO = re.compile(r"[ \t]*#[ \t]*define\s+\w+(?:\(([^)]*)\))?")
SHIFT = re.compile(r"(?<![<>])(<<|>>)(=?)(?![<>=])")
SMALL = re.compile(r"\s*(?:[12]?\d|3[01]|0[xX]1?[0-9a-fA-F])[uU]?(?![\w.])")
BEFORE_OPERAND = re.compile(r"(?:[=+\-*/%&|^~!<>?:,;({\[}]|\b(?:return|else|case))\s*$")
IN_EXPRESSION = re.compile(r"(?:[=+\-*/%?\[|^~!(,<>&]|\breturn|\?[^;{}]*:)\s*$")
CLOSES = re.compile(r"[\w:,*&\s()+\-/%.<>]*")  # the arguments between the brackets of a template


def card_arithmetic(code: str) -> list[tuple[int, int, str]]:
    """Return (begin, end, new text) of the shifts and casts of a source; comments and strings must be blank."""
    edits = []
    parameters: set[str] = set()  # of macros

    def text_of_macro(directive):
        defines = MACRO.match(directive[0])
        parameters.update(re.findall(r"\w+", (defines and defines[1]) or ""))
        header = directive[0][: defines.end()] if defines else directive[0]
        return re.sub(r"[^\n]", " ", header)[:-1] + "=" + directive[0][len(header) :]  # an expression can follow

    code = DIRECTIVE.sub(text_of_macro, code)
    for match in SHIFT.finditer(code):
        operator, assigns = match.groups()
        if SMALL.match(code, match.end()) or code[: match.start()].rstrip().endswith("operator"):
            continue
        if operator == ">>" and _closes_templates(code, match.start()):
            continue
        edits.append((match.start(), match.end(), f"{operator}{assigns}emu::shift{operator}{assigns}"))
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
    edits += [(m.start(), m.end(), f"emu::make<{m[1]}>") for m in static_cast.finditer(code)]
    for match in function_cast.finditer(code):
        if IN_EXPRESSION.search(code[max(code.rfind(c, 0, match.start()) for c in ";{}") + 1 : match.start()]):
            edits.append((match.start(), match.end(), f"emu::make<{match[1]}>"))
    return edits


def _closes_templates(code: str, at: int) -> bool:
    """Return whether `>>` closes two templates: two `<`, each right after a name, are open in the same expression."""
    depth = opened = 0
    while at > 0 and opened < 2:
        at -= 1
        character = code[at]
        if character in ")]":
            depth += 1
        elif character in "([":
            if not depth:
                return False
            depth -= 1
        elif not depth and character == ">":
            opened -= 1
        elif not depth and character == "<":
            if not re.search(r"[A-Za-z_]\w*$", code[max(0, at - 60) : at]):
                return False
            opened += 1
        elif not depth and not CLOSES.fullmatch(character):
            return False
    return opened == 2
