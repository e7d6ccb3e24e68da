"""What the host code of a .cu file says about launches: `scale<<<blocks, 256>>>(x, 2.0f, n)`, as far as it can be read.

    kernels_of(source) --> its kernels        launches_of(source) --> grids, blocks and arguments, by kernel

Nothing of the host code is run. A variable has the value that it is given before the launch, a parameter of a host
function that of a call, an array the size of its `cudaMalloc`. What depends on anything else (input, other files, what
functions do, an `if`) is not known: it is named, and the launch is refused.
"""

from __future__ import annotations

import ast
import functools
import itertools
import keyword
import math
import re
from typing import NamedTuple

import numpy as np

from .arguments import ELEMENTS, NUMPY, WORDS
from .emulator.device_code import Macro, expand, macros_of, parameters_of, split
from .emulator.source import bracketed, closing, position, spaces, split_commas, without_comments

THREADS = 1 << 22  # of a launch of the host code, at most: others take minutes
SIZES = {words: np.dtype(NUMPY[code]).itemsize for code, words in WORDS.items() if code in NUMPY}
SIZES |= {"unsigned int": 4, "size_t": 8, "float2": 8, "float3": 12, "float4": 16, "int2": 8, "int4": 16}
SIZES |= {f"{sign}int{bits}_t": bits // 8 for bits in (8, 16, 32, 64) for sign in ("", "u")}
LIMITS = {"maxGridSize[0]": 2**31 - 1, "maxThreadsPerBlock": 1024, "warpSize": 32}  # of all cards, in cudaDeviceProp
_MATHS = {"ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "pow": math.pow, "min": min, "max": max}
_KNOWN = dict.fromkeys((*SIZES, "unsigned", "long"), int) | {"float": float, "double": float} | _MATHS
_KNOWN |= {f"{name}f": call for name, call in _MATHS.items()} | {"true": 1, "false": 0, "NULL": 0, "nullptr": 0}
_KNOWN |= {"dim3": lambda *sides: sides if len(sides) > 1 else sides[0], "emu_bytes": lambda n: _Array(n), "argc": 1}
_KNOWN |= {"emu_divide": lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) else a / b}


class Launch(NamedTuple):
    """A launch of the host code; None stands for what is not known, and `unknown` says why."""

    kernel: str  # of a template with its arguments
    line: int
    grid: tuple | None
    block: tuple | None
    shared: int | None
    arguments: list  # as `argument` takes them: "2.5", "bytes[4000]"
    unknown: str


def kernels_of(source: str) -> dict[str, str]:
    """Return the names of the kernels that a source defines, in order; for templates arguments that may fit."""
    code = without_comments(source)
    found = [d for d in split(code) if d.is_kernel and "{" in code[d.begin : d.end]]
    return {name: _of_template(d.head) for d in found for name in sorted(d.names)}


def _of_template(head: str) -> str:
    match = re.match(r"\s*template\s*<(.*?)>\s*\w*__global__", head, re.S)
    kinds = [part.split()[0] for part in split_commas(match[1])] if match else []
    fitting = {"typename": "float", "class": "float", "bool": "1"}
    return f"<{', '.join(fitting.get(kind, '16') for kind in kinds)}>" * bool(kinds)


def launches_of(source: str, place=lambda line: ("", line)) -> dict[str, list[Launch]]:
    """Return the launches of the host code, by kernel; `place` returns the file and line of a line of the source."""
    host, found = _Host(without_comments(source)), {}
    for match in re.finditer(r"\b(\w+)\s*(<[^;{}]*?>)?\s*<<<(.*?)>>>(?=\s*\()", host.code, re.S):
        tried = [host.launch(match, given) for given in itertools.islice(host.callers(match.start()), 20)]
        one = min(tried, key=lambda one: bool(one.unknown))
        found.setdefault(match[1], []).append(one._replace(line=place(one.line)[1]))
    return found


class _Host:
    """The host code of a source; `given` holds what a call passes for parameters: text, place, and its caller's own."""

    def __init__(self, code):
        for match in re.finditer(r"\bfor\s*\(", code):  # without what is done after a turn: the first one counts
            end = closing(code, match.end() - 1) - 1
            at = code.rfind(";", 0, end) + 1
            code = code[:at] + spaces(code[at:end]) + code[end:]
        self.code, self.macros = code, macros_of(code)
        self.scopes = [d for d in split(code) if d.kind in ("function", "type") and "{" in code[d.begin : d.end]]
        for d in self.scopes:
            d.name, d.parameters = min(d.names, default=""), []
            if d.kind == "function":
                d.parameters = parameters_of(d, d.name)
                body = re.search(r"\)\s*\{\s*return\b([^;]*);\s*\}$", code[d.begin : d.end])
                if body and d.parameters:
                    inline = re.sub(rf"\b({'|'.join(d.parameters)})\b", r"(\1)", f"({body[1]})")
                    self.macros.setdefault(d.name, Macro(d.parameters, inline))
        typedefs = re.findall(r"\btypedef\s+([\w ]+?)\s+(\w+)\s*;", code)
        self.sizes = SIZES | {new: SIZES[old] for old, new in typedefs if old in SIZES}

    def scope(self, at):
        return next((d for d in self.scopes if d.begin <= at < d.end), None)

    def callers(self, at, depth=0):
        """Yield what the function around a place may have been given: by each of its calls, at last nothing."""
        scope = self.scope(at)
        of_template = re.match(r"\s*template\s*<([^<>]*)>", self.code[scope.begin :]) if scope else None
        types = re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", of_template[1]) if of_template else []
        if scope and scope.parameters and depth < 5:
            for call in re.finditer(rf"\b{scope.name}\s*(?:<([^;(){{}}]*)>)?(?=\s*\()", self.code):
                texts, _ = bracketed(self.code, call.end())
                if len(texts) == len(scope.parameters) and self.scope(call.start()) not in (scope, None):
                    texts = dict(zip([*scope.parameters, *types], [*texts, *split_commas(call[1] or "")], strict=False))
                    for given in self.callers(call.start(), depth + 1):
                        yield {name: (text, call.start(), given) for name, text in texts.items()}
        yield {}

    def launch(self, match, given) -> Launch:
        """Read the launch of a match of `launches_of`."""
        missing = []

        def known(text, kind):
            try:
                return self.value(text, match.start(), given, kind=kind)
            except LookupError as error:
                missing.append(error.args[0])

        grid, block, *rest = [*split_commas(match[3]), "", ""]
        texts, _ = bracketed(self.code, match.end())
        grid, block = known(grid, _triple), known(block, _triple)
        shared = known(rest[0] or "0", int)
        arguments = [known(text, lambda v: getattr(v, "text", None) or repr(v + 0)) for text in texts]
        if (threads := math.prod((*(grid or ()), *(block or ())))) > THREADS:
            missing.insert(0, f"{threads:,} threads, at most {THREADS:,} are run")
            grid = None
        held = [a for a in arguments if a and a.startswith("bytes")]
        if (n := sum(int(a[6:-1]) for a in held)) > ELEMENTS:
            missing.insert(0, f"{n:,} bytes of arrays, at most {ELEMENTS:,} are made")
            grid, arguments = None, [a and (None if a in held or a.isdigit() else a) for a in arguments]
        line, _ = position(self.code, match.start())
        types = [self._spelled(text.strip(), match.start(), given) for text in split_commas((match[2] or "")[1:-1])]
        kernel = match[1] + f"<{', '.join(types)}>" * bool(types)
        return Launch(kernel, line, grid, block, shared, arguments, "".join(missing[:1]))

    def _spelled(self, text, at, given) -> str:
        """Return an argument of a template: a number, or the type that the caller's template has for this word."""
        try:
            return repr(self.value(text, at, given) + 0)
        except (LookupError, TypeError):
            return self._spelled(*given[text]) if text in given else text

    def value(self, text, at, given, depth=0, kind=lambda value: value):
        """Return the value of an expression at a place: a number, the sides of a dim3, or "bytes[n]"."""
        plain = expand(text, self.macros)
        plain = re.sub(r"\bsizeof\s*\(\s*([^()]*?)\s*\)", lambda m: self._size(m[1], m[0], at), plain)
        try:
            return kind(_evaluate(plain, lambda name: self._variable(name, at, given, depth)))
        except (SyntaxError, NameError, ArithmeticError, TypeError, ValueError, MemoryError, RecursionError) as error:
            raise LookupError(f"{' '.join(text.split())!r} is not a literal") from error

    def _size(self, what, written, at) -> str:
        """Return the bytes of a type or a variable; what was written if that is not known."""
        what = re.sub(r"\b(?:const|struct)\b", "", what).strip()
        if what in self.sizes or what.endswith("*"):
            return str(self.sizes.get(what, 8))
        name = re.search(r"\w*", what.lstrip("* "))[0]
        types = "|".join(map(re.escape, self.sizes))
        found = re.findall(rf"\b({types})\s([^;(){{}}=]*[\s,*])?{name}\b\s*((?:\[[^\]]*\]\s*)*)[;,=)]", self.code[:at])
        if not found or not name:
            return written
        kind, stars, sides = found[-1]
        if name != what:  # an element
            return str(self.sizes[kind])
        return "8" if "*" in stars else str(self.sizes[kind]) + sides.replace("[", "*(").replace("]", ")")

    def _variable(self, name, at, given, depth):
        """Return the value of a variable at a place."""
        if depth > 30:
            raise LookupError(f"{name!r} is not a literal")
        scope = self.scope(at)
        names = [f"{name}.{side}" for side in "xyz" * (scope is not None and "." not in name)]
        if any(sides := [self._assigned(side, at, scope.begin) for side in names]):
            return tuple(self.value(*side, given, depth + 1) if side else 1 for side in sides)
        if scope and (found := self._assigned(name, at, scope.begin)):
            return self.value(*found, given, depth + 1)
        if name in given:
            return self.value(*given[name], depth + 1)
        if found := self._assigned(name, None, 0):
            return self.value(*found, {}, depth + 1)
        base, _, member = name.rpartition(".")
        if member in LIMITS:
            return LIMITS[member]
        if base and member in "xyz":
            return (*_triple(self._variable(base, at, given, depth)), 1, 1)["xyz".find(member[:1])]
        raise LookupError(f"{name!r} is not a literal")

    @functools.cache  # noqa: B019  (it lives as long as the source is read)
    def _assigned(self, name, at, begin):
        """Return the text that a variable was given last, and the place; None if nowhere in this scope."""
        n = re.escape(name)
        allocation = r"\bcuda(?:Malloc(?:Managed|Host|Async)?|HostAlloc)\s*(?:<[^<>]*>)?\s*\("
        allocation += rf"[^;&]*&\s*\(?\s*{n}\s*\)?\s*,"
        change = rf"(?<![\w.>]){n}\s*(?:(?P<how>=(?!=)|[({{])|[-+*/%&|^]=|<<=|>>=|\+\+|--)|[(,]\s*&\s*{n}\s*[,)]"
        for match in reversed([*re.finditer(f"(?P<allocation>{allocation})|{change}", self.code[:at])]):
            start, how = match.start(), match["how"]
            if start < begin:
                break
            if match["allocation"]:
                return f"emu_bytes({self._until(match.end())})", start
            before = self.code[begin:start].rstrip()[-9:]
            declared = re.search(r"[\w*&>,]$", before) and not re.search(r"\b(?:return|else|case)$", before)
            text = self._until(match.end())
            if how != "=":
                text = "{" + self.code[match.end() : closing(self.code, match.end() - 1) - 1] + "}"
            chosen = re.search(r"\b(?:argv|ato[fil]+|sto[fil]+|strto\w+)\b", text)
            if not declared and (how in ("(", "{") or chosen):
                continue  # a call; what the command line may choose
            between = self.code[match.end() : at] if at else ""
            while between != (between := re.sub(r"\{[^{}]*\}", "", between)):
                pass
            local = "}" in between or (not at and self.scope(start))
            if local and declared:
                continue
            conditional = not declared and before.endswith((")", "else"))
            if not how or local or conditional or text.strip() in ("NULL", "nullptr"):
                raise LookupError(f"{name!r} is not a literal")
            return text, start
        return None

    def _until(self, at):
        """Return the text to the end of an argument or a statement."""
        end = at
        while (match := re.compile(r"[,;)}(\[{]").search(self.code, end)) and match[0] not in ",;)}":
            end = closing(self.code, match.start())
        return self.code[at : match.start() if match else None]


def _triple(value) -> tuple:
    return tuple(int(side) for side in (value if isinstance(value, tuple) else (value,)))


class _Array:
    """The bytes of a `cudaMalloc`: no number, so an expression that moves a pointer is not known."""

    def __init__(self, nbytes):
        self.text = f"bytes[{int(nbytes)}]"


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


def _evaluate(text: str, look):
    """Return the value of an expression of C; `look` returns that of a variable."""
    for pattern, python in _AS_PYTHON:
        text = re.sub(pattern, python, text)
    text = text.strip()
    while text.startswith("(") and closing(text, 0) == len(text):
        text = text[1:-1].strip()
    test, _, rest = text.partition("?")
    if rest:
        return _evaluate(rest.partition(":")[0 if _evaluate(test, look) else 2], look)
    tree = ast.fix_missing_locations(_AsInC().visit(ast.parse(text, mode="eval")))
    return eval(compile(tree, "", "eval"), {"__builtins__": {}, "emu_look": look, **_KNOWN})
