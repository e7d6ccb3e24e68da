"""Compiles CUDA C for real cards on a machine that has none, with NVIDIA's own compiler library.

NVRTC needs neither a GPU nor a driver: `pip install "distlearn[nvrtc]"` brings it as a wheel (Linux and Windows). It
catches what a host compiler accepts: headers of the C++ library, types that only the host's headers define.

It is called through `cupy.cuda.nvrtc`, which works without a GPU, with the options and headers of `cupy.RawModule`:
what compiles here compiles on a card.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from distlearn.cuda.emulator.device_code import for_card, host_hints
from distlearn.cuda.emulator.source import CompileError, CompilerNotFound, Flat, is_cuda_header, lines_of, unbalanced

ARCHITECTURES = (75, 80, 86, 90, 100)  # Turing, Ampere (A100), Ampere (RTX 30), Hopper, Blackwell
HELP = (
    "NVRTC, NVIDIA's compiler library, was not found. It needs no GPU:\n"
    '  pip install "distlearn[nvrtc]"      (Linux and Windows; there is none for macOS)'
)
MESSAGE = re.compile(r"^kernel\.cu\((\d+)\): (?:catastrophic )?(error|warning)(?: #\d+(?:-D)?)?: (.*)$")
HEADER_HINT = 'The headers of CUDA come with: pip install "distlearn[nvrtc]"'


class Problem(NamedTuple):
    """One message of NVRTC; `column` is 0 where it gave none."""

    severity: str
    line: int
    column: int
    message: str
    source: str

    def __str__(self):
        place = (f"line {self.line}" if self.line else "assembler") + (f", column {self.column}" if self.column else "")
        shown = f"\n    {self.source}" if self.source.strip() else ""
        caret = "\n    " + " " * (self.column - 1) + "^" if shown and self.column else ""
        return f"  {self.severity}, {place}: {self.message}{shown}{caret}"


@dataclass
class CompileCheck:
    """NVRTC's messages about a source."""

    version: tuple[int, int]  # of NVRTC
    archs: tuple[int, ...]
    sizes: dict[int, int]  # bytes of machine code by architecture (90 is sm_90), for those that compiled
    problems: list[Problem]  # each once

    @property
    def ok(self) -> bool:
        return set(self.sizes) == set(self.archs)

    def __str__(self):
        good = ", ".join(f"sm_{a}" for a in self.archs if a in self.sizes)
        bad = ", ".join(f"sm_{a}" for a in self.archs if a not in self.sizes)
        out = [f"NVRTC {self.version[0]}.{self.version[1]}: " + "; ".join(
            [f"compiles for {good}"] * bool(good) + [f"does not compile for {bad}"] * bool(bad))]  # fmt: skip
        return "\n".join([*out, *map(str, self.problems)])

    __repr__ = __str__


def card_error(name: str, log: str, code) -> CompileError:
    """Return what NVRTC says of a kernel that is launched, with the lines of its source."""
    problems = _problems(log, code.flat) or [Problem("error", 0, 0, log.strip(), "")]
    said = " ".join(p.message for p in problems)
    hints = host_hints(code.of_host, said)
    text = "\n".join([f"kernel {name!r} does not compile for the card (NVRTC):", *map(str, problems), *hints])
    return CompileError(text, [(p.line, p.column, p.message) for p in problems])


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
    source: str, archs: Sequence[int] = ARCHITECTURES, *, names: Sequence[str] = (), options: Sequence[str] = ()
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
    >>> print(compile_check('__global__ void f(float* x) { FILE* y = 0; }', [80]))  # doctest: +SKIP
    NVRTC 13.5: does not compile for sm_80
      error, line 1, column 31: identifier "FILE" is undefined
    """
    if _library() is None:
        raise CompilerNotFound(HELP)
    known = _library().getSupportedArchs()
    if isinstance(options, str) or isinstance(names, str):
        raise TypeError(f"options and names are tuples of strings, got {options!r} and {names!r}")
    wanted = tuple(_number(a) for a in ((archs,) if isinstance(archs, (int, str)) else archs))
    if strangers := {*wanted} - {*known}:
        raise ValueError(f"NVRTC does not compile for {strangers}, only for {known}")
    result = CompileCheck(tuple(_library().getVersion()), wanted, {}, [])
    card = for_card(source, options, names)
    code = card.flat
    for arch in wanted:
        image, _, log = compile_as_cupy(card.text, card.options, names, arch)
        if image is not None:
            result.sizes[arch] = len(image)
        result.problems += [p for p in _problems(log, code) if p not in result.problems]
        if image is None and not result.problems and (bracket := unbalanced(code.text)):
            line, column, message = bracket  # NVRTC notices at the end of the source
            result.problems.append(Problem("error", line, column, message, code.line(line)))
        if image is None and not any(p.severity == "error" for p in result.problems):
            message = re.sub(r"^ptxas error\s*: ", "", log.strip())
            result.problems.append(Problem("error", 0, 0, message, ""))
    return result


def _number(arch) -> int:
    match = re.fullmatch(r"(?:sm_|compute_)?(\d+)", str(arch))
    if not match:
        raise ValueError(f"architecture {arch!r}: expected a number such as 90, or 'sm_90'")
    return int(match[1])


def compile_as_cupy(code: str, options: tuple, names: Sequence[str], arch: int):
    """Compile as `cupy.RawModule` does, all but the load onto a card.

    Returns
    -------
    image : bytes or None
        The machine code, None if NVRTC refuses the text.
    symbols : dict
        The linker's name of each of `names`.
    log : str
    """
    from cupy._core.core import assemble_cupy_compiler_options  # adds the folders of headers

    nvrtc = _library()
    options = (*assemble_cupy_compiler_options(options), "-ftz=true", f"-arch=sm_{arch}")
    program = nvrtc.createProgram(code, "kernel.cu", (), ())
    try:
        for name in names:
            nvrtc.addNameExpression(program, name)
        try:
            nvrtc.compileProgram(program, (*options, "--device-as-default-execution-space"))
        except nvrtc.NVRTCError as error:
            return None, {}, nvrtc.getProgramLog(program) or str(error)
        symbols = {name: nvrtc.getLoweredName(program, name) for name in names}
        return nvrtc.getCUBIN(program), symbols, nvrtc.getProgramLog(program)
    finally:
        nvrtc.destroyProgram(program)


def _problems(log: str, code: Flat) -> list[Problem]:
    lines, found = lines_of(log), []
    for i, line in enumerate(lines):
        if not (match := MESSAGE.match(line)):
            continue
        number, message = int(match[1]), match[3]
        shown = code.line(number)
        # The source line and a caret follow, indented alike: the text above the caret gives the column.
        column = 0
        if i + 2 < len(lines) and lines[i + 2].strip() == "^" and shown.strip():
            at = lines[i + 1].find(shown.strip())
            before = shown.strip().encode()[: lines[i + 2].index("^") - at].decode(errors="ignore")  # it counts bytes
            column = len(shown) - len(shown.lstrip()) + len(before) + 1 if at >= 0 else 0
        if (header := re.search('(?:cannot|could not) open source file "(.*?)"', message)) and is_cuda_header(
            header[1]
        ):
            message += ". " + HEADER_HINT
        file, place = code.place(number)
        message += f" (in {file})" if file else ""
        found.append(Problem(match[2], place, column, message, shown))
    return found
