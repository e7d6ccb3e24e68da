"""No process of a cluster outlives the process that owns it, however that ends.

Every process of a cluster carries a mark in its environment (`DISTLEARN_CLUSTER`, the cluster's folder), and so does
every process that it starts. So they can be found without a list of process ids, even when their parents have died.
They are killed

* by the owner, in `close()` and at exit;
* by the *reaper*, a small process in its own session that holds one end of a pipe: if the owner ends without
  dismissing it (SIGKILL, SIGTERM, `os._exit`), the pipe closes, and the reaper kills them;
* by the next cluster that this user starts, if owner and reaper were killed.

This file is run as a script and needs nothing but psutil.
"""

import contextlib
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

MARK = "DISTLEARN_CLUSTER"
SHARED_MEMORY = ("/dev/shm/mpich_shm", "/dev/shm/sm_segment")  # MPICH, Open MPI
# Prefix of files in /tmp in which MPICH's proxy keeps the topology for its ranks; it removes them on a normal exit.
HYDRA_FILE = "hydra_hwloc_xmlfile_"


def marked(folder, variable: str = MARK) -> list[psutil.Process]:
    """Return the running processes that carry the mark of a cluster (or another mark, in another `variable`)."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(variable) == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill_marked(folder, grace: float = 0.0, variable: str = MARK) -> None:
    """Kill all processes of a cluster, and those that they start meanwhile."""
    deadline = time.monotonic() + 10
    processes = marked(folder, variable)
    files = hydra_files(processes)
    if grace and processes:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        psutil.wait_procs(processes, timeout=grace)
    while (processes := marked(folder, variable)) and time.monotonic() < deadline:
        kill(processes, 0.5)
    remove(files)


def kill(processes, timeout: float) -> None:
    """Kill processes, wait for their end, and remove the files that MPI leaves then."""
    files = mpi_files(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=timeout)
    remove(files)


def mpi_files(processes) -> set[str]:
    """Return the files that MPI leaves when these processes are killed."""
    found = hydra_files(processes)
    for process in processes:  # shared memory that still has a name: of processes killed while starting
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
            found |= {line.split(None, 5)[-1] for line in lines if any(name in line for name in SHARED_MEMORY)}
    return found


def remove(paths) -> None:
    """Remove files that exist."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def hydra_files(processes) -> set[str]:
    """Return the topology files that these processes (MPICH's proxies) hold open, among those of all jobs in /tmp."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            found |= {file.path for file in process.open_files() if Path(file.path).name.startswith(HYDRA_FILE)}
    return found


def clusters_folder() -> Path:
    """Return this user's folder of running clusters on this machine, which no other user can read."""
    folder = Path(tempfile.gettempdir()) / f"distlearn-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} belongs to another user; set TMPDIR to a folder of your own")
    return folder


def new_folder() -> Path:
    """Make the folder of a new cluster, owned by this process."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=clusters_folder()))
    me = psutil.Process()
    owner = {"pid": me.pid, "created": me.create_time(), "where": here()}
    (folder / "owner.json").write_text(json.dumps(owner), encoding="utf-8")
    return folder


def here() -> str:
    """Return the name of the machine and the PID namespace, in which process ids are valid."""
    try:
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def is_alive(owner: dict) -> bool:
    """Return whether the owner of a cluster still runs, and its process id was not reused."""
    if owner["where"] != here():
        return True  # cannot be checked from here
    try:
        process = psutil.Process(owner["pid"])
        return abs(process.create_time() - owner["created"]) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def ownerless() -> list[Path]:
    """Return the folders of this user's clusters whose owner has ended."""
    found = []
    for folder in clusters_folder().glob("cluster-*"):
        try:
            owner = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # being made, or being removed
            owner = None
        if _age(folder) > 60 if owner is None else not is_alive(owner):  # owner.json is written within a minute
            found.append(folder)
    return found


def _age(folder: Path) -> float:
    """Seconds since a folder was changed; 0 if it was just removed."""
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0


def end_ownerless() -> list[Path]:
    """End the clusters of this user whose owner has ended; return their folders."""
    ended = ownerless()
    for folder in ended:
        kill_marked(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return ended


class Reaper:
    """The owner's side: starts and dismisses the reaper of a cluster."""

    def __init__(self, folder: Path):
        command = [sys.executable, "-P", __file__, str(folder)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # or a reader of the owner's output would wait for the reaper
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def dismiss(self) -> None:
        """End the reaper: the owner has cleaned up."""
        with contextlib.suppress(OSError):  # it may have been killed
            self._process.stdin.write(b"bye\n")
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(folder: str) -> None:
    """Wait until the owner dismisses the reaper or has ended; in the second case clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    owner = json.loads((Path(folder) / "owner.json").read_text(encoding="utf-8"))
    while True:  # children that the owner forked hold the pipe open too: check the owner itself
        if select.select([sys.stdin], [], [], 2.0)[0]:
            if sys.stdin.buffer.readline():
                return
            break
        if not is_alive(owner):
            break
    kill_marked(folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
