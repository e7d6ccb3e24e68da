"""Engines as ranks: which engine is which rank, how all are sent a function, interrupted or killed."""

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

from ..comm.base import CommError
from . import remote
from .cluster import Cluster, identity
from .deaths import DeathWatch, first_to_die, how_it_ended
from .interrupts import check_interrupts
from .outcome import OWN_MODULES, Frame, Outcome

KEPT_COPIES = 32
JOIN_SECONDS = 30.0
TICK = 0.05
FIRST_PATIENCE = 3.0
"""Seconds after which an engine that has not answered is asked again; doubles each time."""


class Ranks:
    """The engines of a view as ranks; those of a `cluster` that `EngineWorld` started can be watched and killed."""

    def __init__(self, view, cluster: Cluster | None = None):
        self.client, self.cluster = view.client, cluster
        self._is_local = cluster is not None and cluster.is_local  # only then are its process ids valid here
        self._key = uuid.uuid4().hex
        self._number, self._completed = 0, deque()
        targets = view.targets if isinstance(view.targets, list) else [view.targets]
        if not targets:
            raise ValueError("EngineWorld: the view has no engines")
        self.client.direct_view(targets).use_cloudpickle()  # pickles by value what a notebook defines
        who = self._ask_who(targets)
        _check_pythons(who, targets)
        order = sorted(range(len(who)), key=lambda i: (who[i]["rank"], targets[i]))
        self.ids = [targets[i] for i in order]  # ipyparallel's numbers, by rank: an engine's number is not its rank
        self.pids = [who[i]["pid"] for i in order]
        self.nodes = [who[i]["node"] for i in order]
        members = [who[i]["rank"] for i in order]
        _check_mpi(who)
        paths = [os.path.abspath(p) for p in sys.path]
        self._deaths = DeathWatch() if self._is_local else None
        address = self._deaths.address if self._deaths else ""
        self._call(
            self.ids,
            lambda rank: (remote.join_world, self._key, rank, members, paths, self._stack_file(rank), address),
        )
        if self._deaths is not None:
            self._deaths.start(self.size)
        self.view = self.client.direct_view(self.ids)
        self._identities = [identity(self.client, i) for i in self.ids]

    @property
    def size(self) -> int:
        return len(self.ids)

    def _ask_who(self, targets) -> list:
        """Ask each engine for its process and rank; ask again if no answer comes."""
        # The first message to an engine that has just registered can be lost.
        asked = {target: [] for target in targets}
        unanswered, patience, waited = list(targets), FIRST_PATIENCE, 0.0
        while unanswered and waited < JOIN_SECONDS:
            for target in unanswered:
                asked[target].append(self.client[target].apply_async(remote.describe_engine))
            deadline = time.monotonic() + patience
            late = False
            while unanswered and not late:
                late = time.monotonic() > deadline  # before the last look, so that an answer in time counts
                check_interrupts()
                asked[unanswered[0]][-1].wait(TICK)
                unanswered = [target for target in unanswered if not any(call.done() for call in asked[target])]
            waited, patience = waited + patience, 2 * patience
        if unanswered:
            raise CommError(f"engine {unanswered[0]} does not answer: it is busy or hangs; interrupt or restart it")
        return [next(call for call in asked[target] if call.done()).get() for target in targets]

    def _call(self, targets, make_call) -> list:
        calls = [self.client[target].apply_async(*make_call(i)) for i, target in enumerate(targets)]
        for target, call in zip(targets, calls, strict=True):
            deadline = time.monotonic() + JOIN_SECONDS
            while not call.done() and time.monotonic() < deadline:
                check_interrupts()
                call.wait(TICK)
            if not call.done():
                raise CommError(f"engine {target} does not answer: it is busy or hangs; interrupt or restart it")
        return [call.get() for call in calls]

    # -- work ----------------------------------------------------------------------------------------------------------
    def submit(self, payload: bytes, **options) -> list:
        """Submit a launch to every rank; return the AsyncResults by rank."""
        self._number += 1
        free = [self._completed.popleft() for _ in range(len(self._completed) - KEPT_COPIES)]
        cwd = os.getcwd() if self._is_local else None
        order = {"number": self._number, "free": free, "size": self.size, "cwd": cwd, **options}
        return [self.client[i].apply_async(remote.launch, self._key, order, payload) for i in self.ids]

    def mark_completed(self) -> None:
        """Note that the last launch completed on all ranks: its communicator can be freed."""
        self._completed.append(self._number)

    # -- failures ------------------------------------------------------------------------------------------------------
    def problem(self) -> str:
        """Say why the ranks cannot run anything; empty if they can."""
        if self.cluster is not None and not self.cluster.has_controller():
            return "the controller of the engines died"
        known = zip(self.ids, self._identities, strict=True)
        gone = [rank for rank, (i, same) in enumerate(known) if identity(self.client, i) != same]
        if gone:
            rank, how = self.first_death(gone)
            return f"rank {rank}: its process {how}"
        return ""

    def first_death(self, reported: list[int]) -> tuple[int, str]:
        """Return which rank died first, and how; `reported` are the dead ranks in the order of the reports."""
        if self.cluster is None:
            return reported[0], f"({self.pids[reported[0]]}) {self._how_unknown(reported[0])}"
        statuses = self.cluster.exit_statuses()
        rank = first_to_die(self._deaths.order if self._deaths else [], reported, statuses)
        return rank, f"({self.pids[rank]}) {how_it_ended(statuses[rank]) if statuses else self._how_unknown(rank)}"

    def _how_unknown(self, rank: int) -> str:
        """Describe the end of a rank of which nothing more is known."""
        if self.nodes[rank] == platform.node():
            return how_it_ended(None)
        return f"on {self.nodes[rank]} {how_it_ended(None)}, or cannot be reached"

    def close(self) -> None:
        if self._deaths is not None:
            self._deaths.close()

    def interrupt(self, ranks) -> None:
        """Send SIGINT to ranks: directly on this machine, else through ipyparallel's nannies."""
        if not self._is_local:
            targets = [self.ids[rank] for rank in ranks if self.ids[rank] in self.client.ids]
            if targets:
                self.client.send_signal(signal.SIGINT, targets=targets, block=False)
            return
        for rank in ranks:
            with contextlib.suppress(OSError):
                os.kill(self.pids[rank], signal.SIGINT)

    def request_stacks(self, ranks) -> None:
        """Make ranks write their stacks to files, even those inside a C call."""
        if self._is_local and hasattr(signal, "SIGUSR1"):
            for rank in ranks:
                with contextlib.suppress(OSError):
                    os.kill(self.pids[rank], signal.SIGUSR1)

    def running(self, rank: int) -> Outcome:
        """Return where a rank is that does not wait, from the stack that it wrote after `request_stacks`."""
        path, frames = self._stack_file(rank), []
        with contextlib.suppress(OSError):
            frames = read_stack(path) if path else []
        return Outcome(rank, "running", frames=frames)

    def is_alive(self, rank: int) -> bool:
        """Return whether a rank's process exists; ipyparallel also reports an engine as dead if it does not respond."""
        try:
            return self._is_local and psutil.Process(self.pids[rank]).status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def unresponsive(self, rank: int) -> Outcome:
        """Make the outcome of a rank that does not respond."""
        outcome = Outcome(rank, "unresponsive")
        path = self._stack_file(rank)
        with contextlib.suppress(OSError, psutil.Error):
            if path and (frames := read_stack(path)):
                outcome.frames = frames
            if psutil.Process(self.pids[rank]).status() == psutil.STATUS_STOPPED:
                outcome.error = f"is stopped (process {self.pids[rank]}, SIGSTOP)"
            elif self.nodes[rank] != platform.node():
                outcome.error = f"runs on {self.nodes[rank]}, which does not answer: is the network down?"
        return outcome

    def kill(self) -> bool:
        """Kill all engines, if this world started them; return whether it did."""
        if self.cluster is not None:
            self.cluster.kill_engines(self.pids)
        return self.cluster is not None

    def _stack_file(self, rank: int) -> str | None:
        if not self._is_local or self.cluster.folder is None:
            return None
        return str(self.cluster.folder / f"stack-{self._key}-{rank}.txt")


def _check_pythons(who: list[dict], targets: list[int]) -> None:
    """Raise unless the engines run this version of Python: bytecode of another version crashes the interpreter."""
    ours = platform.python_version()
    for w, target in zip(who, targets, strict=True):
        if w["python"].split(".")[:2] != ours.split(".")[:2]:
            raise CommError(
                f"engine {target} runs Python {w['python']} ({w['executable']}), this process Python {ours} "
                f"({sys.executable}): functions can be sent only between equal versions; start the engines with this "
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
    """Read the last stack that faulthandler wrote, outermost frame first."""
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
