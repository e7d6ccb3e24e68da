"""Where a submission runs: a sandbox that sees Python and the library, and nothing else of this machine.

Bubblewrap makes it. Inside there is no network, no process of this machine, and no file but the system's programs,
Python, packages, the library and the data sets, all read-only; a home and `/tmp` of limited size live in memory, and a
folder that the processes of one submission share holds their sockets. When the first process ends, all others end.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import json
import os
import selectors
import shutil
import site
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path

import psutil
from jupyter_client.manager import AsyncKernelManager

import distlearn

PROGRAM = "bwrap"
HOME, DATA = "/home/student", "/opt/data"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt/conda", "/nix/store")
# The library and this package: not the folder of this one, which holds the labs with their solutions.
PACKAGES = [str(Path(distlearn.__file__).parent), str(Path(__file__).parents[1])]
_SETTINGS = "ld.so.cache ld.so.conf ld.so.conf.d alternatives fonts localtime mime.types"
SETTINGS = tuple(f"/etc/{name}" for name in _SETTINGS.split())
ROOM = 2**28  # Bytes of a home, of /tmp, and of a file.
# Environment variables that programs in the sandbox get.
_KEPT = """
LANG LC_ALL LC_CTYPE TZ OPENBLAS_NUM_THREADS OMP_NUM_THREADS MKL_NUM_THREADS CC CXX NBGRADER_EXECUTION
NBGRADER_VALIDATING DISTLEARN_GRADING"""
KEPT = tuple(_KEPT.split())
# Settings of the machine.
MACHINE = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "mtrr", "fs"))

# A program starts with copies of the emulator's parts and of the submission's files, which it may change.
_COPY = """\
mkdir -p .cache/distlearn/cuda work
cp -r /opt/kernels/* .cache/distlearn/cuda 2>/dev/null
cd work
if test -d /opt/submission; then cp -r /opt/submission/. .; fi
"""

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

    def __init__(self, shared, work=None, hidden=(), memory: int = 2**32):
        self.shared, self.memory = Path(shared), memory
        self.work, self.hidden = work and Path(work), [Path(path).absolute() for path in hidden]

    def command(self, program: list[str], environment: dict[str, str], files=()) -> list[str]:
        """Return the command that runs a program in the sandbox."""
        hidden = [path for path in self.hidden if any(path.is_relative_to(known) for known in readable())]
        own, data = [(self.work, "/opt/submission")] if self.work else [], _data_folder(environment)
        own += [(data, DATA)] if data and Path(data) not in self.hidden else []
        words = [*_bubblewrap(), "--chdir", HOME]
        for place in ("/tmp", HOME, "/dev/shm"):
            words += ["--size", ROOM, "--tmpfs", place]
        for path in (*readable(), *SETTINGS):
            words += ["--ro-bind-try", path, path]
        for path in hidden:
            words += ["--size", ROOM, "--tmpfs", path]
        for source, target in ((_emulator_parts(), "/opt/kernels"), *own, *((path, path) for path in files)):
            words += ["--ro-bind", source, target]
        words += ["--bind", self.shared, self.shared, "--remount-ro", "/dev", "--remount-ro", "/"]
        for name, value in self._environment(environment).items():
            words += ["--setenv", name, value]
        # more data than is allowed, so that mostly `MemoryWatch` ends a process, and says why
        limits = {"c": 0, "n": 1024, "f": ROOM // 512, "d": self.memory // 800 + 2**19}
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
        return kept | fixed | ({"DISTLEARN_DATA": DATA} if _data_folder(given) else {})


@functools.cache
def readable() -> tuple[str, ...]:
    """Return the folders that programs in the sandbox may read: the system, Python, packages and library."""
    found = [path for path in SYSTEM if Path(path).exists()]
    base = [sys.base_prefix, sys.prefix, sysconfig.get_path("stdlib"), *site.getsitepackages()]
    base += [os.path.dirname(os.path.realpath(sys.executable)), os.path.dirname(sys.executable)]
    base += PACKAGES
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
    """Copy the parts that every emulated kernel needs, so that they are not built again for each submission."""
    # The other files of the cache are kernels that were built before, those of solutions among them.
    from distlearn.cuda.emulator import build, compilers, source

    folder = Path(tempfile.mkdtemp(prefix="dl-parts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with contextlib.suppress(source.KernelError):  # no compiler: the submission's own kernels say so
        parts = build.prepare(compilers.find_compiler())
        shutil.copytree(parts, folder / parts.name)
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
    """Return how every sandbox begins."""
    # Inside, process 1 is bubblewrap's own: what it was started with can be read there, so it gets no environment.
    words = ["env", "-i", shutil.which(PROGRAM), "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000"]
    words += ["--hostname", "grading", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    words += ["--proc", "/proc"]
    for path in MACHINE:  # whoever grades as root may write them inside, too
        words += ["--ro-bind-try", path, path]
    return [*words, "--dev", "/dev"]


def require() -> None:
    """Raise unless there is a sandbox."""
    why = available()
    if why:
        raise NoSandbox(INSTALL.format(why=why))
    if len(os.fsencode(folder := tempfile.gettempdir())) > LONGEST:
        raise NoSandbox(f"sockets are made in {folder}, whose path is too long for them: set TMPDIR to a shorter one")


LONGEST = 76  # Bytes of the folder for temporary files: a socket's path has 107 at most.


START = 120.0  # Seconds within which a judge must be ready.


class SandboxedKernel(AsyncKernelManager):
    """Starts kernels in a sandbox; they are reached through sockets in a folder, since they have no network."""

    sandbox: Sandbox | None = None

    def confine(self, sandbox: Sandbox | None, shared: Path) -> None:
        """Say where the kernel is to run, before it starts."""
        self.sandbox = sandbox
        if sys.platform != "win32":
            self.transport, self.ip = "ipc", str(shared / "k")
        if sandbox is not None:
            self.kernel_spec.interrupt_mode = "message"  # a signal would end the sandbox

    def format_kernel_cmd(self, extra_arguments=None) -> list[str]:
        command = super().format_kernel_cmd(extra_arguments)
        if self.sandbox is None:
            return command
        return self.sandbox.command(command, dict(os.environ), files=[self.connection_file])


class JudgeLost(RuntimeError):
    """The judge's process ended, or took too long."""


class Judge:
    """The process that runs the checks of one submission."""

    def __init__(self, sandbox: Sandbox | None, shared):
        self._sandbox, self._shared, self._count, self._process = sandbox, Path(shared), 0, None

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        command, environment = [sys.executable, "-m", "distcourse.judge.process"], dict(os.environ)
        environment |= {"NBGRADER_EXECUTION": "autograde", "MPLBACKEND": "agg"}
        if self._sandbox is not None:
            command = self._sandbox.command(command, environment)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
        self._rest = b""

    def begin(self, code: str, helpers: str, names, lab: Path | None = None) -> str:
        """Have a check run, with the files of the lab's source; return the socket for the student's process."""
        self.start()
        self._count += 1
        path = str(self._shared / f"j{self._count}")
        files = [p for p in lab.iterdir() if p.is_file()] if lab else []
        kept = {p.name: base64.b64encode(p.read_bytes()).decode() for p in files}
        self._write({"code": code, "helpers": helpers, "names": sorted(names), "socket": path, "files": kept})
        self.answer(START)
        return path

    def answer(self, seconds: float) -> dict:
        """Wait for the next line of the judge."""
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not ready.select(max(0.0, end - time.monotonic())):
                    raise JudgeLost("took too long")
                more = os.read(self._process.stdout.fileno(), 1 << 20)
                if not more:
                    raise JudgeLost("the judge's process ended")
                self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.wait()
        self._process = None

    def _write(self, request: dict) -> None:
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise JudgeLost("the judge's process ended") from error


@contextlib.contextmanager
def processes(work, hidden, *, unsafe: bool, memory: int):
    """Provide (sandbox of the kernel or None, folder for sockets, judge) for one submission."""
    if not unsafe:
        require()
    # a short name: the path of a socket has at most 107 characters
    with tempfile.TemporaryDirectory(prefix="dl-", ignore_cleanup_errors=True) as name, contextlib.ExitStack() as stack:
        shared = Path(name)
        (shared / "kernel").mkdir()
        (shared / "link").mkdir()
        kernels, judges = (None if unsafe else Sandbox(shared, at, hidden, memory=memory) for at in (work, None))
        judge = Judge(judges, shared / "link")
        stack.callback(judge.stop)
        judge.start()  # while the kernel starts, too
        yield kernels, shared / "kernel", judge


class MemoryWatch:
    """Kills a process when it and what it started use too much memory, too many processes, or too much disk."""

    def __init__(self, pid: int, limit: int, folder=None, every: float = 0.25):
        self.told = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(pid, limit, folder, every), daemon=True)
        if limit:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self, pid, limit, folder, every) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            while not self._stop.wait(every):
                held, children = 0, process.children(recursive=True)
                for one in (process, *children):
                    with contextlib.suppress(psutil.Error):
                        held += one.memory_info().rss
                written = _bytes_in(folder) if folder else 0
                if held > limit:
                    self.told = f" (it took {held / 2**30:.1f} GiB of memory, {limit / 2**30:.1f} GiB are allowed)"
                elif len(children) > PROCESSES:
                    self.told = f" (it started {len(children)} processes, {PROCESSES} are allowed)"
                elif written > DISK:
                    self.told = f" (it wrote {written / 2**20:.0f} MiB, {DISK / 2**20:.0f} MiB are allowed)"
                if self.told:
                    process.kill()
                    return


PROCESSES = 150  # Processes that a submission may have at once.
DISK = 2**25  # Bytes that it may write to the folder of its sockets, the only one on a disk.


def stretch(most: float) -> float:
    """Return how many times longer a cell may run: programs that want to run for each core, from 1 to `most`."""
    # A check that takes two seconds must not lose its points because ten other programs run beside it.
    waiting = os.getloadavg()[0] if hasattr(os, "getloadavg") else 1.0
    return min(most, max(1.0, waiting / (os.cpu_count() or 1)))


def _bytes_in(folder) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


class Room:
    """Limits the output of one cell; the rest is cut off."""

    def __init__(self, size: int):
        self.size = self._left = size

    def admit(self, content: dict) -> bool:
        """Return whether to show an output, or a message of the kernel that holds one; shorten it if necessary."""
        if "traceback" in content:  # an error is always shown
            content["evalue"] = content["evalue"][: self.size]
            content["traceback"] = [line[: self.size] for line in content["traceback"]]
            return True
        text, data = content.get("text", ""), content.get("data", {})
        size, room = sum(len(part) for part in (text, *data.values()) if isinstance(part, str)), self._left
        if size and room <= 0:
            return False
        self._left -= size
        if size and self._left <= 0:
            cut = f"\n[... cut: a cell may show {self.size:,} characters ...]\n"
            if text:
                content["text"] = text[:room] + cut
            else:
                content["data"] = {"text/plain": f"[output of {size:,} characters left out]{cut}"}
        return True
