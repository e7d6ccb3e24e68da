"""The simulator's engine: fibres that pass a baton, the one with the earliest virtual clock first.

Every rank is a greenlet, so a rank's code is plain blocking Python and a hand-over costs about a microsecond. One
rank runs at a time, until it blocks; then the ready rank with the smallest (time, rank) runs. A blocked rank is made
ready by `wake`, at the time at which what it waits for will have happened. Nothing else decides the order, so two runs
of the same program are the same, bit for bit.

Ranks that do the same become ready one after another, nearly always in the order in which they will run. So the queue
of those that are ready has two parts: whoever comes after the last in line joins the line, which costs one comparison,
and all others go on a heap.

The greenlet that called `run` is the hub: it starts ranks, and gets control back when one ends or when none is ready.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from heapq import heappop, heappush

from greenlet import GreenletExit, getcurrent, greenlet

from ..comm.protocol import DeadlockError, RankError
from .timeline import Lane


class Waits:
    """Something to be blocked on that is no event of the post's: words that say what it is."""

    __slots__ = ("_text",)

    def __init__(self, text: str):
        self._text = text

    def waiting(self, fibre) -> str:
        """Say what the fibre waits for."""
        return self._text


class Fibre:
    """One rank's thread of control and its virtual clock."""

    __slots__ = (
        "comm_free",
        "greenlet",
        "nic_free",
        "now",
        "rank",
        "result",
        "seconds_run",
        "since",
        "switch",
        "ticket",
        "waits",
    )

    def __init__(self, rank: int):
        self.rank = rank
        self.now = 0.0  # virtual seconds
        self.nic_free = 0.0  # when its network card has put the last message on the wire
        self.comm_free = Lane()  # when there is room for a collective
        self.waits = None  # the event it is blocked on, whose `waiting(fibre)` says what it is; None while it runs
        self.ticket = 0  # number of its newest entry in the queue; older ones are void
        self.seconds_run = 0.0  # wall time it has really run, for the compute model "Measured"
        self.since = 0.0
        self.result = None
        self.greenlet: greenlet | None = None
        self.switch = None  # the greenlet's own `switch`


_ITS_TURN = Waits("its turn")


class Scheduler:
    """Runs fibres in the order of their virtual clocks.

    Parameters
    ----------
    size : int
        Number of fibres.
    measures : bool
        Keep account of the wall time that each fibre really runs.
    monitor : callable, optional
        `monitor(fibre)` runs on a fibre of its own that is no rank: it lets things happen at certain times.
    """

    def __init__(self, size: int, measures: bool = False, monitor: Callable[[Fibre], None] | None = None):
        self.fibres = [Fibre(rank) for rank in range(size)]
        self._monitor = monitor
        self._all = self.fibres if monitor is None else [*self.fibres, Fibre(size)]  # as the queue numbers them
        self._line: deque[tuple[float, int, int]] = deque()  # (time, rank, ticket) of who is ready, in order
        self._heap: list[tuple[float, int, int]] = []  # the same of those who were woken out of order
        self._measures = measures
        self._stopping = False
        self._failure: tuple[int, BaseException] | None = None
        self._hub = Fibre(len(self._all))  # nobody wakes it: it gets the baton when there is nobody else
        self._hub.greenlet = getcurrent()

    def run(self, main: Callable[[Fibre], object]) -> list:
        """Run `main(fibre)` on every fibre to its end; return the results by rank.

        The first exception unwinds all other fibres and surfaces as `RankError` (`KeyboardInterrupt` as itself).

        Raises
        ------
        RankError
            If a rank raised.
        DeadlockError
            If ranks are left that wait for each other.
        """
        hub = self._hub.greenlet

        def body(fibre):
            try:
                hub.switch()  # a greenlet inherits its starter's stack depth: start here, not in another fibre
                fibre.since = time.perf_counter()
                fibre.result = main(fibre) if fibre.rank < len(self.fibres) else self._monitor(fibre)
            except GreenletExit:
                pass
            except BaseException as error:  # the hub raises it again, with the rank
                self._failure = self._failure or (fibre.rank, error)

        for fibre in self._all:
            fibre.greenlet = greenlet(lambda f=fibre: body(f), parent=hub)
            fibre.switch = fibre.greenlet.switch
            fibre.greenlet.gr_context = copy_context()  # so that `with np.errstate(...)` around a run holds in it
            fibre.greenlet.switch()
            self.wake(fibre, 0.0)
        try:
            while (self._line or self._heap) and not self._failure:
                Scheduler.block(self, self._hub, _ITS_TURN)
            stuck = [f for f in self.fibres if not f.greenlet.dead]
            if stuck and not self._failure:
                raise DeadlockError(describe_deadlock(self.fibres))
        finally:
            self._unwind()
        if self._failure:
            rank, error = self._failure
            if isinstance(error, KeyboardInterrupt):  # as a rule the user's, whichever rank it hit
                error.add_note(f"rank {rank} was running")
                raise error
            text = str(error).removeprefix(f"rank {rank}: ")
            raise RankError(rank, f"{type(error).__name__}: {text}", original=error) from error
        return [f.result for f in self.fibres]

    def wake(self, fibre: Fibre, when: float) -> None:
        """Make a fibre ready at `when`; the newest call counts."""
        fibre.ticket = ticket = fibre.ticket + 1
        entry, line = (when, fibre.rank, ticket), self._line
        if not line or entry > line[-1]:
            line.append(entry)
        else:
            heappush(self._heap, entry)

    def block(self, fibre: Fibre, event) -> None:
        """Give the baton away until somebody wakes `fibre`; its clock then stands at the time it was woken for."""
        if self._stopping:
            raise GreenletExit
        fibre.waits = event
        if self._measures:
            fibre.seconds_run += time.perf_counter() - fibre.since
        line, heap = self._line, self._heap
        while line or heap:
            when, rank, ticket = heappop(heap) if heap and not (line and line[0] < heap[0]) else line.popleft()
            following = self._all[rank]
            if ticket == following.ticket:
                if when > following.now:
                    following.now = when
                if following is not fibre:
                    following.switch()
                break
        else:
            self._hub.greenlet.switch()  # nobody can run: the hub finds the deadlock and unwinds us
        if self._measures:
            fibre.since = time.perf_counter()
        fibre.waits = None

    def yield_until(self, fibre: Fibre, when: float) -> None:
        """Let everybody whose clock stands before `when` go first."""
        self.wake(fibre, when)
        self.block(fibre, _ITS_TURN)

    def strike(self, fibre: Fibre) -> None:
        """Do nothing: in a sound world no rank fails."""

    def _unwind(self) -> None:
        """End every fibre that still lives, so that nothing is left behind."""
        self._stopping = True
        for fibre in self._all:
            for _ in range(100):  # code that swallows GreenletExit gets it again
                if fibre.greenlet.dead:
                    break
                fibre.greenlet.throw(GreenletExit)


def describe_deadlock(fibres: list[Fibre], limit: int = 8) -> str:
    """Say what every rank waits for, with the line of the user's code that waits."""
    stuck = [f for f in fibres if not f.greenlet.dead]
    lines = [f"rank {f.rank} waits for {f.waits.waiting(f)}{user_line(f.greenlet)}" for f in stuck[:limit]]
    if len(stuck) > limit:
        lines.append(f"and {len(stuck) - limit} more ranks wait")
    ended = [str(f.rank) for f in fibres if f.greenlet.dead]
    if ended:
        named = ", ".join(ended[:limit]) + (", ..." if len(ended) > limit else "")
        lines.append(f"rank{'s' * (len(ended) > 1)} {named} returned already")
    return "deadlock: " + "; ".join(lines)


def user_line(fibre: greenlet) -> str:
    """Name file and line of the innermost frame of a suspended fibre that is not this package's communication code."""
    frame = fibre.gr_frame
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("distlearn.comm", "distlearn.sim")):
        frame = frame.f_back
    if frame is None:
        return ""
    folder, _, name = frame.f_code.co_filename.replace("\\", "/").rpartition("/")
    in_cell = "ipykernel_" in folder or name.startswith("<ipython-input")  # of a notebook: such names say nothing
    where = "" if in_cell else f"{name}, "
    return f" ({where}line {frame.f_lineno}, in {frame.f_code.co_name})"
