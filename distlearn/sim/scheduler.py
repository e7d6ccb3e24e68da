"""The simulator's scheduler: one fibre runs at a time, the one with the earliest virtual clock first.

Every rank is a greenlet, so a rank's code is plain blocking Python and a switch costs about a microsecond. One rank
runs at a time, until it blocks; then the ready rank with the smallest (time, rank) runs. A blocked rank is made ready
by `wake`, at the time at which what it waits for will have happened. Nothing else decides the order, so two runs of the
same program are identical, bit for bit.

The greenlet that called `run` is the hub: it starts ranks, and gets control back when one ends or when none is ready.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right, insort
from collections.abc import Callable
from contextvars import copy_context
from heapq import heappop, heappush
from types import TracebackType
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from ..comm.base import CommError, DeadlockError, RankError
from ..comm.calls import OWN, call_site


class BlockReason:
    """The reason why a fibre is blocked, in words, where it is not an event of the transport."""

    def __init__(self, text: str):
        self._text = text

    def waiting(self, fibre) -> str:
        return self._text


class NetworkCard:
    """A rank's network card, which sends one message after another."""

    def __init__(self):
        self.free, self.users = 0.0, 0


class Fibre:
    """One thread of control and its virtual clock: a rank's own, or one that runs a collective for it."""

    def __init__(self, rank: int, order: int):
        self.rank, self.order = rank, order
        self.now = 0.0
        self.nic = NetworkCard()
        self.timeline = CommTimeline()  # when the rank is busy with collectives
        self.waits = self.call = self.failures = self.result = None
        self.ticket = 0  # number of its newest entry in the queue; older ones are ignored
        self.seconds_run = 0.0  # wall time it has really run, for the compute model "Measured"
        self.since = 0.0
        self.task: Callable[[Fibre], None] | None = None  # the function that a helper fibre runs
        self.greenlet: greenlet | None = None
        self.switch = None  # the greenlet's bound method `switch`, looked up once


_ITS_TURN = BlockReason("its turn")
_A_TASK = BlockReason("a task")


class Scheduler:
    """Runs fibres in the order of their virtual clocks."""

    def __init__(self, size: int, measures: bool = False):
        self.fibres = [Fibre(rank, rank) for rank in range(size)]
        self.monitor: Callable[[Fibre], None] | None = None
        self._helper_orders = itertools.count(size + 1)
        self._fibre_of: dict[greenlet, Fibre] = {}
        self._idle: list[Fibre] = []
        self._to_start: list[Fibre] = []
        self._ready: list[tuple[float, int, int, Fibre]] = []  # a heap of (time, order, ticket, fibre)
        self._measures = measures
        self._stopping = False
        self._failure: tuple[int, BaseException] | None = None
        # after a run, by rank that did not end: the event it waits for, its description, and the user's line
        self.pending: dict[int, tuple[object, str, object]] = {}
        self._hub = Fibre(size, size)  # never woken: it runs when no fibre is ready
        self._hub.greenlet = getcurrent()

    def run(self, main: Callable[[Fibre], object]) -> list[Any]:
        """Run `main(fibre)` on every fibre to its end; return the results by rank."""
        # The first exception unwinds all other fibres and surfaces as `RankError` (`KeyboardInterrupt` as itself).
        __tracebackhide__ = True  # an error shows the program of the ranks, not what runs them
        for fibre in self.fibres:
            self._start(fibre, main)
        if self.monitor is not None:
            self._start(Fibre(len(self.fibres), len(self.fibres)), self.monitor)
        try:
            while (self._ready or self._to_start or not self.is_stuck()) and not self._failure:
                while self._to_start:
                    helper = self._to_start.pop()
                    self._start(helper, self._help)
                self.block(self._hub, _ITS_TURN)
            stuck = [f for f in self.fibres if not f.greenlet.dead]
            if stuck and not self._failure:
                raise DeadlockError(describe_deadlock(self.fibres)).with_traceback(_where_it_waits(stuck[0]))
        finally:
            waiting = [f for f in self.fibres if not f.greenlet.dead and f.waits is not None]  # after a failure, too
            self.pending = {f.rank: (f.call or f.waits, (f.call or f.waits).waiting(f), _line_of(f)) for f in waiting}
            self._unwind()
        if self._failure:
            rank, error = self._failure
            if isinstance(error, KeyboardInterrupt):  # usually Ctrl-C, whichever rank was running
                error.add_note(f"rank {rank} was running")
                raise error
            text = str(error).removeprefix(f"rank {rank}: ")
            shown = RankError(rank, f"{type(error).__name__}: {text}", original=error)
            raise shown.with_traceback(error.__traceback__) from None  # one traceback, that of the rank's program
        return [f.result for f in self.fibres]

    @property
    def waiting(self) -> dict[int, str]:
        return {rank: text for rank, (_, text, _) in self.pending.items()}

    def running_rank(self) -> int | None:
        """Return the rank that runs now, or whose greenlet does; None for the hub and a single rank."""
        if len(self.fibres) == 1:
            return None
        running = getcurrent()
        while running is not None and running not in self._fibre_of:
            running = running.parent
        return None if running is None else self._fibre_of[running].rank

    def is_stuck(self) -> bool:
        """Say whether no fibre will ever be ready again, now that none is; a subclass may wake one instead."""
        return True

    def _start(self, fibre: Fibre, main) -> None:
        """Make a fibre's greenlet, ready at the fibre's time."""
        hub = self._hub.greenlet

        def body():
            __tracebackhide__ = True
            try:
                hub.switch()  # a greenlet inherits its starter's stack depth: start here, not in another fibre
                fibre.since = time.perf_counter()
                fibre.result = main(fibre)
            except GreenletExit:
                pass
            except BaseException as error:  # the hub raises it again, with the rank
                self._failure = self._failure or (fibre.rank, error)

        fibre.greenlet = greenlet(body, parent=hub)
        fibre.switch = fibre.greenlet.switch
        self._fibre_of[fibre.greenlet] = fibre
        fibre.greenlet.gr_context = copy_context()  # so that `with np.errstate(...)` around a run holds in it
        fibre.greenlet.switch()
        self.wake(fibre, fibre.now)

    def spawn(self, owner: Fibre, task: Callable[[Fibre], None]) -> None:
        """Run `task(fibre)` from now on, on its own fibre that shares the rank and the network card of `owner`."""
        if self._idle:
            helper = self._idle.pop()
        else:
            helper = Fibre(0, next(self._helper_orders))
        helper.rank, helper.now, helper.nic, helper.task = owner.rank, owner.now, owner.nic, task
        owner.nic.users += 1
        if helper.greenlet is not None:
            self.wake(helper, owner.now)
            return
        self._to_start.append(helper)
        self.wake(owner, owner.now)
        if self._measures:
            owner.seconds_run += time.perf_counter() - owner.since
        self._hub.greenlet.switch()  # the hub starts it and continues with the next ready fibre
        owner.since = time.perf_counter()

    def _help(self, fibre: Fibre) -> None:
        while True:
            fibre.task(fibre)
            fibre.nic.users -= 1
            fibre.task = fibre.call = None
            self._idle.append(fibre)
            self.block(fibre, _A_TASK)

    def wake(self, fibre: Fibre, when: float) -> None:
        """Make a fibre ready at `when`; the newest call counts."""
        fibre.ticket = ticket = fibre.ticket + 1
        heappush(self._ready, (when, fibre.order, ticket, fibre))

    def block(self, fibre: Fibre, event) -> None:
        """Switch to other fibres until `fibre` is woken; its clock is then at the time it was woken for."""
        if self._stopping:
            check_caller(fibre)
            raise GreenletExit
        fibre.waits = event
        if self._measures:
            fibre.seconds_run += time.perf_counter() - fibre.since
        while self._ready:
            when, _, ticket, following = heappop(self._ready)
            if ticket == following.ticket:
                if when > following.now:
                    following.now = when
                if following is not fibre:
                    following.switch()
                break
        else:
            self._hub.greenlet.switch()  # no fibre is ready: the hub reports the deadlock and unwinds this one
        if self._measures:
            fibre.since = time.perf_counter()
        fibre.waits = None
        if fibre.failures is not None:
            fibre.failures.apply(fibre)

    def yield_until(self, fibre: Fibre, when: float) -> None:
        """Let every fibre whose clock is before `when` run first."""
        self.wake(fibre, when)
        self.block(fibre, _ITS_TURN)

    def _unwind(self) -> None:
        self._stopping = True
        for started in list(self._fibre_of):
            for _ in range(100):  # code that swallows GreenletExit gets it again
                if started.dead:
                    break
                started.throw(GreenletExit)


def check_caller(fibre: Fibre) -> None:
    """Raise unless the code that runs is that of a fibre: not another thread's, another world's, or after the run."""
    if fibre.greenlet is not getcurrent():
        ended = "after the run has ended" if fibre.greenlet.dead else "by another thread, rank or world"
        raise CommError(f"rank {fibre.rank}: its communicator is used {ended}; only its own function may use it")


def _where_it_waits(fibre: Fibre) -> TracebackType | None:
    """Return a traceback that ends at the line of the rank's program that waits."""
    frame, found = fibre.greenlet.gr_frame, None
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(OWN):
            found = TracebackType(found, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return found


NAMED = 8
"""Number of ranks that the report of a deadlock names."""


def describe_deadlock(fibres: list[Fibre]) -> str:
    """Describe the call in which every rank waits, with its line in the user's code."""
    stuck = [f for f in fibres if not f.greenlet.dead]
    lines = []
    for f in stuck[:NAMED]:
        where = f" ({site})" if (site := _line_of(f)) else ""
        lines.append(f"rank {f.rank} waits for {(f.call or f.waits).waiting(f)}{where}")
    if len(stuck) > NAMED:
        lines.append(f"and {len(stuck) - NAMED} more ranks wait")
    ended = [str(f.rank) for f in fibres if f.greenlet.dead]
    if ended:
        named = ", ".join(ended[:NAMED]) + (", ..." if len(ended) > NAMED else "")
        lines.append(f"rank{'s' * (len(ended) > 1)} {named} returned already")
    return "deadlock: " + "; ".join(lines)


def _line_of(fibre: Fibre):
    frame = fibre.greenlet.gr_frame
    return frame and (call_site(frame, "distlearn.") or call_site(frame))  # a strategy's line helps nobody who uses it


# -- when ranks are busy with collectives ------------------------------------------------------------------------------


class CommTimeline:
    """Intervals of time in which a rank is busy with collectives."""

    # A collective is placed when its last rank has joined it, which on the simulator can come after a later one has
    # been placed: ranks run ahead of each other in virtual time. So there can be a free interval before existing ones.

    def __init__(self):
        self._busy: list[tuple[float, float]] = []  # disjoint, in order

    def next_free(self, start: float, seconds: float) -> float:
        """Return the first time, not before `start`, at which the rank is free for `seconds`."""
        i = bisect_right(self._busy, (start, float("inf"))) - 1
        for low, high in self._busy[max(i, 0) :]:
            if low >= start + seconds:
                break
            if high > start:
                start = high
        return start

    def last_end(self, moment: float) -> float:
        """Return the end of the last interval that begins before a given time; 0 if there is none."""
        i = bisect_right(self._busy, (moment,)) - 1
        return self._busy[i][1] if i >= 0 else 0.0

    def take(self, start: float, end: float) -> None:
        """Note that the rank is busy from `start` to `end`."""
        if not end > start:
            return
        i = bisect_right(self._busy, (start, float("inf")))
        if i and self._busy[i - 1][1] == start:
            start = self._busy.pop(i - 1)[0]
        insort(self._busy, (start, end))


def first_common(timelines, start: float, seconds: float) -> float:
    """Return the first time, not before `start`, at which all timelines are free for `seconds`."""
    while True:
        moved = start
        for timeline in timelines:
            moved = timeline.next_free(moved, seconds)
        if moved == start:
            return start
        start = moved
