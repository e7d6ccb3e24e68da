"""Finds the branches of `#if` that are taken, without expanding any macro: lines and columns stay."""

from __future__ import annotations

import re

from distlearn.cuda.emulator.source import without_comments

CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b")
MACRO = re.compile(r"[ \t]*#[ \t]*(define|undef)\b")


def spaces(text: str) -> str:
    """Replace all characters with spaces, except ends of lines."""
    return re.sub(r"[^\n]", " ", text)


def taken_branches(text: str, preprocessor) -> str:
    """Blank the lines in branches of `#if` that a preprocessor does not take, and the `#if` lines themselves.

    It is given the conditions and macros, and a placeholder for every line: lines whose placeholder returns are taken.
    """
    code = without_comments(text).split("\n")
    if not any(map(CONDITION.match, code)):
        return text
    asked, number = [], 0
    first_of = []  # by line: the first line of the directive it belongs to
    while number < len(code):
        last = number
        while re.match(r"[ \t]*#", code[number]) and code[last].rstrip("\r").endswith("\\") and last + 1 < len(code):
            last += 1
        if not CONDITION.match(code[number]):
            asked.append(f"emu_line_{number}_")
        if CONDITION.match(code[number]) or MACRO.match(code[number]):
            asked += code[number : last + 1]
        first_of += [number] * (last + 1 - number)
        number = last + 1
    taken = {int(n) for n in re.findall(r"\bemu_line_(\d+)_", preprocessor("\n".join(asked)))}
    written = text.split("\n")
    return "\n".join(w if first in taken else spaces(w) for w, first in zip(written, first_of, strict=True))


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
