"""Builds a kernel and caches the result.

The cache is keyed by everything that goes into a build: the source, the emulator's own files (they say the flags, too)
and the compiler. It is in the user's cache directory (DISTLEARN_CACHE names another one) and may be deleted any time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import platformdirs
from filelock import FileLock

from . import launch, translate
from . import source as src
from .assembly import KERNEL_FILE, SourceSite, label_calls
from .compilers import COMMON, LINK, Compiler, find_compiler
from .device_code import WORD, DeviceCode, base_name, device_code, host_hints, names_of, split
from .source import CompileError, KernelError


@functools.cache
def cache_directory() -> Path:
    """Return the directory of built kernels; create it if necessary."""
    root = os.environ.get("DISTLEARN_CACHE") or platformdirs.user_cache_dir("distlearn", appauthor=False)
    path = Path(root) / "cuda"
    try:
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    return path if writable else _temporary_cache()


def _temporary_cache() -> Path:  # for a home that cannot be written
    path = Path(tempfile.gettempdir()) / f"distlearn-cuda-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():  # its files are executed
        return Path(tempfile.mkdtemp(prefix="distlearn-cuda-"))
    return path


@contextlib.contextmanager
def scratch_directory():
    """Provide a directory to build in, on the disk of the cache; remove those that killed processes have left."""
    for old in cache_directory().glob("building-*"):
        with contextlib.suppress(OSError):  # another process may be removing it, too
            if time.time() - old.stat().st_mtime > 3600:
                shutil.rmtree(old, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=cache_directory(), prefix="building-") as scratch:
        yield Path(scratch)


HINTS = [  # a pattern of the message, another of the source's line
    (r"No such file|file not found", "", "a kernel has only the headers of CUDA and of the C library"),
    (r"variable length array|variable-sized|ISO C\+\+ forbids", r"^(?!.*__shared__)",
     "the size of a local array must be a constant"),
    (r"variable length array|storage size", "__shared__", "shared memory whose size only the launch knows is "
     "`extern __shared__ float a[];`, and its bytes are the launch's shared_mem="),
    (r"\bstd\b", "", "the C++ standard library is not available in a kernel"),
    (r"frame|stack", "", "a thread's local arrays must stay below 96 KiB in the emulator"),
]  # fmt: skip


# gcc's "maybe" warning means: read uninitialised on some paths; clang has no warning that is as careful.
UNINITIALISED = ["-Wuninitialized", "-Wno-unknown-warning-option", "-Wmaybe-uninitialized"]


class Build(NamedTuple):
    """The result of a build: a program."""

    path: Path
    signature: list[str]  # the parameters' types
    sites: list[SourceSite]  # the places that the hooks report from
    variables: dict[str, tuple[str, int]]  # type and bytes of each `__constant__` and `__device__` variable
    warnings: list[tuple[str, int, int, str]]  # kind, line, column, text


RUNTIME = Path(__file__).with_name("runtime")  # the emulator's C++ files


@functools.cache
def _emulator_hash() -> str:
    files = [*sorted(RUNTIME.glob("*.[hc]*")), *sorted(Path(__file__).parent.glob("*.py"))]
    return _hash(*(f.read_text(encoding="utf-8") for f in files), platform.platform(), _processor())


def _processor() -> str:
    """Return an id of the processor: zig compiles for the one it runs on, and machines may share a home directory."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({text for text in lines if text.startswith(("flags", "Features", "model name"))}))


def _hash(*texts) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]


def build(code: DeviceCode, name: str, compiler: Compiler, *, options=()) -> Build:
    """Build one kernel of a source, or find it in the cache; raise CompileError with the lines of the source."""
    macros = src.definitions(options)  # nvcc's other flags have no meaning here, and headers are in the text already
    key = _hash(macros, code.text, name, _emulator_hash(), repr(compiler))
    path = cache_directory() / f"{re.sub(r'[^0-9A-Za-z]+', '_', name)[:40]}-{key}"
    about = path.with_suffix(".json")
    if not (path.exists() and about.exists()):
        if code.text != PROBE:
            prepare(compiler)
        with scratch_directory() as scratch:
            made, record = _compile(code, name, compiler, macros, scratch)
            text = scratch / "about.json"
            text.write_text(json.dumps(record))  # ASCII
            os.replace(made, path)
            os.replace(text, about)
    record = json.loads(about.read_text(encoding="utf-8"))
    record["sites"] = [SourceSite(*site) for site in record["sites"]]
    return Build(path, **record)


@functools.cache
def prepare(compiler: Compiler) -> Path:
    """Build what kernels share, and check the compiler's counts, once for each version; return the folder of both."""
    folder = _shared(compiler)
    passed = folder / "examined"
    if not passed.exists():
        examine(compiler, build(device_code(PROBE, "probe"), "probe", compiler))
        passed.touch()
    return folder


def _shared(compiler: Compiler) -> Path:
    path = cache_directory() / f"parts-{_hash(_emulator_hash(), repr(compiler))}"
    path.mkdir(exist_ok=True)
    return path


def preprocessor(options, compiler):
    """Return a function that runs the preprocessor of a compiler over a text, with CUDA's macros and the -D given."""

    def run(text):
        chosen = find_compiler(compiler)
        flags = ["-x", "c++", *COMMON, f"-I{RUNTIME}", "-imacros", str(RUNTIME / "cuda_emu.h")]
        done = subprocess.run(
            [*chosen.command, *flags, "-E", "-P", "-"],
            input=f"{src.definitions(options)}\n{text}",
            capture_output=True, text=True, encoding="utf-8", errors="replace", check=False,
        )  # fmt: skip
        return done.stdout

    return run


@functools.cache
def _words_of_the_runtime() -> frozenset[str]:
    texts = [f.read_text(encoding="utf-8") for f in RUNTIME.glob("*.h")]
    return frozenset(WORD.findall(" ".join(texts)))


def unit(text: str, exported: str, overloaded=(), macros="") -> str:
    """Return the file that is compiled: a translated source, and the export of a kernel."""
    # The source has its own namespace, where its types and variables hide those of the runtime. Its functions must not
    # hide them but overload them, as on a card; `overloaded` are their names. Each is declared once more beside the
    # runtime's, for C++ has no way to ask whether there is one.
    beside = "".join(f"void {name}(EmuUnused&); " for name in overloaded)
    using = "".join(f"using emu_kernel::{name}; " for name in overloaded)
    return (
        f'#include "cuda_emu.h"\nnamespace emu_kernel {{\nstruct EmuUnused; {beside}\ninline namespace emu_source {{\n'
        f'{using}\n{macros}\n#line 1 "{KERNEL_FILE}"\n{text}\n#line 1 "export"\n{exported}\n}}\n}}\n'
    )


def _compile(code, name, compiler, macros, scratch):
    """Compile; if that fails only because of code added to the source, compile without it."""
    plain, known = src.without_comments(code.text), _words_of_the_runtime()
    declarations = split(plain)
    functions = names_of(d for d in declarations if d.kind == "function" and not d.is_kernel)
    renamed = [d for d in declarations if d.is_kernel]
    for kernel in names_of(renamed) - functions - known:
        if match := re.search(rf"(?:[;{{}}(,=]|\breturn\b|\belse\b)\s*\b{kernel}\s*(?:<[^<>;]*>\s*)?\(", plain):
            message = f"{kernel} is a kernel: device code cannot call it; write __device__ for a function"
            raise src.error_at(CompileError, code.flat, match.end() - 1, message)
    overloaded = sorted((functions - {"operator"}) & known)
    renamed = renamed if base_name(name) in known else []
    ways = [(True, overloaded, renamed)] * bool(overloaded or renamed) + [(True, (), ())]
    for way in ways:
        with contextlib.suppress(CompileError):
            return _compile_as(code, name, compiler, macros, scratch, *way)
    return _compile_as(code, name, compiler, macros, scratch, False, (), ())


def _compile_as(code, name, compiler, macros, scratch, arithmetic, overloaded, renamed):
    exported = name
    places = [(d.begin, d.end, base_name(name)) for d in renamed]
    body = translate.to_cpp(code.text, code.flat, arithmetic=arithmetic, renamed=places)
    if renamed:
        exported = re.sub(rf"\b{base_name(name)}(?=\s*(?:<|$))", translate.RENAMED + base_name(name), name, count=1)
    if not re.match(r"\(|.*\)$", exported):  # a cast, which chooses an overload, is an address
        exported = "&" + exported.strip().removeprefix("&").removeprefix("::")
    cpp = scratch / "unit.cpp"
    cpp.write_text(unit(body.text, f"EMU_EXPORT({exported})", overloaded, macros), encoding="utf-8")
    assembly = scratch / "unit.s"
    command = [*compiler.command, *compiler.flags(), *_headers(compiler), *UNINITIALISED]
    said = _run([*command, "-S", str(cpp), "-o", str(assembly)], scratch, body, name, compiler.name, code)
    text, sites = label_calls(assembly.read_text(encoding="utf-8"))
    sites = [site._replace(column=body.column(site.line, site.column)) for site in sites]
    assembly.write_text(text, encoding="utf-8")
    made = scratch / "kernel"
    checker = str(_checker(compiler))
    _run([*compiler.command, str(assembly), checker, "-o", str(made), *LINK], scratch)
    try:
        asked = _run([str(made), "signature"], scratch)
    except PermissionError:
        raise KernelError(
            f"programs cannot run in {cache_directory()}; set DISTLEARN_CACHE to another folder"
        ) from None
    signature, *variables = asked.stdout.splitlines()  # the parameters' types, then a line for each variable
    return made, {
        "signature": signature.split(),
        "sites": sites,
        "warnings": [
            *compiler_warnings(said.stderr, body),
            *translate.overlaid(code.text),
            *translate.never_set(code.text),
        ],
        "variables": {name: (code, int(nbytes)) for name, code, nbytes in map(str.split, variables)},
    }


def _checker(compiler: Compiler) -> Path:
    of_llvm = ["-fno-strict-float-cast-overflow"] * (compiler.kind != "gcc")
    return _compiled_once("checker.o", compiler, [*COMMON, "-O3", "-w", "-fPIE", "-c", *of_llvm], "checker.cpp")


def _headers(compiler: Compiler) -> list[str]:
    """Return where a kernel's build finds the headers: reading their text would be three quarters of its time."""
    text = f"-I{RUNTIME}"
    if compiler.kind != "gcc":
        return [text]
    flags = [*compiler.flags(), "-x", "c++-header"]
    return [f"-I{_compiled_once('cuda_emu.h.gch', compiler, flags, 'cuda_emu.h').parent}", text]


def _compiled_once(made: str, compiler: Compiler, flags, source: str) -> Path:  # the same file for all kernels
    path = _shared(compiler) / made
    if not path.exists():
        with FileLock(path.parent / "lock"), scratch_directory() as scratch:
            if not path.exists():
                file = str(RUNTIME / source)
                _run([*compiler.command, *flags, file, "-o", str(scratch / made)], scratch)
                os.replace(scratch / made, path)
    return path


def _run(command, scratch, *of_kernel):  # of_kernel: what `compile_error` wants beside the messages
    done = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", errors="replace", cwd=scratch, check=False
    )
    if done.returncode == 0:
        return done
    if not of_kernel:
        raise CompileError(f"building the emulator failed:\n  {' '.join(command)}\n{done.stderr}")
    raise compile_error(done.stderr, *of_kernel)


def compiler_warnings(messages: str, translated: translate.Translated) -> list[tuple[str, int, int, str]]:
    """Return kind, line, column and text: of locals read before they are written, of intrinsics without a mask."""
    said = r"(?P<local>.*) \[-W[\w-]*uninitialized[\w=-]*\]|.* is deprecated: (?P<removed>__\w+ has no mask.*) \[-W.*"
    found, lines = [], src.lines_of(translated.source)
    place = rf"^{re.escape(KERNEL_FILE)}:(\d+):(\d+): "
    for m in re.finditer(rf"{place}warning: (?:{said})$", messages, re.M):
        # gcc names the macro's line; clang the line that uses the macro, and that of the macro in a note
        notes = re.findall(rf"{place}note: expanded from", messages[m.end() :].partition("warning")[0], re.M)
        line, column = map(int, [m.groups(), *notes][-1][:2])
        column = translated.column(line, column)
        if m["removed"]:
            found.append(("removed-intrinsic", line, column, m["removed"]))
        elif "shfl" not in lines[line - 1]:  # one lane may have what is shuffled
            found.append(("uninitialised-local", line, column, m["local"]))
    return sorted(set(found))


def _of_const(message, before) -> str:
    """Name the variable where a compiler writes of "a read-only location"."""
    target = re.search(r"(\w+)\s*(?:\[(?:[^\[\]]|\[[^\]]*\])*\]\s*)*(?:\.\w+)?\s*[-+*/%&|^<>]*$", before)
    if target and re.search(r"read-only|const-qualified", message):
        return f"{target[1]} is const here: it cannot be written"
    return message


def compile_error(
    messages, translated: translate.Translated, name: str, compiler: str, code: DeviceCode
) -> CompileError:
    """Turn a compiler's messages into an error that shows the lines of the source."""
    place = rf"^{re.escape(KERNEL_FILE)}[:(](\d+)[:),]*(?:(\d+):)?"
    found = re.findall(rf"{place} *(?:fatal )?error:? *(.*)$", messages, re.M)
    rest = re.findall(r"error: (?:static.assert\w* failed(?: due to requirement '[^']*')?:? *)?(.*)", messages)
    if not found and (bracket := src.unbalanced(translated.source)):
        problems = [bracket]  # compilers report it at the end of the file only
    else:
        if not found and rest:  # in a header of the emulator, which the source's line asks for
            asked = re.findall(rf"{place} .*(?:required from|requested here)", messages, re.M)
            found = [(line, column, rest[0].strip('"')) for line, column in asked[:1]]
        problems = []
        for number, place, message in found:
            line, column = int(number), translated.column(int(number), int(place or 0))
            problems.append((line, column, _of_const(message, code.flat.line(line)[: max(0, column - 1)])))
    if not problems:  # such as from the line that exports the kernel
        rest = "\n  ".join(dict.fromkeys(rest) or [messages])
        return CompileError(f"kernel {name!r} does not compile ({compiler}):\n  {rest}")
    out = [f"kernel {name!r} does not compile ({compiler}): {len(problems)} error{'s' * (len(problems) > 1)}"]
    for line, column, message in problems[:10]:
        file, number = code.flat.place(line)
        out.append(f"  {src.place_in_words(number, file)}{f', column {column}' * bool(column)}: {message}")
        out.append("    " + code.flat.line(line).replace("\t", " "))
        if column:
            out.append("    " + " " * (column - 1) + "^")
    out += host_hints(code.of_host, " ".join(message for _, _, message in problems))
    if code.flat.missing:
        out.append(f"  hint: header not found: {', '.join(code.flat.missing)}; add their folder to the options: -I...")
    for said, written, hint in HINTS:
        if any(re.search(said, message) and re.search(written, code.flat.line(line)) for line, _, message in problems):
            out.append(f"  hint: {hint}")
    return CompileError("\n".join(out), [(code.flat.place(line)[1], *rest) for line, *rest in problems])


PROBE = """__device__ __noinline__ float twice(float v) { return v + v; }
extern "C" __global__ void probe(const float* x, const double* d, float* y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float sum = x[t] * 3.0f + 1.0f;
    for (int i = 0; i < n; i++)
        sum -= x[2 * t + i] / 5.0f;
    if (t % 2)
        sum = sqrtf(sum * sum) + twice(sum);
    else
        sum = fmaf(sum, sum, expf(sum));
    s[2 * t] = sum;
    __syncthreads();
    y[t] = s[2 * (31 - t)] + (float)(d[t] * 0.5);
}"""
TURNS = 7
FLOPS = 32 * (2 + 2 * TURNS + 1 + 1) + 16 * (3 + 1) + 16 * 3
# By line: the array, bytes of an access, requests of the warp, lanes, sectors of 32 bytes or wavefronts of 32 banks.
ACCESSES = {
    (5, "x"): (4, 1, 32, 4),
    (7, "x"): (4, TURNS, 32 * TURNS, 16 + 9 * (TURNS - 2)),
    (12, "s"): (4, 1, 32, 2),
    (14, "s"): (4, 1, 32, 2),
    (14, "d"): (8, 1, 32, 8),
    (14, "y"): (4, 1, 32, 4),
}


def counts(made) -> dict:
    """Run the probe; return findings, operations, accesses, and the lines of which half of the lanes ran."""
    x, d, y = np.ones(62 + TURNS, np.float32), np.ones(32), np.zeros(32, np.float32)
    given = {"x": x, "d": d, "y": y, "n": np.int32(TURNS).tobytes(), "pointers": np.int64(0).tobytes()}
    bound = launch.Bound(list(given.values()), [*made.signature, "s8"], list(given))
    report, _, _ = launch.run(
        made.path, (1, 1, 1), (32, 1, 1), 0, bound, {}, statistics=True, races=True, time_limit=20.0
    )
    if report is None:
        return {}
    accesses = {
        (made.sites[a["site"]].line, report["regions"][a["region"]]["name"]): (
            a["size"], a["requests"], a["lanes"], a["cost"])
        for a in report["traffic"]
    }  # fmt: skip
    blocks = [(made.sites[site], *ran) for site, *ran in report["blocks"]]
    return {
        "findings": report["findings"],
        "flops": sum(active * site.flops for site, _, active, _ in blocks),
        "accesses": accesses,
        "arms of the branch": {site.line for site, issued, active, _ in blocks if (issued, active) == (1, 16)}
        & {9, 11},
    }


WANTED = {"findings": [], "flops": FLOPS, "accesses": ACCESSES, "arms of the branch": {9, 11}}


def examine(compiler: Compiler, made) -> None:
    """Compare the probe's counts with those made by hand."""
    got = counts(made)
    for what, wanted in WANTED.items():
        if got.get(what) != wanted:
            raise KernelError(
                f"{compiler.name} writes assembly that the emulator does not count correctly: {what} of the probe are "
                f"{got.get(what)}, expected {wanted}. Set DISTLEARN_CXX to another compiler"
            )
