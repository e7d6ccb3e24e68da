"""Nothing is left behind: processes of a cluster die with the process that owns it, however that one ends.

Every process of a cluster carries a mark in its environment (`DISTLEARN_CLUSTER`, the cluster's folder), and so does
whatever it starts. So they are found without keeping lists, also when their parents have died. They are killed

* by the owner, in `close()` and at exit;
* by the *reaper*, a small process of its own session that holds one end of a pipe: when the owner is gone without
  having said goodbye (SIGKILL, SIGTERM, `os._exit`), the pipe closes, and it acts;
* by the next cluster that this user starts, should both have been killed.

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
HYDRA_FILE = "hydra_hwloc_xmlfile_"
"""Begins names in /tmp: there MPICH's proxy writes the topology for its ranks, and removes it if it ends by itself."""


def marked(folder, variable: str = MARK) -> list[psutil.Process]:
    """Return the living processes that carry the mark of a cluster (or another mark, in another `variable`)."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(variable) == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill_marked(folder, grace: float = 0.0, limit: float = 10.0, variable: str = MARK) -> None:
    """Kill all processes of a cluster, and those that they start meanwhile.

    Parameters
    ----------
    folder : path
        The cluster's folder.
    grace : float
        Time that they get to end by themselves after SIGTERM [s].
    limit : float
        Give up after so many seconds (a process can be stuck in the kernel).
    variable : str
        Where in their environment the mark stands.
    """
    deadline = time.monotonic() + limit
    processes = marked(folder, variable)
    files = hydra_files(processes)
    if grace and processes:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.terminate()
        psutil.wait_procs(processes, timeout=grace)
    while (processes := marked(folder, variable)) and time.monotonic() < deadline:
        files |= mpi_files(processes)
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=0.5)
        remove(files)
    remove(files)


def mpi_files(processes) -> set[str]:
    """Return the files that MPI leaves when these processes are killed."""
    return shared_memory(processes) | hydra_files(processes)


def remove(paths) -> None:
    """Remove files, if they are there yet."""
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def hydra_files(processes) -> set[str]:
    """Return the topologies that proxies of MPICH hold open: theirs beyond doubt, whatever else lies in that folder."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            found |= {file.path for file in process.open_files() if Path(file.path).name.startswith(HYDRA_FILE)}
    return found


def shared_memory(processes) -> set[str]:
    """Return the files of MPI's shared memory that have a name yet (of processes killed while they start)."""
    found = set()
    for process in processes:
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
            found |= {line.split(None, 5)[-1] for line in lines if any(name in line for name in SHARED_MEMORY)}
    return found


def clusters_folder() -> Path:
    """Return this user's folder of running clusters on this machine, readable to nobody else."""
    folder = Path(tempfile.gettempdir()) / f"distlearn-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and folder.lstat().st_uid != os.getuid():
        raise RuntimeError(f"{folder} belongs to somebody else; set TMPDIR to a folder of your own")
    return folder


def new_folder() -> Path:
    """Make the folder of a new cluster, owned by this process."""
    folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=clusters_folder()))
    me = psutil.Process()
    owner = {"pid": me.pid, "created": me.create_time(), "where": here()}
    (folder / "owner.json").write_text(json.dumps(owner), encoding="utf-8")
    return folder


def here() -> str:
    """Name the machine and container in which a process id means something."""
    try:
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return platform.node()


def is_alive(owner: dict) -> bool:
    """Say whether the owner of a cluster still runs: the process itself, not another that got its pid."""
    if owner["where"] != here():
        return True  # it cannot be told from here
    try:
        process = psutil.Process(owner["pid"])
        return abs(process.create_time() - owner["created"]) < 1.0 and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def ownerless() -> list[Path]:
    """Return the folders of this user's clusters whose owner is gone."""
    found = []
    for folder in clusters_folder().glob("cluster-*"):
        try:
            owner = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # being made, or being removed
            owner = None
        if _age(folder) > 60 if owner is None else not is_alive(owner):  # what has no owner by then never will
            found.append(folder)
    return found


def _age(folder: Path) -> float:
    """Seconds since a folder was changed; 0 if it is just being removed."""
    try:
        return time.time() - folder.stat().st_mtime
    except OSError:
        return 0.0


def sweep() -> list[Path]:
    """End clusters of this user whose owner is gone; return their folders."""
    swept = ownerless()
    for folder in swept:
        kill_marked(folder)
        shutil.rmtree(folder, ignore_errors=True)
    return swept


class Reaper:
    """The owner's side: starts the reaper of a cluster, and says goodbye to it."""

    def __init__(self, folder: Path):
        command = [sys.executable, "-P", __file__, str(folder)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # whoever reads the owner's output must not wait for us
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def dismiss(self) -> None:
        """Tell it that the owner has cleaned up."""
        with contextlib.suppress(OSError):  # it may have been killed
            self._process.stdin.write(b"bye\n")
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def main(folder: str) -> None:
    """Wait until the owner says goodbye or is gone; in the second case clean up."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    owner = json.loads((Path(folder) / "owner.json").read_text(encoding="utf-8"))
    while True:  # a child that the owner forked holds the pipe open, too: so look at the owner now and then
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
