"""What the host code of a .cu file says about launches: `scale<<<blocks, 256>>>(x, 2.0f, n)`, as far as it can be read.

Nothing of the host code is run. A variable has the value that it is given before the launch, a parameter of a host
function that of a call, an array the size of its `cudaMalloc`. A variable that holds a kernel stands for all that it is
set to. What depends on anything else (input, other files, what functions do, an `if`) is not known: it is named, and
the launch is refused.
"""

from __future__ import annotations

import functools
import math
import re
from typing import NamedTuple

from .arguments import ELEMENTS
from .emulator.device_code import Macro, expand, macros_of, names_of, parameters_of, split
from .emulator.source import (
    bracketed,
    closing,
    position,
    spaces,
    split_commas,
    without_comments,
    without_directives,
)  # fmt: skip
from .expressions import SIZES, evaluate

THREADS = 1 << 22  # of a launch of the host code, at most: others take minutes
LIMITS = {"maxGridSize[0]": 2**31 - 1, "maxThreadsPerBlock": 1024, "warpSize": 32}  # of all cards, in cudaDeviceProp
# A kernel, or a variable that holds one: `scale`, `scale<float, 4>`, `kernels[i]`, `tests[i].kernel`.
LAUNCH = re.compile(r"\b(\w+(?:\s*<[^;{}]*?>)?)(?:(?:\[[^]]*]|\.|->)\w*)*\)?\s*<< ?<(.*?)>> ?>(?=\s*\()", re.S)
NAMED = re.compile(r"\b([A-Za-z_]\w*)\s*(<(?:[^;<>]|<[^;<>]*>)*>)?")  # with the arguments of a template


class Launch(NamedTuple):
    """A launch of the host code; None stands for what is not known, and `unknown` says why."""

    kernel: str  # of a template with its arguments
    line: int
    grid: tuple | None
    block: tuple | None
    shared: int | None
    arguments: list  # as `argument` takes them: "2.5", "bytes[4000]"
    unknown: str


def launches_of(source: str, place=lambda line: ("", line)) -> dict[str, list[Launch]]:
    """Return the launches of the host code, by kernel; `place` returns the file and line of a line of the source."""
    host, found = _Host(without_comments(source)), {}
    for match in LAUNCH.finditer(host.code):
        tried = {}
        for given in host.callers(match.start()):
            for kernel in dict.fromkeys(host.kernels_in(match[1], match.start(), given)) or [match[1]]:
                one = host.launch(match, given, kernel)
                tried.setdefault(kernel, []).append(one._replace(line=place(one.line)[1]))
        for kernel, launches in tried.items():
            known = min(launches, key=lambda one: one.unknown != "")
            found.setdefault(kernel.partition("<")[0], []).append(known)
    return found


class _Host:
    """The host code of a source; `given` holds what a call passes for parameters: text, place, and its caller's own."""

    def __init__(self, code):
        self.macros = macros_of(code)
        launching = {name: macro for name, macro in self.macros.items() if re.search("<< ?<", macro.body)}
        code = expand(without_directives(code), launching)
        for match in re.finditer(r"\bfor\s*\(", code):  # without what is done after a turn: the first one counts
            end = closing(code, match.end() - 1) - 1
            if at := code.rfind(";", match.end(), end) + 1:
                code = code[:at] + spaces(code[at:end]) + code[end:]
        self.code = code
        self.scopes = [d for d in split(code) if d.kind in ("function", "type") and "{" in code[d.begin : d.end]]
        self.kernels = names_of(d for d in self.scopes if d.is_kernel)
        for d in self.scopes:
            d.name, d.parameters, d.types = min(d.names, default=""), [], []
            if d.kind == "function":
                d.parameters = parameters_of(d, d.name)
                of_template = re.match(r"\s*template\s*<([^<>]*)>", d.head)
                d.types = re.findall(r"(\w+)\s*(?:=[^,]*)?(?:,|$)", of_template[1]) if of_template else []
                body = re.search(r"\)\s*\{\s*return\b([^;]*);\s*\}$", code[d.begin : d.end])
                if body and d.parameters:
                    inline = re.sub(rf"\b({'|'.join(d.parameters)})\b", r"(\1)", f"({body[1]})")
                    self.macros.setdefault(d.name, Macro(d.parameters, inline))
        typedefs = re.findall(r"\btypedef\s+([\w ]+?)\s+(\w+)\s*;", code)
        self.sizes = SIZES | {new: SIZES[old] for old, new in typedefs if old in SIZES}

    def scope(self, at):
        return next((d for d in self.scopes if d.begin <= at < d.end), None)

    def callers(self, at, depth=0):
        """Return what the function around a place may have been given: by each of its calls; nothing without any."""
        scope, found = self.scope(at), []
        if not scope or not scope.parameters or depth == 5:
            return [{}]
        *most, last = scope.parameters
        for call in re.finditer(rf"\b{scope.name}\s*(?:<([^;(){{}}]*)>)?(?=\s*\()", self.code):
            texts, _ = bracketed(self.code, call.end())
            if re.search(rf"\.\.\.\s*{last}\b", scope.head):
                texts = [*texts[: len(most)], ", ".join(texts[len(most) :])]
            if len(texts) == len(scope.parameters) and self.scope(call.start()) not in (scope, None):
                texts += split_commas(call[1] or "")
                for given in self.callers(call.start(), depth + 1):
                    each = [(text, call.start(), given) for text in texts]
                    found.append(dict(zip([*scope.parameters, *scope.types], each, strict=False)))
        return found[:20] or [{}]

    def kernels_in(self, text, at, given, depth=0):
        """Yield the kernels that an expression may stand for: in a variable what it may be set to in its scope."""
        for name, types in NAMED.findall(text):
            if types or name in self.kernels:
                spelled = [self._spelled(one.strip(), at, given) for one in split_commas(types[1:-1])]
                yield name + f"<{', '.join(spelled)}>" * bool(types)
            elif depth < 3:
                set_to = [(one, place, given) for one, place in self._set(name, self.scope(at))]
                for one in [given[name], *set_to] if name in given else set_to:
                    yield from self.kernels_in(*one, depth + 1)

    @functools.cache  # noqa: B019
    def _set(self, name, scope):
        """Return all that a variable is set to: by `=`, in a loop over a container, by what it is made of or given."""
        setting = rf"\b{name}\b(?:[^;={{}}]*(?:=(?!=)|_back\()|[\s\]]*:(?!:)|(?:\[\w*\])*\s*\{{)"
        places = [m.end() - (m[0][-1] in "({") for m in re.finditer(setting, self.code)]
        return [(self._until(at, ";)}"), at) for at in places if self.scope(at) in (scope, None)]

    def launch(self, match, given, kernel) -> Launch:
        """Read the launch of a match of LAUNCH."""
        missing = []

        def known(text, kind, at, given):
            try:
                return self.value(text, at, given, kind=kind)
            except LookupError as error:
                missing.append(f"the value of {error.args[0]!r} is not known")

        grid, block, *rest = [*split_commas(match[2]), "", ""]
        here = match.start(), given
        grid, block = known(grid, _triple, *here), known(block, _triple, *here)
        shared = known(rest[0] or "0", int, *here)
        texts, _ = bracketed(self.code, match.end())
        arguments = []
        for text in texts:
            pack = re.search(r"(\w+)\W*\.\.\.", text)
            packed, *whose = given[pack[1]] if pack and pack[1] in given else (text, *here)
            for one in split_commas(packed):
                arguments.append(known(one, lambda v: getattr(v, "text", None) or repr(v + 0), *whose))
        if (threads := math.prod((*(grid or ()), *(block or ())))) > THREADS:
            missing.insert(0, f"{threads:,} threads, at most {THREADS:,} are run")
            grid = None
        held = [a for a in arguments if a and a.startswith("bytes")]
        if (n := sum(int(a[6:-1]) for a in held)) > ELEMENTS:
            missing.insert(0, f"{n:,} bytes of arrays, at most {ELEMENTS:,} are made")
            grid, arguments = None, [a and (None if a in held or a.isdigit() else a) for a in arguments]
        line, _ = position(self.code, match.start())
        return Launch(kernel, line, grid, block, shared, arguments, "".join(missing[:1]))

    def _spelled(self, text, at, given) -> str:
        """Return an argument of a template: a number, or the type that the caller's template has for this word."""
        try:
            return repr(self.value(text, at, given) + 0)
        except (LookupError, TypeError):
            return self._spelled(*given[text]) if text in given else text

    def value(self, text, at, given, kind=lambda value: value):
        """Return the value of an expression at a place: a number, the sides of a dim3, or "bytes[n]"."""
        plain = expand(text, self.macros)
        plain = re.sub(r"\bsizeof\s*\(\s*([^()]*?)\s*\)", lambda m: self._size(m[1], m[0], at), plain)
        try:
            return kind(evaluate(plain, lambda name: self._variable(name, at, given)))
        except (SyntaxError, ArithmeticError, TypeError, ValueError, MemoryError, RecursionError) as error:
            raise LookupError(" ".join(text.split())) from error

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

    def _variable(self, name, at, given):
        """Return the value of a variable at a place."""
        scope = self.scope(at)
        names = [f"{name}.{side}" for side in "xyz" * (scope is not None and "." not in name)]
        if any(sides := [self._assigned(side, at, scope.begin) for side in names]):
            return tuple(self.value(*side, given) if side else 1 for side in sides)
        if scope and (found := self._assigned(name, at, scope.begin)):
            return self.value(*found, given)
        if name in given:
            return self.value(*given[name])
        if found := self._assigned(name, None, 0):
            return self.value(*found, {})
        base, _, member = name.rpartition(".")
        if member in LIMITS:
            return LIMITS[member]
        if base and member in "xyz":
            return (*_triple(self._variable(base, at, given)), 1, 1)["xyz".find(member[:1])]
        raise LookupError(name)

    @functools.cache  # noqa: B019  (it lives as long as the source is read)
    def _assigned(self, name, at, begin):
        """Return the text that a variable was given last, and the place; None if nowhere in this scope."""
        n = re.escape(name)
        allocation = r"\bcuda(?:Malloc(?:Managed|Host|Async)?|HostAlloc)\s*(?:<[^<>]*>)?\s*\("
        allocation += rf"[^;&]*&\s*\(?\s*{n}\s*\)?\s*,"
        change = rf"(?<![\w.>]){n}\s*(?:(?P<how>=(?!=)|[({{])|[-+*/%&|^]=|<<=|>>=|\+\+|--)|[(,]\s*&\s*{n}\s*[,)]"
        setting = re.compile(f"(?P<allocation>{allocation})|{change}")
        for match in reversed([*setting.finditer(self.code, begin, at or len(self.code))]):
            start, how = match.start(), match["how"]
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
                raise LookupError(name)
            return text, start
        return None

    def _until(self, at, ends=",;)}"):
        """Return the text to the end of an argument or a statement."""
        end = at
        while (match := re.compile(rf"[{ends}(\[{{]").search(self.code, end)) and match[0] not in ends:
            end = closing(self.code, match.start())
        return self.code[at : match.start() if match else None]


def _triple(value) -> tuple:
    return tuple(int(side) for side in (value if isinstance(value, tuple) else (value,)))
