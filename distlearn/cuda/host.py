"""What the host code of a .cu file says about launches: `scale<<<blocks, 256>>>(x, 2.0f, n)`, where it has literals.

    kernels_of(source) --> names of its kernels            launches_of(source, name) --> grids, blocks, arguments
    argument("float[1024]", "*f4") --> an array

Nothing of the host code is run. Literals, `#define`s, constants and `dim3`s are worked out, and the sizes of arrays are
those of `cudaMalloc`; a launch that depends on anything else is refused, with the name of what is not known.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import numpy as np

from .arguments import NUMPY, WORDS, spell
from .emulator.device_code import closing, expand, macros_of, split
from .emulator.source import split_commas, without_comments

ELEMENTS = 1 << 26  # of an array, at most: for each byte the emulator keeps several of its own
THREADS = 1 << 22  # of a launch of the host code, at most: others take minutes
SIZES = {words: np.dtype(NUMPY[code]).itemsize for code, words in WORDS.items() if code in NUMPY}
SIZES |= {"unsigned int": 4, "size_t": 8, "float2": 8, "float3": 12, "float4": 16, "int2": 8, "int4": 16}
_CONSTANT = r"\b(?:const|constexpr|int|unsigned|long|size_t|float|double|auto)\s+(\w+)\s*=\s*([^;,{}]+)[;,]"


class Launch(NamedTuple):
    """A launch of the host code, as far as it can be read; `unknown` says what of it is not a literal."""

    kernel: str  # of a template with its arguments
    line: int
    grid: tuple
    block: tuple
    shared: int
    arguments: list  # a number, or the bytes of an array as ("bytes", n)
    unknown: str = ""


def kernels_of(source: str) -> dict[str, bool]:
    """Return the names of the kernels that a source defines, in order, and whether each is a template."""
    code = without_comments(source)
    found = [d for d in split(code) if d.is_kernel and "{" in code[d.begin : d.end]]
    return {name: d.head.lstrip().startswith("template") for d in found for name in sorted(d.names)}


def launches_of(source: str, name: str) -> list[Launch]:
    """Return the launches of a kernel in the host code."""
    code = without_comments(source)
    macros = macros_of(code)
    known = dict(re.findall(_CONSTANT, code))
    dims = dict(re.findall(r"\bdim3\s+(\w+)\s*(?:=\s*dim3\s*)?\(([^;]*)\)\s*;", code))
    sizes = {}
    for match in re.finditer(r"\bcudaMalloc\w*\s*\(", code):
        pointer, *size = split_commas(code[match.end() : closing(code, match.end() - 1) - 1])
        sizes |= {m[1]: size[0] for m in [re.search(r"&\s*(\w+)\s*$", pointer)] if m and size}
    types = {new: SIZES[old] for old, new in re.findall(r"\btypedef\s+([\w ]+?)\s+(\w+)\s*;", code) if old in SIZES}
    values = _Values(macros, known, SIZES | types)
    found = []
    for match in re.finditer(rf"\b{re.escape(name)}\s*(<[^<>;]*>)?\s*<<<(.*?)>>>\s*\(", code, re.S):
        which = name + (match[1] or ""), code.count("\n", 0, match.start()) + 1
        setting = split_commas(match[2])
        given = split_commas(code[match.end() : closing(code, match.end() - 1) - 1])
        try:
            grid, block = (_triple(dims.get(part.strip(), part), values) for part in setting[:2])
            shared = values.number(setting[2]) if len(setting) > 2 else 0
            arguments = [_argument(text.strip(), sizes, values) for text in given]
            if (threads := math.prod((*grid, *block))) > THREADS:
                raise LookupError(f"{threads:,} threads, at most {THREADS:,} are run: choose --grid and --arg")
            if (held := sum(a[1] for a in arguments if isinstance(a, tuple))) > ELEMENTS:
                raise LookupError(f"{held:,} bytes of arrays, at most {ELEMENTS:,} are: choose --grid and --arg")
            found.append(Launch(*which, grid, block, int(shared), arguments))
        except LookupError as error:
            found.append(Launch(*which, (), (), 0, [], str(error.args[0])))
    return found


def _triple(text: str, values: _Values) -> tuple:
    text = re.sub(r"^\s*dim3\s*\((.*)\)\s*$", r"\1", text, flags=re.S)
    return tuple(int(values.number(part)) for part in split_commas(text))


def _argument(text: str, sizes: dict, values: _Values):
    return ("bytes", int(values.number(sizes[text]))) if text in sizes else values.number(text)


class _Values:
    """Works out constant expressions of C."""

    def __init__(self, macros, known, sizes):
        self._macros, self._known, self._sizes = macros, known, sizes

    def number(self, text: str, depth: int = 0):
        plain = expand(text, self._macros)
        plain = re.sub(r"\bsizeof\s*\(\s*([\w ]+?)\s*\)", lambda m: str(self._sizes.get(m[1], m[0])), plain)
        plain = re.sub(r"\(\s*(?:int|float|double|size_t|long|unsigned(?: int)?)\s*\)", "", plain)
        plain = re.sub(r"(?<=[\d.])[uUlLfF]+\b", "", plain)
        plain = re.sub(r"(?<![\w.])[A-Za-z_]\w*", lambda m: self._name(m[0], depth), plain)
        try:
            if not re.fullmatch(r"[\d\s.+*/%()<>eE-]+", plain) or "**" in plain:
                raise SyntaxError
            return eval(plain if "." in plain else plain.replace("/", "//"), {"__builtins__": {}})
        except (SyntaxError, ArithmeticError, TypeError, ValueError):
            raise LookupError(f"{' '.join(text.split())!r} is not a literal") from None

    def _name(self, name: str, depth: int) -> str:
        return f"({self.number(self._known[name], depth + 1)})" if name in self._known and depth < 20 else name


def argument(text: str, code: str, rng):
    """Make an argument of a launch of its description: `1024`, `float[32, 32]`, `const int[64]=arange`."""
    # What a description may begin with, the type, is for the reader; the kernel's own is taken.
    match = re.fullmatch(r"\s*[\w ]*?(?:\[([\d\s,]+)\])?\s*(?:=\s*(\S+))?\s*", text)
    number = re.fullmatch(r"\s*[-+.\deE]+\s*", text)
    kind = code.lstrip("*k")
    if kind not in NUMPY:
        raise ValueError(f"--arg {text!r}: the kernel wants a {spell(code)}, which only Python can pass: RawKernel")
    if number and not code.startswith("*"):
        return np.dtype(NUMPY[kind]).type(float(text) if kind[0] in "fh" else int(text))
    if not match or not match[1] or not code.startswith("*"):
        wanted = f"{spell(code)[:-1]}[1024]" if code.startswith("*") else "a number"
        raise ValueError(f"--arg {text!r}: the kernel wants a {spell(code)}, expected {wanted}")
    shape = tuple(int(n) for n in match[1].replace(" ", "").strip(",").split(","))
    if not 0 < np.prod(shape, dtype=object) <= ELEMENTS:
        raise ValueError(f"--arg {text!r}: expected 1 to {ELEMENTS:,} elements")
    return filled(shape, NUMPY[kind], match[2] or "", rng)


FILLS = {
    "normal": lambda shape, rng: rng.normal(size=shape),
    "uniform": lambda shape, rng: rng.random(shape),
    "arange": lambda shape, rng: np.arange(np.prod(shape)).reshape(shape),
    "zeros": lambda shape, rng: np.zeros(shape),
    "ones": lambda shape, rng: np.ones(shape),
}


def filled(shape, dtype, fill, rng) -> np.ndarray:
    """Return an array of normal numbers, of ones if they are whole, or of what `fill` says."""
    fill = fill or ("normal" if np.dtype(dtype).kind in "fc" else "ones")
    if fill in FILLS:
        return np.ascontiguousarray(FILLS[fill](shape, rng).astype(dtype))
    try:
        return np.full(shape, float(fill), dtype)
    except ValueError:
        raise ValueError(f"={fill}: expected a number, or one of {', '.join(FILLS)}") from None
