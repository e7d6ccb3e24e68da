"""The value of an expression of C, such as `(n + 255) / 256`: read as Python's, with what differs put in."""

from __future__ import annotations

import ast
import keyword
import math
import re

import numpy as np

from .arguments import NUMPY, WORDS
from .emulator.source import closing

SIZES = {words: np.dtype(NUMPY[code]).itemsize for code, words in WORDS.items() if code in NUMPY}
SIZES |= {"unsigned int": 4, "size_t": 8, "float2": 8, "float3": 12, "float4": 16, "int2": 8, "int4": 16}
SIZES |= {f"{sign}int{bits}_t": bits // 8 for bits in (8, 16, 32, 64) for sign in ("", "u")}


class Array:
    """The bytes of a `cudaMalloc`: no number, so an expression that moves a pointer is not known."""

    def __init__(self, nbytes):
        self.text = f"bytes[{int(nbytes)}]"


_MATHS = {"ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "pow": math.pow, "min": min, "max": max}
_KNOWN = {
    **dict.fromkeys((*SIZES, "unsigned", "long"), int), "float": float, "double": float,
    **_MATHS, **{f"{name}f": call for name, call in _MATHS.items()},
    "true": 1, "false": 0, "NULL": 0, "nullptr": 0, "argc": 1,
    "dim3": lambda *sides: sides if len(sides) > 1 else sides[0],
    "emu_bytes": Array,
    "emu_divide": lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) else a / b,
}  # fmt: skip


class _AsInC(ast.NodeTransformer):
    """Makes of an expression that was read as Python what it is in C; `int ** x` stands for a cast."""

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Pow):
            return ast.Call(node.left, [node.right], [])
        divide = ast.Name("emu_divide", ast.Load())
        return ast.Call(divide, [node.left, node.right], []) if isinstance(node.op, ast.Div) else node

    def visit_Name(self, node):
        """A variable is looked up, `a.x` and `a[0]` by what is written."""
        written = ast.unparse(node)
        return (
            node
            if written in _KNOWN
            else ast.Call(ast.Name("emu_look", ast.Load()), [ast.Constant(written.removeprefix("emu_"))], [])
        )

    visit_Attribute = visit_Subscript = visit_Name


_AS_PYTHON = [
    (r"\s+", " "),
    (rf"\b({'|'.join(keyword.kwlist)})\b", r"emu_\1"),  # a pointer `in`
    (r"^(?: ?\w+ ?=(?!=))+", ""),  # of `nx = ny = 1024`
    (r"\bstd\s*::\s*", ""),
    (r"\b(?:static|reinterpret|const)_cast\s*<([^<>]*)>", r"(\1)"),
    (r"(?<!\w)\([\w\s:]+\*+\s*\)", ""),  # casts of pointers, then of numbers
    (r"(?<!\w)\((?:\w+\s+)*([A-Za-z_]\w*)\s*\)(?=\s*[\w.(])", r"\1 ** "),
    (r"(?<![\w.])((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[uUlLfF]+\b", r"\1"),
    (r"^\s*\{(.*)\}\s*$", r"dim3(\1)"),
    (r"->", "."),
    (r"&&", " and "),
    (r"\|\|", " or "),
    (r"!(?!=)", " not "),
]


def evaluate(text: str, look):
    """Return the value of an expression of C; `look` returns that of a variable."""
    for pattern, python in _AS_PYTHON:
        text = re.sub(pattern, python, text)
    text = text.strip()
    while text.startswith("(") and closing(text, 0) == len(text):
        text = text[1:-1].strip()
    test, _, rest = text.partition("?")
    if rest:
        return evaluate(rest.partition(":")[0 if evaluate(test, look) else 2], look)
    tree = ast.fix_missing_locations(_AsInC().visit(ast.parse(text, mode="eval")))
    return eval(compile(tree, "", "eval"), {"__builtins__": {}, "emu_look": look, **_KNOWN})
