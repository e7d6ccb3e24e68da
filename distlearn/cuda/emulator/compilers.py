"""The C++ compilers of this machine, and the flags that each needs.

Any of g++ (11 or later), clang++ (14 or later, Apple's too) and zig (`pip install ziglang`, which brings its own libc)
works. The environment variable DISTLEARN_CXX, a command, takes precedence.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import NamedTuple

from .source import CompilerNotFound

HELP = (
    "no C++ compiler was found to build CUDA kernels for this machine's processor. Any one will do:\n"
    "  everywhere        pip install ziglang      (a compiler as a Python package, no administrator needed)\n"
    "  Debian, Ubuntu    sudo apt install g++\n"
    "  macOS             xcode-select --install\n"
    "or name one in the environment variable DISTLEARN_CXX."
)

# "vla": a card has no local arrays whose size is only known when the kernel runs.
COMMON = ["-std=gnu++17", "-nostdinc++", "-fno-exceptions", "-fno-rtti", "-ffp-contract=off", "-fno-math-errno",
          "-fwrapv", "-fno-delete-null-pointer-checks", "-Werror=vla"]  # fmt: skip
# -O1 keeps one access of the source one access of the program; tail calls would lose return addresses; a loop
# without end must not be optimised away, which C++ would allow. A memcpy is
# seen if it stays a call.
CHECKED = ["-O1", "-g1", "-fno-optimize-sibling-calls", "-fno-finite-loops", "-fno-asynchronous-unwind-tables",
           *(f"-fno-builtin-{name}" for name in ("memcpy", "memmove", "memset"))]  # fmt: skip
# Compile only: the hooks that these ask for are the checker's own, no sanitizer library is linked. Conversions and
# shifts that translate.py does not see are reported by a hook, too.
HOOKS = ["-fsanitize=thread", "-fsanitize=integer-divide-by-zero,float-cast-overflow,shift-exponent", "-fPIE"]
FRAME = "-Wframe-larger-than=98304"  # bytes of local variables that a function may have
# The last two: code inlined from the emulator's headers keeps the line it was called from.
GCC = [FRAME, "-Werror=frame-larger-than=98304", "-fsanitize=bounds", "-fsanitize-coverage=trace-pc",
       "--param", "tsan-distinguish-volatile=1", "-gstatement-frontiers", "-ginline-points"]  # fmt: skip
# Conversions to integers that do not fit are as on a card (see translate.py). "bounds" would have traps that name no
# array. clang leaves out the read of `x += 1` and the count of blocks that others imply, and would merge neighbouring
# operations into vector ones.
CLANG = [FRAME, "-Werror=frame-larger-than", "-fno-strict-float-cast-overflow",
         "-fsanitize=array-bounds", "-fsanitize-coverage=trace-pc,no-prune", "-fno-vectorize", "-fno-slp-vectorize",
         "-mllvm", "-tsan-instrument-read-before-write", "-mllvm", "-tsan-distinguish-volatile",
         "-mllvm", "-disable-vector-combine", "-mllvm", "-sink-common-insts=false"]  # fmt: skip
LINK = [] if sys.platform == "darwin" else ["-pie", "-lm"]


class Compiler(NamedTuple):
    """A C++ compiler: `kind` is "gcc", "clang" or "zig", `command` how it is called."""

    name: str
    kind: str
    command: tuple[str, ...]
    version: str

    def flags(self) -> list[str]:
        flags = [*COMMON, *CHECKED, *HOOKS, *(GCC if self.kind == "gcc" else CLANG)]
        if self.kind != "gcc" or int(self.version.partition(".")[0]) >= 12:
            # A local array that is never set holds anything on a card; here it would be zeros, of a fresh stack. And
            # `int base; if (leader) base = atomicAdd(...); base = __shfl_sync(...);` is right on a card, where a lane
            # may pass on what it has not set. clang concludes from it that every lane is the leader.
            flags.append("-ftrivial-auto-var-init=pattern")
        return flags


def _identify(command) -> Compiler | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    first = done.stdout.splitlines()[0] if done.stdout else ""
    number = re.search(r"\d+(\.\d+)+", first)
    version = number[0] if number else "?"
    if "ziglang" in command or os.path.basename(command[0]).startswith("zig"):
        kind = "zig"
    else:
        kind = "clang" if "clang" in done.stdout else "gcc"
    return Compiler(f"{kind} {version}", kind, tuple(command), version)


def _candidates():
    if chosen := os.environ.get("DISTLEARN_CXX"):
        yield tuple(shlex.split(chosen))
    for name in ("g++", "clang++", *(f"clang++-{n}" for n in range(25, 13, -1)), "c++"):
        if path := shutil.which(name):
            yield (path,)
    if importlib.util.find_spec("ziglang"):
        yield (sys.executable, "-m", "ziglang", "cc")  # cc, not c++: that would build a C++ library first
    elif path := shutil.which("zig"):
        yield (path, "cc")


@functools.cache
def find_compilers() -> tuple[Compiler, ...]:
    """Return the C++ compilers of this machine, one of each kind, the preferred one first."""
    found: dict[str, Compiler] = {}
    for command in _candidates():
        compiler = _identify(command)
        if compiler and (compiler.kind not in found or not found):
            found[compiler.kind] = compiler
    return tuple(found.values())


def find_compiler(kind=None) -> Compiler:
    """Return the preferred compiler, or the one of a kind ("gcc", "clang", "zig")."""
    if isinstance(kind, Compiler):
        return kind
    found, chosen = find_compilers(), os.environ.get("DISTLEARN_CXX")
    if chosen and kind is None and not (found and found[0].command == tuple(shlex.split(chosen))):
        raise CompilerNotFound(f"DISTLEARN_CXX names {chosen!r}, which does not run; unset it or name a C++ compiler")
    if fitting := [compiler for compiler in found if kind in (None, compiler.kind)]:
        return fitting[0]
    have = ", ".join(c.name for c in found)
    raise CompilerNotFound(f"no {kind} compiler was found, only {have}" if kind and found else HELP)
