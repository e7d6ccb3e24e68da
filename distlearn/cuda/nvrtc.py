"""Compiles CUDA C for real cards on a machine that has none, with NVIDIA's own compiler library.

NVRTC needs neither a GPU nor a driver: `pip install "distlearn[nvrtc]"` brings it as a wheel (Linux and Windows). It
catches what a host compiler accepts: headers of the C++ library, types that only the host's headers define.

It is called through `cupy.cuda.nvrtc`, which works without a GPU, including the log of a failed compile.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from distlearn.cuda.emulator.device_code import card_options, without_host_code
from distlearn.cuda.emulator.source import CompilerNotFound, Flat, lines_of, unbalanced

ARCHITECTURES = (75, 80, 86, 90, 100)  # Turing, Ampere (A100), Ampere (RTX 30), Hopper, Blackwell
HELP = (
    "NVRTC, NVIDIA's compiler library, was not found. It needs no GPU:\n"
    '  pip install "distlearn[nvrtc]"      (Linux and Windows; there is none for macOS)'
)
MESSAGE = re.compile(r"^kernel\.cu\((\d+)\): (?:catastrophic )?(error|warning)(?: #\d+(?:-D)?)?: (.*)$")
HEADER_HINT = 'The headers of CUDA come with: pip install "distlearn[nvrtc]"'


class Problem(NamedTuple):
    """One message of NVRTC; `column` is 0 where it gave none."""

    arch: int
    severity: str
    line: int
    column: int
    message: str
    source: str


@dataclass
class CompileCheck:
    """NVRTC's messages about a source."""

    version: tuple[int, int]  # of NVRTC
    archs: tuple[int, ...]
    sizes: dict[int, int]  # bytes of machine code by architecture (90 is sm_90), for those that compiled
    problems: list[Problem]  # each once, with the first architecture that showed it

    @property
    def ok(self) -> bool:
        return set(self.sizes) == set(self.archs)

    def __str__(self):
        good = ", ".join(f"sm_{a}" for a in self.archs if a in self.sizes)
        bad = ", ".join(f"sm_{a}" for a in self.archs if a not in self.sizes)
        out = [f"NVRTC {self.version[0]}.{self.version[1]}: " + "; ".join(
            [f"compiles for {good}"] * bool(good) + [f"does not compile for {bad}"] * bool(bad))]  # fmt: skip
        for p in self.problems:
            place = (f"line {p.line}" if p.line else "assembler") + (f", column {p.column}" if p.column else "")
            out.append(f"  {p.severity}, {place}: {p.message}")
            if p.source.strip():
                out += [f"    {p.source}"] + (["    " + " " * (p.column - 1) + "^"] if p.column else [])
        return "\n".join(out)

    __repr__ = __str__


def _installed() -> list[Path]:
    """Return NVIDIA's folders in site-packages, the newest CUDA first."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    return sorted((d for root in roots for d in root.iterdir() if d.is_dir()), key=lambda d: d.name, reverse=True)


def _headers() -> list[Path]:
    found = [d / "include" for d in _installed() if (d / "include" / "cuda_fp16.h").exists()][:1]
    return [*found, *(d / "cccl" for d in found if (d / "cccl").exists())]  # cuda/std and thrust


@functools.cache
def _library():
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception:  # the exception for a missing library differs between releases of CuPy
        return None
    return nvrtc


def has_nvrtc() -> bool:
    """Say whether NVRTC can be loaded."""
    return _library() is not None


def compile_check(
    source: str, archs: Sequence = ARCHITECTURES, *, names: Sequence[str] = (), options=()
) -> CompileCheck:
    """Compile CUDA C for real cards and return the compiler's messages.

    Parameters
    ----------
    source : str
        CUDA C. The host code of a whole .cu file is ignored.
    archs : sequence of int or str
        Compute capabilities: 90 or "sm_90".
    names : sequence of str
        Templates to instantiate, e.g. "sgd<float, 4>" (they are not compiled otherwise).
    options : sequence of str
        Further options, e.g. "-DTILE=16".

    Examples
    --------
    >>> print(compile_check('__global__ void f(float* x) { uint8_t y = 3; }', [80]))  # doctest: +SKIP
    NVRTC 13.5: does not compile for sm_80
      error, line 1, column 31: identifier "uint8_t" is undefined
    """
    if _library() is None:
        raise CompilerNotFound(HELP)
    known = _library().getSupportedArchs()
    if isinstance(options, str) or isinstance(names, str):
        raise TypeError(f"options and names are tuples of strings, got {options!r} and {names!r}")
    wanted = tuple(_number(a) for a in ((archs,) if isinstance(archs, (int, str)) else archs))
    if strangers := [a for a in wanted if a not in known]:
        have = ", ".join(f"sm_{a}" for a in known)
        raise ValueError(f"this NVRTC does not compile for {', '.join(f'sm_{a}' for a in strangers)}, only for {have}")
    result = CompileCheck(tuple(_library().getVersion()), wanted, {}, [])
    code, options = without_host_code(source, options, names), (*options, *card_options(source))
    for arch in wanted:
        size, log = _compile(code.text, arch, names, options)
        if size is not None:
            result.sizes[arch] = size
        seen = {p[1:] for p in result.problems}
        result.problems += [p for p in _problems(log, arch, code) if p[1:] not in seen]
        if size is None and not result.problems and (bracket := unbalanced(code.text)):
            line, column, message = bracket  # NVRTC notices at the end of the source
            result.problems.append(Problem(arch, "error", line, column, message, lines_of(code.text)[line - 1]))
        if size is None and not any(p.severity == "error" for p in result.problems):
            message = re.sub(r"^ptxas error\s*: ", "", log.strip())
            result.problems.append(Problem(arch, "error", 0, 0, message, ""))
    return result


def _number(arch) -> int:
    match = re.fullmatch(r"(?:sm_|compute_)?(\d+)", str(arch))
    if not match:
        raise ValueError(f"architecture {arch!r}: expected a number such as 90, or 'sm_90'")
    return int(match[1])


def _compile(source, arch, names, options):
    """Return the size of the machine code (None: it does not compile) and what the compiler wrote."""
    nvrtc = _library()
    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    try:
        for name in names:
            nvrtc.addNameExpression(program, name)
        flags = [f"--gpu-architecture=sm_{arch}", "--std=c++17", *options, *(f"-I{path}" for path in _headers())]
        try:
            nvrtc.compileProgram(program, tuple(flags))
        except nvrtc.NVRTCError as error:
            return None, nvrtc.getProgramLog(program) or str(error)
        return len(nvrtc.getCUBIN(program)), nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)


def _problems(log: str, arch: int, code: Flat) -> list[Problem]:
    lines, text, found = lines_of(log), lines_of(code.text), []
    for i, line in enumerate(lines):
        if not (match := MESSAGE.match(line)):
            continue
        number, message = int(match[1]), match[3]
        shown = text[number - 1] if 0 < number <= len(text) else ""
        # The source line and a caret follow, indented alike: the text above the caret gives the column.
        column = 0
        if i + 2 < len(lines) and lines[i + 2].strip() == "^" and shown.strip():
            at = lines[i + 1].find(shown.strip())
            before = shown.strip().encode()[: lines[i + 2].index("^") - at].decode(errors="ignore")  # it counts bytes
            column = len(shown) - len(shown.lstrip()) + len(before) + 1 if at >= 0 else 0
        if re.search("(cannot|could not) open source file", message) and not _headers():
            message += ". " + HEADER_HINT
        file, place = code.place(number)
        message += f" (in {file})" if file else ""
        found.append(Problem(arch, match[2], place, column, message, shown))
    return found
