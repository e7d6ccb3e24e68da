"""The client's side of `EngineWorld`: engines as ranks, and one launch of a function on all of them.

`Ranks` knows which engine is which rank; it sends a function to all, interrupts and kills. A `Launch` waits for all
ranks or for the first failure, then stops the others. A failure is: a rank raised, a process died, the time limit
passed, all ranks wait for each other, the user interrupted. In each case the other ranks are interrupted, so that each
returns and reports where it was and the engines are ready for the next launch. If a rank does not respond within
`PATIENCE` seconds (in a C call, or stopped), all are killed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import platform
import signal
import sys
import time
import uuid
from collections import deque
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any

import psutil

from ..comm.base import CommError
from ..sim.copies import is_installed
from . import remote
from .cluster import Cluster, PortTaken, identity, is_engine_death
from .deaths import DeathWatch, first_to_die, how_it_ended
from .interrupts import check_interrupts
from .outcome import OWN_MODULES, Frame, Outcome, text_of_error, where
from .progress import GRACE_SECONDS, Output, stop_button

KEPT_COPIES = 32
JOIN_SECONDS = 30.0
TICK = 0.05
FIRST_PATIENCE = 3.0  # Seconds after which an engine that has not answered is asked again; doubles each time.


class Ranks:
    """The engines of a view as ranks; those of a `cluster` that `EngineWorld` started can be watched and killed."""

    def __init__(self, cluster: Cluster):
        self.client, self.cluster, targets = cluster.client, cluster, cluster.ids
        self._is_local = cluster.is_local  # only then are its process ids valid here
        self._key = uuid.uuid4().hex
        self._number, self._completed, self._modules = 0, deque(), {}
        self.client.direct_view(targets).use_cloudpickle()  # pickles by value the functions that a notebook defines
        who = self._ask_who(targets)
        _check_pythons(who, targets)
        _check_mpi(who)
        order = sorted(range(len(who)), key=lambda i: who[i]["rank"])
        self.ids = [targets[i] for i in order]  # ipyparallel's numbers, by rank: an engine's number is not its rank
        self.pids = [who[i]["pid"] for i in order]
        self.nodes = [who[i]["node"] for i in order]
        self._deaths = cluster.deaths = DeathWatch() if self._is_local else None
        address = self._deaths.address if self._deaths else ""
        joins = [(remote.join_world, self._key, r, self._stack_file(r), address) for r in range(self.size)]
        joined = self._call(self.ids, joins, JOIN_SECONDS)
        if not joined[0].wait_for_output(
            OUTPUT_SECONDS
        ):  # the relay of outputs has no port: all runs would wait for it
            raise PortTaken("what engines print does not arrive; make the EngineWorld again")
        for call in joined:
            call.get()
        if self._deaths is not None:
            self._deaths.start(self.size)
        self.view = self.client.direct_view(self.ids)
        self._identities = [identity(self.client, i) for i in self.ids]

    @property
    def size(self) -> int:
        return len(self.ids)

    def _ask_who(self, targets) -> list[Any]:
        """Ask each engine for its process and rank; the first message to one that has just registered can be lost."""
        return [call.get() for call in self._call(targets, [(remote.describe_engine,)] * len(targets), FIRST_PATIENCE)]

    def _call(self, targets, functions, patience: float) -> list[Any]:
        """Call a function on each engine; again where no answer has come after `patience`, which doubles each time."""
        asked = {target: [] for target in targets}
        unanswered, waited = list(targets), 0.0
        while unanswered and waited < JOIN_SECONDS:
            for target, function in zip(targets, functions, strict=True):
                if target in unanswered:
                    asked[target].append(self.client[target].apply_async(*function))
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
        return [next(call for call in asked[target] if call.done()) for target in targets]

    # -- work ----------------------------------------------------------------------------------------------------------
    def submit(self, payload: bytes, **options) -> list[Any]:
        self._number += 1
        free = [self._completed.popleft() for _ in range(len(self._completed) - KEPT_COPIES)]
        cwd = os.getcwd() if self._is_local else None
        order = {"number": self._number, "free": free, "size": self.size, "cwd": cwd, **options}
        order |= {"paths": [os.path.abspath(p) for p in sys.path], "forget": self._reloaded()}
        return [self.client[i].apply_async(remote.launch, self._key, order, payload) for i in self.ids]

    def _reloaded(self) -> list[str]:
        """Return the names of the user's modules, which engines reload, if one was reloaded since the last launch."""
        changed = False
        for name, module in list(sys.modules.items()):
            spec = getattr(module, "__spec__", None)  # another object after each import
            known = self._modules.get(name)
            if known is not spec:
                self._modules[name] = spec
                changed |= known is not None and _is_users(name, spec)
        # all of them, as modules hold what they have imported from one another
        return [name for name, spec in self._modules.items() if _is_users(name, spec)] if changed else []

    def mark_completed(self) -> None:
        """Note that the last launch completed on all ranks: its communicator can be freed."""
        self._completed.append(self._number)

    # -- failures ------------------------------------------------------------------------------------------------------
    def problem(self) -> str:
        """Say why the ranks cannot run anything; empty if they can."""
        if not self.cluster.has_controller():
            return "the controller of the engines died"
        known = zip(self.ids, self._identities, strict=True)
        gone = self.died() or [rank for rank, (i, same) in enumerate(known) if identity(self.client, i) != same]
        if gone:
            rank, how = self.first_death(gone)
            return f"rank {rank}: its process {how}"
        return ""

    def died(self) -> list[int]:
        """Return the ranks that are known to be dead, in order; on other machines ipyparallel reports them."""
        return list(self._deaths.order) if self._deaths else []

    def first_death(self, reported: list[int]) -> tuple[int, str]:
        """Return which rank died first, and how; `reported` are the dead ranks in the order of the reports."""
        statuses = self.cluster.exit_statuses()
        rank = first_to_die(self.died(), reported, statuses)
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
        else:
            self._signal(ranks, signal.SIGINT)

    def _signal(self, ranks, number: int) -> None:
        for rank in ranks:
            with contextlib.suppress(OSError):
                os.kill(self.pids[rank], number)

    def request_stacks(self, ranks) -> None:
        """Make ranks write their stacks to files, even those inside a C call."""
        if self._is_local:
            self._signal(ranks, signal.SIGUSR1)

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

    def _stack_file(self, rank: int) -> str | None:
        return str(self.cluster.folder / f"stack-{self._key}-{rank}.txt") if self._is_local else None


def _is_users(name: str, spec) -> bool:
    """Say whether a module is one that a user edits, neither Python's nor installed nor the library's."""
    return name != "__main__" and getattr(spec, "has_location", False) and not is_installed(name)


def _check_pythons(who: list[dict], targets: list[int]) -> None:
    """Raise unless the engines run this version of Python: bytecode of another version crashes the interpreter."""
    ours = platform.python_version()
    for w, target in zip(who, targets, strict=True):
        if w["python"].split(".")[:2] != ours.split(".")[:2]:
            theirs = f"engine {target} runs Python {w['python']} ({w['executable']})"
            raise CommError(f"{theirs}, this process Python {ours} ({sys.executable}): start it with this one")


def _check_mpi(who: list[dict]) -> None:
    """Raise unless the engines are ranks of one MPI world."""
    n, sizes, ranks = len(who), {w["size"] for w in who}, {w["rank"] for w in who}
    if len(sizes) > 1 or len(ranks) < n:
        found = f"COMM_WORLD sizes {sorted(sizes)}, ranks {sorted(ranks)}"
        raise CommError(f"the {n} engines are not ranks of one MPI world ({found}): mpiexec is that of another MPI")


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


# -- one launch --------------------------------------------------------------------------------------------------------
# An error of all ranks is raised at about the same time: wait a moment for the others before interrupting them.
PAUSE = 0.05
PATIENCE = 3.0
STACK_SECONDS = 0.2  # Time for a rank to write its stack after it was asked for it.
# Longest wait for the ranks' last output, which arrives after its result: at once, unless the machine is busy.
OUTPUT_SECONDS = 5.0


class Launch:
    """One launch."""

    def __init__(self, ranks, handles, show):
        self._ranks, self._handles, self.show = ranks, handles, show
        self._rank_of = {id(handle): rank for rank, handle in enumerate(handles)}
        self._arrivals: list = []
        for handle in handles:
            handle.add_done_callback(self._arrivals.append)  # in the order in which the results arrive
        self._output = Output(len(handles))
        self.outcomes: dict[int, Outcome] = {}
        self.values: dict[int, bytes] = {}
        self.killed = False
        self._report, self._reported = None, time.monotonic()  # the newest one, and when it arrived
        self._stalled: float | None = None  # when the first rank said that it waits
        self._stall_shown = False

    @property
    def pending(self) -> list[int]:
        """Ranks that have not ended."""
        return [rank for rank in range(len(self._handles)) if rank not in self.outcomes]

    @property
    def dead(self) -> list[int]:
        """Ranks whose process died, in the order of the reports."""
        return [rank for rank, outcome in self.outcomes.items() if outcome.status == "died"]

    def until_trouble(self, timeout: float | None, progress_timeout: float | None) -> str:
        """Return when all ranks have returned, or one has failed; say why if no rank is to blame."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.pending:
            self._poll()
            if any(o.status != "returned" for o in self.outcomes.values()):
                break
            if deadline is not None and time.monotonic() > deadline and self.pending:
                return "timeout"
            if progress_timeout is not None and self._report and time.monotonic() > self._reported + progress_timeout:
                return "no progress"
            if self._all_wait():
                return "deadlock"
            if not self._ranks.cluster.has_controller():
                return "controller died"
        return ""

    def stop_ranks(self) -> None:
        """Interrupt the ranks that still run until all have ended; kill the engines if some do not respond."""
        try:
            self._wait(PAUSE)
            start, pause = time.monotonic(), 0.2
            while self.pending and time.monotonic() < start + PATIENCE:
                self._ranks.interrupt(self.pending)
                self._wait(pause)
                pause *= 1.5
            while any(map(self._ranks.is_alive, self.dead)) and time.monotonic() < start + PATIENCE:
                time.sleep(TICK)  # a killed process takes a moment to end
            if self.pending:
                self._ranks.request_stacks(self.pending)
                time.sleep(STACK_SECONDS)
        except KeyboardInterrupt:  # a second Ctrl-C: do not wait any longer
            pass
        for rank in [*self.pending, *filter(self._ranks.is_alive, self.dead)]:
            self.outcomes[rank] = self._ranks.unresponsive(rank)
        if any(o.status in ("unresponsive", "died") for o in self.outcomes.values()):
            self.killed = True
            self._ranks.cluster.kill_engines(self._ranks.pids)
            self._explain_deaths()

    def finish(self) -> None:
        deadline = time.monotonic() + OUTPUT_SECONDS
        for rank, handle in enumerate(self._handles):
            if self.outcomes[rank].status not in ("died", "unresponsive"):
                handle.wait_for_output(max(0.0, deadline - time.monotonic()))
        self._show_progress()
        self._output.show([handle.metadata for handle in self._handles], range(len(self._handles)))

    # -- parts ---------------------------------------------------------------------------------------------------------
    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.pending and time.monotonic() < deadline:
            self._poll()

    def _poll(self) -> None:
        """Wait until a rank ends, at most `TICK` seconds, and show new output and progress."""
        check_interrupts()
        futures = [self._handles[rank] for rank in self.pending]
        wait(futures, timeout=TICK, return_when=FIRST_COMPLETED)
        while self._arrivals:
            handle = self._arrivals.pop(0)
            self._receive(self._rank_of[id(handle)], handle)
        for rank in self._ranks.died():
            if rank not in self.outcomes:
                self._end(rank, Outcome(rank, "died"))
        self._show_progress()
        complete = {rank for rank in self.outcomes if self._handles[rank].wait_for_output(0)}
        self._output.show([handle.metadata for handle in self._handles], complete)

    def _receive(self, rank: int, handle) -> None:
        error = handle.exception()
        if error is None:
            outcome, self.values[rank] = handle.result()
            self._end(rank, pickle.loads(outcome))
        elif is_engine_death(error):
            self._end(rank, Outcome(rank, "died"))
        elif getattr(error, "ename", "") == "KeyboardInterrupt":  # interrupted outside of `launch`
            self._end(rank, Outcome(rank, "interrupted"))
        else:
            self._end(rank, Outcome(rank, "raised", error=text_of_error(error, rank)))

    def _end(self, rank: int, outcome: Outcome) -> None:
        self.outcomes[rank] = outcome
        outcome.position = len(self.outcomes)

    def _explain_deaths(self) -> None:
        dead = self.dead
        if not dead:
            return
        first, how = self._ranks.first_death(dead)
        for rank in dead:
            self.outcomes[rank].error = f"its process {how}" if rank == first else "its process died"
            self.outcomes[rank].ended = 0.0 if rank == first else 1.0

    def _all_wait(self) -> bool:
        """Say whether all ranks wait; show who waits for what, once for each long wait."""
        stalls = {rank: self._handles[rank].metadata["data"].get("stall") for rank in self.pending}
        waits = {rank: stall for rank, stall in stalls.items() if stall is not None}
        if not waits:
            self._stalled, self._stall_shown = None, False
            return False
        if len(waits) == len(self._handles):
            return True
        self._stalled = self._stalled or time.monotonic()
        if self._stall_shown or time.monotonic() < self._stalled + GRACE_SECONDS:
            return False
        self._stall_shown = True
        others = [rank for rank in self.pending if rank not in waits]
        self._ranks.request_stacks(others)
        time.sleep(STACK_SECONDS)
        places = waits | {rank: self._ranks.running(rank) for rank in others}
        lines = "".join(f"  rank {rank} {where(places[rank])}\n" for rank in sorted(places))
        sys.stderr.write(
            f"EngineWorld: ranks have been waiting for a long time:\n{lines}{stop_button()}; the engines stay usable.\n"
        )
        return False

    def _show_progress(self) -> None:
        report = self.outcomes[0].progress if 0 in self.outcomes else None
        report = report or self._handles[0].metadata["data"].get("progress")
        if report and report != self._report:
            self._report, self._reported = report, time.monotonic()
        if report and self.show is not None:
            self.show(report[0], report[1], **report[2])


def unpack(rank: int, value: bytes):
    """Unpickle a rank's result."""
    try:
        return pickle.loads(value)
    except Exception as error:
        raise CommError(f"rank {rank}: its result cannot be unpickled here: {error}") from error
