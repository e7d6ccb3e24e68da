"""Where a submission runs: a sandbox that sees Python and the library, and nothing else of this machine.

Bubblewrap makes it. `Sandbox` gives the command that starts a program in it. Inside there is no network, no process of
this machine, and no file but the system's programs, Python, the installed packages, the library and the data sets, all
read-only; a home and `/tmp` of limited size live in memory. The folder that processes of one submission share holds
their sockets. When the first process of a sandbox ends, all others in it end.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import distlearn

PROGRAM = "bwrap"
HOME = "/home/student"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt/conda", "/nix/store")
PACKAGES = [str(Path(distlearn.__file__).parent), str(Path(__file__).parents[1])]
"""The library and this package: not the folder of this one, which holds the labs with their solutions."""
SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/fonts")
SETTINGS += ("/etc/localtime", "/etc/mime.types")
KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CC", "CXX")
KEPT += ("NBGRADER_EXECUTION", "NBGRADER_VALIDATING", "DISTLEARN_GRADING")
"""Environment variables that programs in the sandbox get."""
MACHINE = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "mtrr", "fs"))
"""Settings of the machine."""

_COPY = """\
mkdir -p .cache/distlearn/cuda work
cp /opt/kernels/* .cache/distlearn/cuda 2>/dev/null
cd work
if test -d /opt/submission; then cp -r /opt/submission/. .; fi
"""
"""A program starts with copies of the emulator's parts and of the submission's files, which it may change."""

INSTALL = """\
Submissions are untrusted programs, so grading runs them in a sandbox, and there is none here: {why}.
  Debian, Ubuntu:  sudo apt install bubblewrap
  Fedora:          sudo dnf install bubblewrap
  conda:           conda install -c conda-forge bubblewrap
  macOS, Windows:  grade in a Linux virtual machine, or in WSL 2
Where it is installed and users may not create namespaces (Ubuntu 24.04, most containers), see GRADING.md beside
nbgrader_config.py.
To run submissions without a sandbox, with your own rights, say so: `distlearn course grade --unsafe`, or
`nbgrader autograde --ExecuteAll.unsafe=True`"""


class NoSandbox(RuntimeError):
    """There is no sandbox on this machine."""


class Sandbox:
    """How to start programs for one submission."""

    def __init__(self, shared, work=None, hidden=(), disk: int = 2**28, memory: int = 2**32):
        self.shared, self.disk, self.memory = Path(shared), disk, memory
        self.work, self.hidden = work and Path(work), [Path(path).absolute() for path in hidden]

    def command(self, program: list[str], environment: dict[str, str], files=()) -> list[str]:
        """Return the command that runs a program in the sandbox."""
        hidden = [path for path in self.hidden if any(path.is_relative_to(known) for known in readable())]
        own = [(self.work, "/opt/submission")] if self.work else []
        words = [*_bubblewrap(), "--chdir", HOME]
        for place in ("/tmp", HOME, "/dev/shm"):
            words += ["--size", self.disk, "--tmpfs", place]
        for path in (*readable(), *SETTINGS):
            words += ["--ro-bind-try", path, path]
        for path in hidden:
            words += ["--size", self.disk, "--tmpfs", path]
        for source, target in ((_emulator_parts(), "/opt/kernels"), *own, *((path, path) for path in files)):
            words += ["--ro-bind", source, target]
        words += ["--bind", self.shared, self.shared, "--remount-ro", "/dev", "--remount-ro", "/"]
        for name, value in self._environment(environment).items():
            words += ["--setenv", name, value]
        # more data than is allowed, so that mostly `MemoryWatch` ends a process, and says why
        limits = {"c": 0, "n": 1024, "f": self.disk // 512, "d": self.memory // 800 + 2**19}
        start = "".join(f"ulimit -{name} {value}; " for name, value in limits.items()) + _COPY
        program = ["/bin/sh", "-c", start + 'exec "$@"', "sh", *program]
        return [*map(str, words), "--", *program]

    def _environment(self, given: dict[str, str]) -> dict[str, str]:
        kept = {name: given[name] for name in KEPT if name in given}
        path = os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"])
        fixed = {"PATH": path, "HOME": HOME, "USER": "student", "MPLCONFIGDIR": f"{HOME}/.matplotlib"}
        fixed |= {"DISTLEARN_CACHE": f"{HOME}/.cache/distlearn", "PYTHONDONTWRITEBYTECODE": "1"}
        fixed |= {"IPYTHONDIR": f"{HOME}/.ipython", "JUPYTER_RUNTIME_DIR": f"{HOME}/.runtime"}
        library = os.pathsep.join(os.path.dirname(package) for package in PACKAGES)
        fixed |= {"PYTHONPATH": library, "MPLBACKEND": given.get("MPLBACKEND", "agg")}
        data = _data_folder(given)
        return kept | fixed | ({"DISTLEARN_DATA": data} if data else {})


@functools.cache
def readable() -> tuple[str, ...]:
    """Return the folders that programs in the sandbox may read: the system, Python, packages, library and data."""
    found = [path for path in SYSTEM if Path(path).exists()]
    base = [sys.base_prefix, sys.prefix, sysconfig.get_path("stdlib"), *site.getsitepackages()]
    base += [os.path.dirname(os.path.realpath(sys.executable)), os.path.dirname(sys.executable)]
    base += PACKAGES
    data = _data_folder(os.environ)
    base += [data] if data else []
    for path in base:
        path = os.path.abspath(path)
        if Path(path).exists() and not any(Path(path).is_relative_to(known) for known in found):
            found.append(path)
    return tuple(found)


def _data_folder(environment) -> str:
    data = environment.get("DISTLEARN_DATA", "")
    return os.path.abspath(data) if data and Path(data).is_dir() else ""


@functools.cache
def _emulator_parts() -> Path:
    """Copy the parts that every emulated kernel needs, so that they are not built again for each submission.

    The other files of the cache are kernels that were built before, those of solutions among them.
    """
    from distlearn.cuda.emulator.build import cache_directory

    folder = Path(tempfile.mkdtemp(prefix="dl-parts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for kind in ("checker-*", "probe-*"):
        found = sorted(cache_directory().glob(kind), key=lambda path: path.stat().st_mtime)
        for path in found[-6:]:
            with contextlib.suppress(OSError):
                shutil.copy(path, folder)
    return folder


@functools.cache
def available() -> str:
    """Return why there is no sandbox on this machine, or ""."""
    if sys.platform != "linux":
        return f"{sys.platform} has none"
    if shutil.which(PROGRAM) is None:
        return f"{PROGRAM} (bubblewrap) is not installed"
    mounts = [word for path in readable() for word in ("--ro-bind", path, path)]
    done = subprocess.run([*_bubblewrap(), *mounts, "--", "true"], capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else f"{PROGRAM} says {said[-1] if said else done.returncode}"


def _bubblewrap() -> list[str]:
    """Return how every sandbox begins.

    Inside, process 1 is bubblewrap's own: what it was started with can be read there, so it gets no environment.
    """
    words = ["env", "-i", shutil.which(PROGRAM), "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"]
    words += ["--hostname", "grading", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    words += ["--proc", "/proc"]
    for path in MACHINE:  # whoever grades as root may write them inside, too
        words += ["--ro-bind-try", path, path]
    return [*words, "--dev", "/dev"]


def require() -> None:
    """Raise unless there is a sandbox.

    Raises
    ------
    NoSandbox
        With what to install.
    """
    why = available()
    if why:
        raise NoSandbox(INSTALL.format(why=why))
