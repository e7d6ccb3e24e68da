"""Starting processes under MPI: which mpiexec, how many threads for each process, and settings for Open MPI."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from ..bounds import check_positive
from ..comm.waiting import count_cores
from .interrupts import check_interrupts, defer_interrupts
from .reaper import kill

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
NAP = 0.1  # Time between two checks for an interrupt in `launch` [s].


SHARED_BYTES = 32 << 20  # Four ranks take 22 MB of /dev/shm.


def find_mpiexec() -> str:
    """Return the path of the mpiexec that belongs to this Python, else of the one on PATH."""
    # MPI installed from a wheel puts mpiexec beside the interpreter, where PATH does not find it unless the environment
    # is activated.
    for folder in (Path(sys.prefix) / "bin", Path(sys.executable).parent):
        if os.access(folder / "mpiexec", os.X_OK):
            return str(folder / "mpiexec")
    found = shutil.which("mpiexec")
    if not found:
        raise RuntimeError(f"found no mpiexec in {Path(sys.prefix) / 'bin'} nor on PATH: pip install 'distlearn[mpi]'")
    return found


@functools.cache
def is_hydra(mpiexec: str) -> bool:
    """Return whether an mpiexec is MPICH's."""
    done = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return "HYDRA" in done.stdout


def busy_cores() -> float:
    """Measure how many cores other programs use, while this process waits."""
    return psutil.cpu_percent(0.2) / 100 * (psutil.cpu_count() or 1)


def thread_settings(ranks: int, threads: int | None = None) -> dict[str, str]:
    """Return environment variables that divide the cores among `ranks` processes."""
    if threads is None:
        if "OMP_NUM_THREADS" in os.environ:
            return {}
        threads = max(1, count_cores() // ranks)
    check_positive("BLAS", threads=threads)
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def small_shared_memory() -> str:
    """Say that there is too little memory for ranks to share, with the way out; empty if there is enough."""
    try:
        total, _, free = shutil.disk_usage("/dev/shm")
    except OSError:  # not Linux
        return ""
    if free >= SHARED_BYTES:
        return ""
    left = f"/dev/shm, the memory that MPI's ranks share, has {free / 2**20:.0f} of {total / 2**20:.0f} MiB free"
    return f"{left}: start the container with more (docker run --shm-size=1g), or end the processes that use it. "


def mpi_settings() -> dict[str, str]:
    """Return environment variables that let Open MPI start more ranks than cores, also as root; MPICH ignores them."""
    settings = {"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    if os.geteuid() == 0:
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {name: value for name, value in settings.items() if name not in os.environ}


def launch(
    n: int,
    command: Sequence[str],
    *,
    threads: int | None = None,
    env: dict[str, str] | None = None,
    timeout: float | None = None,
    capture: bool = False,
) -> subprocess.CompletedProcess:
    """Run a command as `n` ranks under mpiexec and wait for it.

    Parameters
    ----------
    n : int
        Number of ranks.
    command : list of str
        Program and arguments; a first word "python" means this interpreter.
    threads : int, optional
        BLAS threads of each rank; by default cores / ranks, unless OMP_NUM_THREADS is set.
    env : dict of str to str, optional
        Additional environment variables.
    timeout : float, optional
        Longest time [s]; after it all ranks are killed and `subprocess.TimeoutExpired` is raised.
    capture : bool
        Collect what the ranks print as text in the result's `stdout` and `stderr` instead of showing it.

    Returns
    -------
    completed : subprocess.CompletedProcess
        `returncode` is 0 if every rank exited with 0.
    """
    check_positive("launch", n=n)
    command = [sys.executable if i == 0 and word == "python" else str(word) for i, word in enumerate(command)]
    pipe = subprocess.PIPE if capture else None
    # no KeyboardInterrupt between the start of the process and the `try` that ends it, nor inside `subprocess`'s locks
    with defer_interrupts():
        process = subprocess.Popen(
            [find_mpiexec(), "-n", str(n), *command],
            env=os.environ | thread_settings(n, threads) | mpi_settings() | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            out, err = _communicate(process, timeout)
        except BaseException:  # timeout or Ctrl-C: no rank may be left
            kill_tree(process.pid)
            process.communicate()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _communicate(process, timeout: float | None) -> tuple[str | None, str | None]:
    """Wait for a process as `Popen.communicate` does, checking for interrupts."""
    start = time.monotonic()
    while True:
        check_interrupts()
        left = NAP if timeout is None else min(NAP, start + timeout - time.monotonic())
        try:
            return process.communicate(timeout=max(0.0, left))
        except subprocess.TimeoutExpired:
            if left < NAP:
                raise subprocess.TimeoutExpired(process.args, timeout) from None


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants."""
    try:
        root = psutil.Process(pid)
        family = [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return
    kill(family, 5)
