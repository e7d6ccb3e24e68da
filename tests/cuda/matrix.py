"""Every way that this machine can build a kernel: compilers, instruction sets, levels of optimisation."""

import functools
import platform
import shutil
from pathlib import Path

from distlearn.cuda.emulator import compilers

# What an instruction set asks of /proc/cpuinfo.
X86 = {
    "x86-64": [],
    "x86-64-v2": ["sse4_2", "popcnt"],
    "x86-64-v3": ["avx2", "bmi2", "fma", "movbe"],
    "x86-64-v4": ["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
}


class Build(compilers.Compiler):
    """A compiler with flags of its own behind those that every kernel is built with."""

    def flags(self):
        march, level = self.extra  # the level in its place: behind -fno-vectorize it would switch vectors on again
        return [level if flag == "-O1" else flag for flag in super().flags()] + [march]

    def __str__(self):
        return " ".join([self.name, *self.extra])


@functools.cache
def installed():
    """Return every version of gcc and clang that is installed, each once."""
    names = ["g++", "clang++", *(f"g++-{n}" for n in range(11, 17)), *(f"clang++-{n}" for n in range(14, 23))]
    found = {str(Path(path).resolve()): path for name in names if (path := shutil.which(name))}
    known = {c.version: c for path in found.values() if (c := compilers._identify((path,)))}
    return [c for c in known.values() if c.kind in ("gcc", "clang")]


def instruction_sets():
    """Return the instruction sets that this processor has, from the oldest to its own."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ["native"]
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        has = set(next(line for line in lines if line.startswith("flags")).split())
    except (OSError, StopIteration):
        has = set()
    return [*(name for name, needs in X86.items() if has.issuperset(needs)), "native"]


@functools.cache
def builds():
    """Return the matrix, neighbours differing in all three."""
    option = "-march=" if platform.machine().lower() in ("x86_64", "amd64") else "-mcpu="
    rows = []
    for compiler in installed():
        for march in instruction_sets():
            for level in ("-O1", "-O2", "-O3"):
                if compiler.kind == "clang" and march == "x86-64-v4" and int(compiler.version.split(".")[0]) < 12:
                    continue
                build = Build(*compiler)
                build.extra = (f"{option}{march}", level)
                rows.append(build)
    step = 7 if len(rows) % 7 else 11  # coprime to the length: all come, in another order
    return [rows[i * step % len(rows)] for i in range(len(rows))]
