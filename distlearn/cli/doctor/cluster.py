"""Checks of engines: that they start and answer, and that none were left behind."""

from __future__ import annotations

import shlex
import sys
import time

from .check import Check
from .tools import last_line

START_SECONDS = 60.0
ANSWER_SECONDS = 30.0


def engines() -> Check:
    """Start two engines, let them add up their ranks, and stop them again."""
    from ...world import EngineWorld

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
    from ...world import reaper

    lost = reaper.ownerless()
    if lost:
        sweep = f"{shlex.quote(sys.executable)} -m distlearn.cli doctor --sweep"
        found = f"{len(lost)} whose owner has exited: {', '.join(folder.name for folder in lost)}"
        return Check("clusters", found, "warning", sweep)
    strays = _strays()
    if strays:
        kill = "taskkill /F /PID" if sys.platform == "win32" else "kill"
        fix = "\n".join(f"{kill} {pid}   # {age / 60:.0f} minutes old" for pid, age in strays)
        return Check("clusters", f"{len(strays)} ipyparallel controllers run without a parent process", "info", fix)
    running = len(list(reaper.clusters_folder().glob("cluster-*")))
    return Check("clusters", f"none left behind{f', {running} running' if running else ''}")


def _strays() -> list[tuple[int, float]]:
    """Return (process id, age [s]) of this user's ipyparallel controllers whose parent has exited."""
    import getpass

    import psutil

    from ...world import reaper

    found = []
    for process in psutil.process_iter(["cmdline", "username", "ppid", "create_time", "environ"]):
        info = process.info
        line = " ".join(info["cmdline"] or [])
        ours = info["username"] == getpass.getuser() and reaper.MARK not in (info["environ"] or {})
        if ours and "ipyparallel.controller" in line and info["ppid"] == 1 and "multiprocessing" not in line:
            found.append((process.pid, time.time() - info["create_time"]))
    return found
