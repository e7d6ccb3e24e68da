"""Where a submission runs: a sandbox that sees Python and the library, and nothing else of this machine.

Bubblewrap makes it; where it is not installed, `distlearn.lab.judge.namespaces` does, with the same promises.
`Sandbox` gives the command that starts a program in it. Inside there is no network, no process of this machine, and no
file but the system's programs, Python, the installed packages, the library and the data sets, all read-only; a home and
`/tmp` of limited size live in memory. The folder that processes of one submission share holds their sockets. When the
first process of a sandbox ends, all others in it end.
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

from ..judge import namespaces

PROGRAM = "bwrap"
CHOICE = "DISTLEARN_SANDBOX"
"""Environment variable that names one way, `bwrap` or `namespaces`; by default the first of them that works."""
HOME = "/home/student"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt/conda", "/nix/store")
SETTINGS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/fonts")
SETTINGS += ("/etc/localtime", "/etc/mime.types")
KEPT = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CC", "CXX")
KEPT += ("NBGRADER_EXECUTION", "NBGRADER_VALIDATING", "DISTLEARN_GRADING", CHOICE)
"""Environment variables that programs in the sandbox get."""

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
  macOS, Windows:  grade in a Linux virtual machine, or in WSL 2
Without bubblewrap a sandbox of our own is used, where users may create namespaces. Where they may not (Ubuntu 24.04,
most containers), see GRADING.md beside nbgrader_config.py.
To run submissions without a sandbox, with your own rights, say so: `distlearn course grade --unsafe`, or
`nbgrader autograde --ExecuteAll.unsafe=True`"""


class NoSandbox(RuntimeError):
    """There is no sandbox on this machine."""


class Sandbox:
    """How to start programs for one submission.

    Parameters
    ----------
    shared : path
        The folder for sockets.
    work : path, optional
        A folder whose files are copied into the working directory.
    hidden : iterable of path
        Folders that a program must not see even if they lie below one that it may read.
    disk, memory : int
        Bytes that a program may keep in files, and that each of its processes may use.
    """

    def __init__(self, shared, work=None, hidden=(), disk: int = 2**28, memory: int = 2**32):
        self.shared, self.disk, self.memory = Path(shared), disk, memory
        self.work, self.hidden = work and Path(work), [Path(path).absolute() for path in hidden]

    def command(self, program: list[str], environment: dict[str, str], files=()) -> list[str]:
        """Return the command that runs a program in the sandbox.

        Parameters
        ----------
        program : list of str
        environment : dict
            Of these variables it gets those of `KEPT`, and the ones that sandboxed programs need.
        files : iterable of path
            More that it may read.
        """
        size = str(self.disk)
        mounts = [("proc", "", "/proc"), ("dev", "", "/dev")]
        mounts += [("tmpfs", size, place) for place in ("/tmp", HOME, "/dev/shm")]
        mounts += [("ro", path, path) for path in (*readable(), *SETTINGS) if os.path.exists(path)]
        seen = [path for path in map(str, self.hidden) if any(Path(path).is_relative_to(known) for known in readable())]
        mounts += [("tmpfs", size, path) for path in seen]
        mounts += [("ro", str(_emulator_parts()), "/opt/kernels"), *(("ro", str(path), str(path)) for path in files)]
        mounts += [("bind", str(self.shared), str(self.shared))]
        mounts += [("ro", str(self.work), "/opt/submission")] if self.work else []
        # more data than is allowed, so that mostly `MemoryWatch` ends a process, and says why
        limits = {"c": 0, "n": 1024, "f": self.disk // 512, "d": self.memory // 800 + 2**19}
        start = "".join(f"ulimit -{name} {value}; " for name, value in limits.items()) + _COPY
        program = ["/bin/sh", "-c", start + 'exec "$@"', "sh", *program]
        return WAYS[_way()](mounts, program, self._environment(environment), HOME)

    def _environment(self, given: dict[str, str]) -> dict[str, str]:
        kept = {name: given[name] for name in KEPT if name in given}
        path = os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"])
        fixed = {"PATH": path, "HOME": HOME, "USER": "student", "MPLCONFIGDIR": f"{HOME}/.matplotlib"}
        fixed |= {"DISTLEARN_CACHE": f"{HOME}/.cache/distlearn", "PYTHONDONTWRITEBYTECODE": "1"}
        fixed |= {"IPYTHONDIR": f"{HOME}/.ipython", "JUPYTER_RUNTIME_DIR": f"{HOME}/.runtime"}
        library = str(Path(__file__).parents[3])
        fixed |= {"PYTHONPATH": library, "MPLBACKEND": given.get("MPLBACKEND", "agg")}
        data = _data_folder(given)
        return kept | fixed | ({"DISTLEARN_DATA": data} if data else {})


@functools.cache
def readable() -> tuple[str, ...]:
    """Return the folders that programs in the sandbox may read: the system, Python, packages, library and data."""
    found = [path for path in SYSTEM if Path(path).exists()]
    base = [sys.base_prefix, sys.prefix, sysconfig.get_path("stdlib"), *site.getsitepackages()]
    base += [os.path.dirname(os.path.realpath(sys.executable)), os.path.dirname(sys.executable)]
    base += [str(Path(__file__).parents[2])]
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
    from ...cuda.emulator.cache import cache_directory

    folder = Path(tempfile.mkdtemp(prefix="dl-parts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for kind in ("checker-*", "probe-*"):
        found = sorted(cache_directory().glob(kind), key=lambda path: path.stat().st_mtime)
        for path in found[-6:]:
            with contextlib.suppress(OSError):
                shutil.copy(path, folder)
    return folder


def _bubblewrap(mounts, program, environment, folder) -> list[str]:
    """Return the command that runs a program by bubblewrap; parameters as of `namespaces.command`."""
    words = [PROGRAM, "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--hostname", "grading"]
    words += ["--die-with-parent", "--new-session", "--clearenv", "--chdir", folder]
    for kind, source, target in mounts:
        if kind == "tmpfs":
            words += ["--size", source, "--tmpfs", target]
        else:
            words += [*{"ro": ["--ro-bind", source], "bind": ["--bind", source]}.get(kind, [f"--{kind}"]), target]
    for name, value in environment.items():
        words += ["--setenv", name, value]
    return [*words, "--", *program]


WAYS = {PROGRAM: _bubblewrap, "namespaces": namespaces.command}
"""How to make a sandbox, the preferred way first."""


@functools.cache
def why_not(way: str) -> str:
    """Return why a way to make a sandbox does not work on this machine, or "".

    Parameters
    ----------
    way : {"bwrap", "namespaces"}
    """
    if sys.platform != "linux":
        return f"{sys.platform} has none"
    if way == PROGRAM and shutil.which(PROGRAM) is None:
        return f"{PROGRAM} (bubblewrap) is not installed"
    mounts = [("proc", "", "/proc"), ("dev", "", "/dev"), *(("ro", path, path) for path in readable())]
    command = WAYS[way](mounts, ["true"], dict(os.environ), "/")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines()
    return "" if done.returncode == 0 else f"{way} says {said[-1] if said else done.returncode}"


def _way() -> str:
    """Return the name of the way that is used, or "" if none works."""
    asked = os.environ.get(CHOICE, "")
    return next((way for way in ([asked] if asked in WAYS else WAYS) if not why_not(way)), "")


def available() -> str:
    """Return why there is no sandbox on this machine, or ""."""
    return "" if _way() else "; ".join(dict.fromkeys(map(why_not, WAYS)))


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
