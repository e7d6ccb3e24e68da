"""The processes of an `EngineWorld`, here or on hosts: a controller and its engines, started, watched and ended.

This is the one module that imports ipyparallel. Its settings here: a heartbeat of 0.2 s (engines register after two),
no task database (it would keep every payload), the mpiexec installed with this Python, the cores divided among the
engines' threads, and a separate folder that is removed with the cluster.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from .. import need
from . import reaper
from .deaths import CAN_WATCH, exit_statuses
from .interrupts import check_interrupts
from .launching import find_mpiexec, is_hydra, mpi_settings, small_shared_memory, thread_settings

START_SECONDS = 60.0
# Longest time from the end of an engine to mpiexec's report of it; milliseconds, unless the machine is busy.
LAST_WORDS_SECONDS = 5.0


def publish(data: dict[str, Any]) -> None:
    """Send data from a running task to the client (called on an engine)."""
    from ipyparallel.engine.datapub import publish_data

    publish_data(data)


def identity(client, engine: int) -> str | None:
    """Return the unique id of the engine with this number, or None if there is no such engine."""
    return client._engines.get(engine)


def is_engine_death(error: BaseException) -> bool:
    """Return whether a task failed because its engine died."""
    return getattr(error, "ename", "") == "EngineError"


@dataclass(frozen=True)
class Hosts:
    """Machines on which `EngineWorld` starts its engines.

    They must have this Python and the library at the same paths (a shared disk), and accept logins without a password.
    Ranks are assigned in blocks: with two hosts and four engines ranks 0 and 1 are on the first.

    Parameters
    ----------
    addresses : sequence of str
        Addresses or names.
    here : str
        The address of this machine, as seen from the others.
    rsh : str
        The program that runs a command on another host, called as `rsh ADDRESS COMMAND...`.
    environment : dict of str to str
        Additional environment variables of the engines.
    one_machine : bool
        The hosts are parts of this machine (network namespaces, containers that share its process ids): their
        processes can be watched and killed from here. Those of other machines are signalled through ipyparallel, and
        end when mpiexec here does.

    Examples
    --------
    >>> Hosts(["10.0.0.2", "10.0.0.3"], here="10.0.0.1").share(5)
    [3, 2]
    """

    addresses: Sequence[str]
    here: str
    rsh: str = "ssh"
    environment: Mapping[str, str] = field(default_factory=dict)
    one_machine: bool = False

    def __post_init__(self):
        if isinstance(self.addresses, str) or not self.addresses:
            raise ValueError(f"Hosts: addresses are {self.addresses!r}, expected a list of one or more")

    def share(self, n: int) -> list[int]:
        """Return how many of n engines each host gets, as evenly as possible."""
        if n < len(self.addresses):
            raise ValueError(f"Hosts: {n} engines for {len(self.addresses)} hosts, expected at least one per host")
        return [n // len(self.addresses) + (i < n % len(self.addresses)) for i in range(len(self.addresses))]

    def mpiexec_arguments(self, n: int) -> list[str]:
        """Return the arguments with which MPICH's mpiexec starts n ranks there."""
        slots = ",".join(f"{a}:{k}" for a, k in zip(self.addresses, self.share(n), strict=True))
        return ["-launcher", "ssh", "-launcher-exec", self.rsh, "-localhost", self.here, "-hosts", slots]


class PortTaken(RuntimeError):
    """A port of the controller, which chooses free ones before it opens them, was taken by another program."""


class Cluster:
    """A controller on this machine, and `n` engines here or on other hosts."""

    def __init__(self, n: int, threads: int | None = None, hosts: Hosts | None = None):
        need("ipyparallel", "labs")
        self.n, self.hosts, self.client = n, hosts, None
        self._environment = thread_settings(n, threads) | mpi_settings()
        self._is_hydra = is_hydra(find_mpiexec())
        self._mpi_arguments = ["-print-all-exitcodes"] if self._is_hydra else []
        if hosts is not None:
            if not self._is_hydra:
                raise ValueError("EngineWorld: engines on several hosts need MPICH's mpiexec")
            self._mpi_arguments += hosts.mpiexec_arguments(n)
            self._environment |= hosts.environment
        self._ipp = self._controller = self._set = self.deaths = None
        self.ids: list[int] = []
        self._former: set[str] = set()  # engines that have ended, but which ipyparallel may still list for seconds
        reaper.end_ownerless()
        self.folder = reaper.new_folder()
        self._reaper = reaper.Reaper(self.folder)

    def start(self) -> None:
        """Start the controller and the engines."""
        import ipyparallel as ipp
        from traitlets.config import Config

        # a random.py or queue.py beside the notebook must not take the place of Python's
        environment = self._environment | {reaper.MARK: str(self.folder), "PYTHONSAFEPATH": "1"}
        config = Config()
        config.ControllerLauncher.environment = environment
        config.EngineLauncher.environment = environment
        config.MPIEngineSetLauncher.mpi_cmd = [find_mpiexec()]
        config.MPIEngineSetLauncher.mpi_args = self._mpi_arguments
        config.MPIEngineSetLauncher.stop_seconds_until_kill = 1
        if self.is_local and CAN_WATCH:  # else a process of ipyparallel's beside each engine reports its death
            config.MPIEngineSetLauncher.engine_args = ["--IPEngine.enable_nanny=False"]
        log = logging.getLogger("distlearn.cluster")
        log.setLevel(logging.CRITICAL)
        self._ipp = ipp.Cluster(
            n=self.n,
            engines="mpi",
            config=config,
            log=log,
            load_profile=False,
            profile_dir=str(self.folder / "profile"),
            shutdown_atexit=False,
            send_engines_connection_env=True,
            **({} if self.hosts is None else {"controller_ip": self.hosts.here}),
            controller_args=["--HeartMonitor.period=200", "--HeartMonitor.max_heartmonitor_misses=50", "--nodb"],
        )
        check_interrupts()
        self._ipp.start_controller_sync()
        self._controller = psutil.Process(self._ipp.controller.pid)
        self._start_engines()

    def _start_engines(self) -> None:
        try:
            self._set = self._ipp.engines[self._ipp.start_engines_sync(self.n)]
        except RuntimeError:  # ipyparallel names the files that it waited for
            why = self._why(self._ipp.controller)
            kind = PortTaken if "Address already in use" in why else RuntimeError
            raise kind(f"the engines' controller did not start. {why}") from None
        if self.client is None:
            self.client = self._ipp.connect_client_sync()
        deadline = time.monotonic() + START_SECONDS
        while len(fresh := [i for i, u in sorted(self.client._engines.items()) if u not in self._former]) < self.n:
            complete = self.has_controller() and _is_running(self._set.process)
            if not complete or time.monotonic() > deadline:
                raise RuntimeError(f"{self.n} engines did not start. {self._why(self._set)}")
            check_interrupts()
            time.sleep(0.02)
        self.ids = fresh

    @property
    def is_local(self) -> bool:
        """Whether the engines run on this machine, where they can be watched and killed by their process ids."""
        return self.hosts is None or self.hosts.one_machine

    # -- watching ------------------------------------------------------------------------------------------------------
    def has_controller(self) -> bool:
        return _is_running(self._controller)

    def _why(self, launcher) -> str:
        return f"{small_shared_memory()}The end of the log:\n{launcher.get_output().strip()[-1500:]}"

    def log_tail(self) -> str:
        """Return the end of the log of the engines and mpiexec."""
        with contextlib.suppress(OSError), open(self._set.output_file, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 20_000))
            return file.read().decode("utf-8", "replace").strip()
        return ""

    def exit_statuses(self, wait: float = LAST_WORDS_SECONDS) -> list[int]:
        """Return the wait statuses of the ranks of a set that has ended: mpiexec prints them before it ends."""
        deadline = time.monotonic() + wait
        while self._is_hydra:
            last_look = not _is_running(self._set.process) or time.monotonic() > deadline
            if statuses := exit_statuses(self.log_tail(), self.n):
                return statuses
            if last_look:
                break
            time.sleep(0.02)
        return []

    # -- ending --------------------------------------------------------------------------------------------------------
    def restart(self) -> None:
        """Replace the engines and the controller, which takes new ports."""
        self._drop()
        self._former = set()
        self.start()

    def restart_engines(self) -> None:
        """Replace the engines by new ones, and the controller if it died."""
        if self.client is None or not self.has_controller():
            self.restart()
            return
        self.kill_engines()
        self._former |= set(self.client._engines.values())  # also the engines of an interrupted start
        self._ipp.engines.clear()  # ipyparallel would revive dead sets
        self._start_engines()

    def kill_engines(self, pids=()) -> None:
        """Kill all engines."""
        reaper.kill([p for p in reaper.marked(self.folder) if p.pid in pids], timeout=1)
        if pids:
            self.exit_statuses()  # before mpiexec, which prints them, is killed, too
        spared = {self._controller.pid}
        with contextlib.suppress(psutil.Error):
            spared |= {p.pid for p in self._controller.children(recursive=True)}
        rest = lambda: [p for p in reaper.marked(self.folder) if p.pid not in spared]  # noqa: E731
        psutil.wait_procs(rest(), timeout=0.5)
        while victims := rest():
            reaper.kill(victims, timeout=1)

    def _drop(self) -> None:
        if self.client is not None:
            with contextlib.suppress(Exception):
                self.client.close(linger=0)
        self.client = None
        reaper.kill_marked(self.folder, grace=0.3)
        if self._ipp is not None:
            self._ipp.controller, self._ipp.engines = None, {}  # so that its own `stop` does nothing
        self._ipp = None
        shutil.rmtree(self.folder / "profile", ignore_errors=True)

    def stop(self) -> None:
        if self._reaper is None:
            return
        if self.deaths is not None:
            self.deaths.close()
        self._drop()
        shutil.rmtree(self.folder, ignore_errors=True)
        self._reaper.dismiss()
        self._reaper = None


def _is_running(process) -> bool:
    try:
        return process is not None and process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
