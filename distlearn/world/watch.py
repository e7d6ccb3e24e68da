"""Watching a launch: wait for all ranks or for the first failure, then stop the others.

A failure is: a rank raised, a process died, the time limit passed, all ranks wait for each other, the user interrupted.
In each case the other ranks are interrupted, so that each returns and reports where it was and the engines are ready
for the next launch. If a rank does not respond within `PATIENCE` seconds (in a C call, or stopped), all are killed.
"""

from __future__ import annotations

import pickle
import sys
import time
from concurrent.futures import FIRST_COMPLETED, wait

from ..comm.base import CommError
from .cluster import is_engine_death
from .interrupts import check_interrupts
from .outcome import Outcome, text_of_error, where
from .progress import GRACE_SECONDS, Output, stop_button

TICK = 0.05
PAUSE = 0.05
"""An error of all ranks is raised at about the same time: wait a moment for the others before interrupting them."""
PATIENCE = 3.0
STACK_SECONDS = 0.2
"""Time for a rank to write its stack after it was asked for it."""
OUTPUT_SECONDS = 5.0
"""Longest wait for a rank's last output, which arrives after its result: at once, unless the machine is busy."""


class Watch:
    """One launch."""

    def __init__(self, ranks, handles, show):
        self._ranks, self._handles, self._show = ranks, handles, show
        self._rank_of = {id(handle): rank for rank, handle in enumerate(handles)}
        self._arrivals: list = []
        for handle in handles:
            handle.add_done_callback(self._arrivals.append)  # in the order in which the results arrive
        self._output = Output(len(handles))
        self.outcomes: dict[int, Outcome] = {}
        self.values: dict[int, bytes] = {}
        self.killed = False
        self._deaths: list[int] = []  # in the order in which they were reported
        self._report, self._reported = None, time.monotonic()  # the newest one, and when it arrived
        self._waited: float | None = None  # when the first rank said that it waits
        self._told_waits = False

    @property
    def pending(self) -> list[int]:
        """Ranks that have not ended."""
        return [rank for rank in range(len(self._handles)) if rank not in self.outcomes]

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
            if self._ranks.cluster is not None and not self._ranks.cluster.has_controller():
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
            while any(map(self._ranks.is_alive, self._deaths)) and time.monotonic() < start + PATIENCE:
                time.sleep(TICK)  # a killed process takes a moment to end
            if self.pending:
                self._ranks.request_stacks(self.pending)
                time.sleep(STACK_SECONDS)
        except KeyboardInterrupt:  # a second Ctrl-C: do not wait any longer
            pass
        for rank in [*self.pending, *filter(self._ranks.is_alive, self._deaths)]:
            self.outcomes[rank] = self._ranks.unresponsive(rank)
        if any(o.status in ("unresponsive", "died") for o in self.outcomes.values()):
            self.killed = True
            self._ranks.kill()
            self._explain_deaths()

    def finish(self) -> None:
        for rank, handle in enumerate(self._handles):
            if self.outcomes[rank].status not in ("died", "unresponsive"):
                handle.wait_for_output(OUTPUT_SECONDS)
        self._show_progress()
        self._output.show([handle.metadata for handle in self._handles], range(len(self._handles)))

    def stop_showing(self) -> None:
        self._show = None

    # -- parts ---------------------------------------------------------------------------------------------------------
    def _wait(self, seconds: float) -> None:
        """Wait for all ranks, but no longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while self.pending and time.monotonic() < deadline:
            self._poll()

    def _poll(self) -> None:
        """Wait until a rank ends, at most `TICK` seconds, and show what is new."""
        check_interrupts()
        futures = [self._handles[rank] for rank in self.pending]
        wait(futures, timeout=TICK, return_when=FIRST_COMPLETED)
        while self._arrivals:
            handle = self._arrivals.pop(0)
            self._receive(self._rank_of[id(handle)], handle)
        self._show_what_is_new()

    def _receive(self, rank: int, handle) -> None:
        error = handle.exception()
        if error is None:
            outcome, self.values[rank] = handle.result()
            self.outcomes[rank] = pickle.loads(outcome)
        elif is_engine_death(error):
            self._deaths.append(rank)
            self.outcomes[rank] = Outcome(rank, "died")
        elif getattr(error, "ename", "") == "KeyboardInterrupt":  # interrupted outside of `launch`
            self.outcomes[rank] = Outcome(rank, "interrupted")
        else:
            self.outcomes[rank] = Outcome(rank, "raised", error=text_of_error(error, rank))
        self.outcomes[rank].position = len(self.outcomes)

    def _explain_deaths(self) -> None:
        dead = [rank for rank in self._deaths if self.outcomes[rank].status == "died"]
        if not dead:
            return
        first, how = self._ranks.first_death(dead)
        for rank in dead:
            self.outcomes[rank].error = f"its process {how}" if rank == first else "its process died"
            self.outcomes[rank].ended = 0.0 if rank == first else 1.0

    def _all_wait(self) -> bool:
        """Say whether all ranks wait; show who waits for what, once for each long wait."""
        told = {rank: self._handles[rank].metadata["data"].get("wait") for rank in self.pending}
        waits = {rank: wait for rank, wait in told.items() if wait is not None}
        if not waits:
            self._waited, self._told_waits = None, False
            return False
        if len(waits) == len(self._handles):
            return True
        self._waited = self._waited or time.monotonic()
        if self._told_waits or time.monotonic() < self._waited + GRACE_SECONDS:
            return False
        self._told_waits = True
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
        if report and self._show is not None:
            self._show(report[0], report[1], **report[2])

    def _show_what_is_new(self) -> None:
        self._show_progress()
        complete = {rank for rank in self.outcomes if self._handles[rank].wait_for_output(0)}
        self._output.show([handle.metadata for handle in self._handles], complete)


def unpack(rank: int, value: bytes):
    """Unpickle a rank's result."""
    try:
        return pickle.loads(value)
    except Exception as error:
        raise CommError(f"rank {rank}: its result cannot be unpickled here: {error}") from error
