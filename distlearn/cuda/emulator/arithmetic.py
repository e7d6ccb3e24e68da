"""Shifts and casts of CUDA C with a card's results, where C++ leaves them to the processor.

`1 << 40` is 0 on a card and 256 on an x86; `(int)1e10f` is the largest integer there and the smallest here. C++ can
overload neither, so the text is changed: operators and a cast of `runtime/arithmetic.h` replace them, with the
precedence that `<<` and a cast have. Unchanged are: a shift by a literal below 32, which is the same on both;
in the text of macros; and an implicit conversion (`int i = x;`), which clang saturates by itself and gcc does
not.
"""

from __future__ import annotations

import re

WORDS = (
    r"(?:unsigned|signed)(?:\s+(?:char|short|int|long\s+long(?:\s+int)?|long(?:\s+int)?))?"
    r"|char|short|int|long\s+long(?:\s+int)?|long(?:\s+int)?|u?int(?:8|16|32|64)_t|size_t|uint|uchar|ushort|ulong"
)
CAST = re.compile(rf"\(\s*({WORDS})\s*\)(?=\s*[\w(+\-~!.*'])")
STATIC_CAST = re.compile(rf"\bstatic_cast\s*<\s*({WORDS})\s*>(?=\s*\()")
FUNCTION_CAST = re.compile(r"(?<![\w.>:])(int|unsigned|uint|long)(?=\(\s*[\w(\-.+]+)")
SHIFT = re.compile(r"(?<![<>])(<<|>>)(=?)(?![<>=])")
SMALL = re.compile(r"\s*(?:[12]?\d|3[01]|0[xX]1?[0-9a-fA-F])[uU]?(?![\w.])")
BEFORE_OPERAND = re.compile(r"(?:[=+\-*/%&|^~!<>?:,;({\[}]|\b(?:return|else|case))\s*$")
CLOSES = re.compile(r"[\w:,*&\s()+\-/%.<>]*")  # the arguments between the brackets of a template


def card_arithmetic(code: str) -> list[tuple[int, int, str]]:
    """Return (begin, end, new text) of the shifts and casts of a source; comments, strings and directives are blank."""
    edits = []
    for match in SHIFT.finditer(code):
        operator, assigns = match.groups()
        if SMALL.match(code, match.end()) or code[: match.start()].rstrip().endswith("operator"):
            continue
        if operator == ">>" and _closes_templates(code, match.start()):
            continue
        edits.append((match.start(), match.end(), f"{operator}{assigns}emu::shift{operator}{assigns}"))
    for match in CAST.finditer(code):
        if BEFORE_OPERAND.search(code, max(0, match.start() - 40), match.start()):
            edits.append((match.start(1), match.end(1), f"emu::To<{match[1]}>"))
    edits += [(m.start(), m.end(), f"(emu::To<{m[1]}>)") for m in STATIC_CAST.finditer(code)]
    for match in FUNCTION_CAST.finditer(code):
        if re.search(r"(?:[=+\-*/%?\[|]|[^&]&|\breturn)\s*$", code[max(0, match.start() - 40) : match.start()]):
            edits.append((match.start(), match.end(), f"(emu::To<{match[1]}>)"))
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
