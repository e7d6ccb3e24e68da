"""Checks of Python, its packages, NumPy's BLAS, cores, memory and disk."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from .check import Check

GIB = 1024**3
ENGINES = 4
"""What the labs start."""
ENGINES_GIB = 1.0
"""Memory of four engines and their controller: measured at 0.85 to 1.1 GiB."""
NO_AVX512 = {"prescott", "core2", "nehalem", "sandybridge", "haswell", "zen", "bulldozer", "steamroller", "excavator"}
"""Names of OpenBLAS's kernels that use no AVX-512."""
NO_AVX2 = NO_AVX512 - {"haswell", "zen", "excavator"}


def environment_line(name: str, value) -> str:
    """Return the shell command that sets an environment variable."""
    return f"set {name}={value}" if sys.platform == "win32" else f"export {name}={value}"


def pip(*words: str) -> str:
    """Return the pip command of this Python interpreter."""
    return " ".join([shlex.quote(sys.executable), "-m pip", *words])


def python() -> Check:
    """Check the version of Python, and report where it is installed."""
    version, where = ".".join(map(str, sys.version_info[:3])), sys.prefix
    if sys.version_info >= (3, 14):
        return Check("Python", f"{version} in {where}; tested are 3.11 to 3.13", "warning", "python3.13 -m venv .venv")
    return Check("Python", f"{version} in {where}")


def packages() -> Check:
    """Compare the installed packages with distlearn's declared dependencies."""
    from packaging.requirements import Requirement

    wrong, n = [], 0
    for line in metadata.requires("distlearn") or []:
        need = Requirement(line)
        if need.marker and not need.marker.evaluate({"extra": ""}):
            continue
        n += 1
        try:
            have = metadata.version(need.name)
        except metadata.PackageNotFoundError:
            wrong.append((need, "is missing"))
            continue
        if not need.specifier.contains(have, prereleases=True):
            wrong.append((need, f"is {have}"))
    if not wrong:
        return Check("packages", f"all {n} dependencies of distlearn {metadata.version('distlearn')}")
    found = "; ".join(f"{need.name} {what}, expected {need.name}{need.specifier}" for need, what in wrong)
    return Check("packages", found, "problem", pip("install", *(f'"{need.name}{need.specifier}"' for need, _ in wrong)))


def cores() -> int:
    """Return how many cores this process may use."""
    from ...world.launching import count_cores

    return count_cores()


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return ""


def blas_libraries() -> list[dict]:
    """Ask threadpoolctl for the BLAS that NumPy loaded."""
    import numpy as np
    from threadpoolctl import threadpool_info

    x = np.ones((8, 8))
    x @ x
    return [library for library in threadpool_info() if library["user_api"] == "blas"]


def cpu_has(feature: str) -> bool:
    """Say whether the CPU has an instruction set, by NumPy's name for it ("AVX2", "AVX512_SKX")."""
    from numpy._core._multiarray_umath import __cpu_features__

    return bool(__cpu_features__.get(feature))


def blas() -> Check:
    """Compare the instruction set that BLAS chose with what the CPU has: the wrong one costs half the speed."""
    libraries = blas_libraries()
    if not libraries:
        return Check("BLAS", "NumPy's BLAS does not report its name (Accelerate does not)", "info")
    library = libraries[0]
    chosen = library.get("architecture") or "?"
    found = f"{library['internal_api']} {library.get('version') or ''}, kernels for {chosen}"
    if library["internal_api"] != "openblas":
        return Check("BLAS", found)
    for feature, slower, better in (("AVX512_SKX", NO_AVX512, "SkylakeX"), ("AVX2", NO_AVX2, "Haswell")):
        if cpu_has(feature) and chosen.lower() in slower:
            name = "AVX-512" if feature == "AVX512_SKX" else "AVX2"
            return Check(
                "BLAS",
                f"{found}, but this CPU has {name}: matrix products run at about half the speed",
                "warning",
                environment_line("OPENBLAS_CORETYPE", better) + "   # in the shell that starts Jupyter or distlearn",
            )
    return Check("BLAS", found)


def threads() -> Check:
    """Compare BLAS threads with cores: with more threads than cores, ranks run many times slower."""
    have, libraries = cores(), blas_libraries()
    per_process = max((library["num_threads"] for library in libraries), default=1)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    pinned = {name: os.environ[name] for name in names if os.environ.get(name)}
    settings = "".join(f", {name}={value}" for name, value in pinned.items())
    found = f"{have} cores, {per_process} BLAS threads in this process{settings}"
    if per_process > have:
        fix = environment_line(next(iter(pinned), "OMP_NUM_THREADS"), 1)
        return Check("threads", f"{found}: more threads than cores slow down every product", "warning", fix)
    if per_process * ENGINES <= have or per_process == 1:
        return Check("threads", found)
    found += f"; engines share the cores, a bare mpiexec -n {ENGINES} would take {per_process * ENGINES} threads in all"
    return Check("threads", found, "info", environment_line("OMP_NUM_THREADS", 1) + "   # before a bare mpiexec")


def memory() -> Check:
    """Check whether four engines fit into the free memory."""
    import psutil

    free = psutil.virtual_memory().available / GIB
    limit, used = (_first_line(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():  # a container's own limit
        free = min(free, (int(limit) - int(used)) / GIB)
    found = f"{free:.1f} GiB free; {ENGINES} engines take about {ENGINES_GIB:.0f} GiB"
    if free >= 1.5 * ENGINES_GIB:
        return Check("memory", found)
    look = {"win32": "tasklist", "darwin": "top -l 1 -o mem | head -20"}.get(sys.platform, "ps aux --sort=-rss | head")
    fix = f"{look}   # close what takes the most memory; two engines need half as much"
    return Check("memory", found, "problem" if free < ENGINES_GIB / 2 else "warning", fix)


def disk() -> Check:
    """Check the free disk space where labs write: here, and in the folder for temporary files."""
    low = []
    places = {os.getcwd(): 0.0, tempfile.gettempdir(): 0.0}
    for place in places:
        places[place] = shutil.disk_usage(place).free / GIB
        if places[place] < 0.5:
            low.append(place)
    found = ", ".join(f"{free:.1f} GiB free in {place}" for place, free in places.items())
    if not low:
        return Check("disk", found)
    full = min(places.values()) < 0.05
    look = f'dir "{low[0]}"' if sys.platform == "win32" else f"du -sh {shlex.quote(low[0])}/* | sort -h | tail"
    return Check("disk", found, "problem" if full else "warning", f"{look}   # remove what is large and not needed")
