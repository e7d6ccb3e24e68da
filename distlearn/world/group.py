"""A group of engines that act as ranks: who is which rank, how they are sent work, and how they are interrupted."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import sys
import time
import uuid
from collections import deque

import psutil

from ..comm.protocol import CommError
from . import remote
from .cluster import Cluster, identity
from .deaths import Deaths, choose_first, how_it_ended
from .interrupts import let_through
from .outcome import OWN_MODULES, Frame, Outcome

KEPT_COPIES = 32
JOIN_SECONDS = 30.0
TICK = 0.05
FIRST_PATIENCE = 3.0
"""Seconds after which an engine that has not said who it is is asked again; doubles each time."""


class Group:
    """Engines as ranks.

    Parameters
    ----------
    view : ipyparallel.DirectView
        On the engines.
    mpi : bool
        Whether they communicate.
    cluster : Cluster, optional
        Where they come from, if they are ours: then their processes can be looked at and killed.

    Attributes
    ----------
    view : ipyparallel.DirectView
        On the engines, in the order of ranks.
    ids : list of int
        By rank: the engine's number in ipyparallel. An engine's number is not its rank.
    pids : list of int
        By rank: process ids.
    """

    def __init__(self, view, mpi: bool, cluster: Cluster | None = None):
        self.client, self.mpi, self.cluster = view.client, mpi, cluster
        self._is_local = cluster is not None and cluster.is_local  # then process ids mean something here
        self._key = uuid.uuid4().hex
        self._number, self._orderly = 0, deque()
        targets = view.targets if isinstance(view.targets, list) else [view.targets]
        if not targets:
            raise ValueError("EngineWorld: the view has no engines")
        self.client.direct_view(targets).use_cloudpickle()  # or what a notebook defines is unknown on the engines
        who = self._ask_who(targets)
        _check_pythons(who, targets)
        order = sorted(range(len(who)), key=lambda i: (who[i]["rank"], targets[i]))
        self.ids = [targets[i] for i in order]
        self.pids = [who[i]["pid"] for i in order]
        self.nodes = [who[i]["node"] for i in order]
        members = [who[i]["rank"] for i in order] if mpi else None
        if mpi:
            _check_mpi(who)
        paths = [os.path.abspath(p) for p in sys.path]
        self._call(self.ids, lambda rank: (remote.join, self._key, rank, members, paths, self._stack_file(rank)))
        self.view = self.client.direct_view(self.ids)
        self._identities = [identity(self.client, i) for i in self.ids]
        self._deaths = Deaths(self.pids) if self._is_local else None

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ids)

    def _ask_who(self, targets) -> list:
        """Ask each engine who it is, and ask again where no answer comes.

        A message to an engine that has only just registered can get lost on its way to it; later ones do not.
        """
        asked = {target: [] for target in targets}
        silent, patience, waited = list(targets), FIRST_PATIENCE, 0.0
        while silent and waited < JOIN_SECONDS:
            for target in silent:
                asked[target].append(self.client[target].apply_async(remote.hello, self.mpi))
            deadline = time.monotonic() + patience
            late = False
            while silent and not late:
                late = time.monotonic() > deadline  # before the last look: who has answered by then has answered
                let_through()
                asked[silent[0]][-1].wait(TICK)
                silent = [target for target in silent if not any(call.done() for call in asked[target])]
            waited, patience = waited + patience, 2 * patience
        if silent:
            raise CommError(f"engine {silent[0]} does not answer: it is busy or hangs; interrupt or restart it")
        return [next(call for call in asked[target] if call.done()).get() for target in targets]

    def _call(self, targets, make_call) -> list:
        """Call a function on each engine, and wait for all."""
        calls = [self.client[target].apply_async(*make_call(i)) for i, target in enumerate(targets)]
        for target, call in zip(targets, calls, strict=True):
            deadline = time.monotonic() + JOIN_SECONDS
            while not call.done() and time.monotonic() < deadline:
                let_through()
                call.wait(TICK)
            if not call.done():
                raise CommError(f"engine {target} does not answer: it is busy or hangs; interrupt or restart it")
        return [call.get() for call in calls]

    # -- work ----------------------------------------------------------------------------------------------------------
    def submit(self, payload: bytes, **options) -> list:
        """Start a launch on every rank; return the handles by rank."""
        self._number += 1
        free = [self._orderly.popleft() for _ in range(len(self._orderly) - KEPT_COPIES)]
        cwd = os.getcwd() if self._is_local else None
        order = {"number": self._number, "free": free, "size": self.size, "cwd": cwd, **options}
        return [self.client[i].apply_async(remote.launch, self._key, order, payload) for i in self.ids]

    def was_orderly(self) -> None:
        """Note that all ranks ended the last launch well."""
        self._orderly.append(self._number)

    # -- life and death ------------------------------------------------------------------------------------------------
    def trouble(self) -> str:
        """Say what keeps the group from working; empty if nothing does."""
        if self.cluster is not None and not self.cluster.has_controller():
            return "the controller of the engines died"
        known = zip(self.ids, self._identities, strict=True)
        gone = [rank for rank, (i, same) in enumerate(known) if identity(self.client, i) != same]
        if gone:
            rank, how = self.first_dead(gone)
            return f"rank {rank}: its process {how}"
        return ""

    def first_dead(self, reported: list[int]) -> tuple[int, str]:
        """Return which rank died first, and how; `reported` are those known to be dead, in the order of the news."""
        if self.cluster is None:
            return reported[0], f"({self.pids[reported[0]]}) {self._gone(reported[0])}"
        statuses = self.cluster.exit_statuses()
        rank = choose_first(self._deaths.order if self._deaths else [], reported, statuses)
        return rank, f"({self.pids[rank]}) {how_it_ended(statuses[rank]) if statuses else self._gone(rank)}"

    def _gone(self, rank: int) -> str:
        """Say what became of a rank of which no more is known than that it is gone."""
        if self.nodes[rank] == platform.node():
            return how_it_ended(None)
        return f"on {self.nodes[rank]} {how_it_ended(None)}, or cannot be reached"

    def close(self) -> None:
        """Stop watching."""
        if self._deaths is not None:
            self._deaths.close()

    def interrupt(self, ranks) -> None:
        """Send SIGINT to ranks: directly where their process is ours, else through their nannies."""
        if not self._is_local:
            targets = [self.ids[rank] for rank in ranks if self.ids[rank] in self.client.ids]
            if targets:
                self.client.send_signal(signal.SIGINT, targets=targets, block=False)
            return
        for rank in ranks:
            with contextlib.suppress(OSError):
                os.kill(self.pids[rank], signal.SIGINT)

    def ask_stacks(self, ranks) -> None:
        """Make ranks that do not react to SIGINT write down where they are."""
        if self._is_local and hasattr(signal, "SIGUSR1"):
            for rank in ranks:
                with contextlib.suppress(OSError):
                    os.kill(self.pids[rank], signal.SIGUSR1)

    def running(self, rank: int) -> Outcome:
        """Say where a rank is that waits for nobody, if it has written that down (`ask_stacks`)."""
        path, frames = self._stack_file(rank), []
        with contextlib.suppress(OSError):
            frames = read_stack(path) if path else []
        return Outcome(rank, "running", frames=frames)

    def lives(self, rank: int) -> bool:
        """Say whether the process of a rank is still there, though it was reported dead because it does not react."""
        try:
            return self._is_local and psutil.Process(self.pids[rank]).status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def silent(self, rank: int) -> Outcome:
        """Make the outcome of a rank that did not react."""
        outcome = Outcome(rank, "silent")
        path = self._stack_file(rank)
        with contextlib.suppress(OSError, psutil.Error):
            if path and (frames := read_stack(path)):
                outcome.frames = frames
            if psutil.Process(self.pids[rank]).status() == psutil.STATUS_STOPPED:
                outcome.error = f"is stopped (process {self.pids[rank]}, SIGSTOP)"
            elif self.nodes[rank] != platform.node():
                outcome.error = f"runs on {self.nodes[rank]}, from where nothing comes any more: is the network cut?"
        return outcome

    def kill(self) -> bool:
        """Kill all engines, if they are ours; say whether they were."""
        if self.cluster is not None:
            self.cluster.kill_engines(self.pids)
        return self.cluster is not None

    def _stack_file(self, rank: int) -> str | None:
        if not self._is_local or self.cluster.folder is None:
            return None
        return str(self.cluster.folder / f"stack-{self._key}-{rank}.txt")


def _check_pythons(who: list[dict], targets: list[int]) -> None:
    """Raise unless the engines run our version of Python: the bytecode of another one ends the process that runs it."""
    ours = platform.python_version()
    for w, target in zip(who, targets, strict=True):
        if w["python"].split(".")[:2] != ours.split(".")[:2]:
            raise CommError(
                f"engine {target} runs Python {w['python']} ({w['executable']}), this process Python {ours} "
                f"({sys.executable}): functions travel only between equal versions; start the engines with this "
                "Python, or use theirs here"
            )


def _check_mpi(who: list[dict]) -> None:
    """Raise unless the engines are ranks of one MPI world."""
    n, sizes, ranks = len(who), {w["size"] for w in who}, {w["rank"] for w in who}
    if len(sizes) > 1 or len(ranks) < n:
        raise CommError(
            f"the {n} engines of this view are not ranks of one MPI world (COMM_WORLD sizes {sorted(sizes)}, ranks "
            f"{sorted(ranks)}): start them with Cluster(engines='mpi'), or use EngineWorld({n})"
        )


def read_stack(path: str) -> list[Frame]:
    """Read the newest stack that faulthandler wrote, outermost frame first."""
    frames = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("Current thread", "Thread", "Stack")):
                frames = []
            elif line.startswith("  File "):
                name, _, rest = line.removeprefix('  File "').partition('", line ')
                number, _, function = rest.strip().partition(" in ")
                own = any(f"/{module.replace('.', '/')}" in name for module in OWN_MODULES)
                frames.insert(0, Frame(name, int(number), function, "", own))
    return frames
