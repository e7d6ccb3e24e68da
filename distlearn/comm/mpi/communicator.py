"""MPIComm: the communicator of real processes, over mpi4py.

Every operation is one of MPI's non-blocking calls and a wait that polls (`waiting`), so a rank can be interrupted, can
time out, and leaves its core to others while it waits; from a megabyte on this is as fast as the blocking call.

Data moves as bytes, so any dtype can be sent. Only reductions know types. MPI has no half precision: float16 travels
and adds up as float64 (of two ranks as float32), exactly, and is rounded once at the end; so its messages are as long.
Arrays on a GPU pass through host memory, unless MPI can read GPU memory (`staging`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import time
import zlib
from itertools import count
from pathlib import Path

import numpy as np

from ... import need
from ...trace import Span
from ..base import CommError, CommTimeoutError, Communicator, ignore_report
from ..calls import N_TAGS, Call
from ..recorder import EXHAUSTED, TO_RETURN, Recorder
from ..waiting import CROWDED_SPIN_SECONDS, SPIN_SECONDS, RankClock, count_cores, poll
from .collectives import RETURN, Agreement, Collectives
from .messages import KINDS, Activity, Messages

# Bytes of an element reduced on a separate communicator if the calls are compared: MPICH ends the process when a
# reduction receives a message that holds no whole number of elements, before the comparison can raise. Elements of two
# bytes are reduced as more (`collectives`); one byte always fits.
REDUCED_APART = (4, 8, 16)


def world_comm():
    """Return mpi4py's COMM_WORLD; only this function and `MPIComm` use mpi4py."""
    return need("mpi4py.MPI", "mpi").COMM_WORLD


@functools.cache
def release_shared_memory_names() -> None:
    """Unlink the memory that ranks share, once all of them have mapped it.

    MPICH would do so at the very end, so a rank that is killed would leave megabytes in /dev/shm forever. The memory
    itself exists as long as a process has it mapped.
    """
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return
    for name in {line.split(None, 5)[-1] for line in lines if "/dev/shm/mpich_shm" in line}:
        with contextlib.suppress(OSError):  # another rank has removed it
            os.unlink(name)


class Exhaustion:
    """Says in words that MPI has no number left for one more communicator."""

    def __enter__(self):
        return self

    def __exit__(self, kind, error, tb):
        if hasattr(error, "Get_error_string"):
            ways = "the program keeps too many; what split returned is freed once no rank refers to it"
            raise CommError(f"{EXHAUSTED}: {ways}") from None


class MPIComm(Messages, Collectives, Communicator):
    """One rank of an MPI communicator, with the library's `Communicator` protocol."""

    def __init__(self, comm=None, clock=None, report=None, *, timeout=None, strict=True, activity=None):
        self.mpi = need("mpi4py.MPI", "mpi")
        self.raw = self.mpi.COMM_WORLD if comm is None else comm
        self.control, self._by_itemsize = None, {}
        self.rank, self.size = self.raw.Get_rank(), self.raw.Get_size()
        self.members, self.recorder = range(self.size), Recorder()
        self.clock = RankClock(self.rank) if clock is None else clock
        self.timeout, self.strict = timeout, strict
        self.activity = Activity() if activity is None else activity
        self.spin = CROWDED_SPIN_SECONDS
        if isinstance(self.clock, RankClock):
            self.clock.make_progress = self.activity.make_progress
        self._report = ignore_report if report is None or self.rank else report
        self._splits, self.name = count(), ()
        self.n_tags = min(N_TAGS, (self.mpi.COMM_WORLD.Get_attr(self.mpi.TAG_UB) + 1) // KINDS)

    @classmethod
    def begin(cls, raw, report=None, **options) -> MPIComm:
        """Make the communicator of a run: when it returns, all ranks have called it and their clocks are at 0."""
        # Ranks of one machine have the same origin of time, when the last one arrived; between machines it differs by
        # the time of a barrier.
        comm = cls(raw, report=report, **options)
        comm._make_control("all ranks to begin")
        node = zlib.crc32(platform.node().encode())
        arrivals = comm.all_gather(np.array([node, time.perf_counter()]))  # one clock for all processes of a machine
        neighbours = int((arrivals[:, 0] == node).sum())
        comm.spin = SPIN_SECONDS if neighbours <= count_cores() else CROWDED_SPIN_SECONDS
        if neighbours == comm.size:
            zero = float(arrivals[:, 1].max())
        else:
            comm.barrier()
            zero = time.perf_counter()
        release_shared_memory_names()
        comm.clock.start_at(zero)
        comm.clock.trace.spans.clear()
        return comm

    def _make_control(self, what: str) -> None:
        """Duplicate the MPI communicator, so that the library's messages never match the user's."""
        sizes = REDUCED_APART if self.strict and self.size > 1 else ()
        with Exhaustion():
            copies, requests = zip(*(self.raw.Idup() for _ in ("control", *sizes)), strict=True)
            self.block(lambda: self.mpi.Request.Testall(requests), what)
        self.control, *apart = copies
        self._by_itemsize = dict(zip(sizes, apart, strict=True))

    def reducing(self, dtype):
        """Return the MPI communicator on which arrays of this dtype are reduced."""
        return self._by_itemsize.get(dtype.itemsize, self.raw)

    def _free(self) -> None:
        """Free all but the MPI communicator that this one was made from; all ranks must call, in the same order."""
        for raw in (self.control, *self._by_itemsize.values(), *((self.raw,) if self.name else ())):
            if raw is not None:
                raw.Free()
        self.control, self._by_itemsize = None, {}

    def agreement(self, call: Call) -> Agreement | None:
        """Start to compare a collective call with those of the other ranks, if the communicator is strict."""
        if not self.strict or self.size == 1:
            return None
        if self.control is None:
            self._make_control(f"all ranks to call {call}")
        return Agreement(self.control, call, self.recorder.numbers[self.members] + (call is RETURN))

    def end(self) -> None:
        for work in self.activity.unwaited:
            raise CommError(f"rank {self.rank}: {work} was started and never waited for ({work.site})")
        if self.strict and self.size > 1:
            left = [comm.agreement(RETURN) for comm in (self, *self.activity.kept()) if comm.size > 1]

            def returned():
                left[:] = [agreement for agreement in left if not agreement.done()]
                return not left
        else:
            if self.control is None:
                self._make_control(TO_RETURN)
            returned = self.control.Ibarrier().Test
        self.block(returned, TO_RETURN)
        everything = (self, *self.activity.kept())
        lost = [text for comm in everything if (text := comm.unreceived())]
        for comm in everything:
            comm._free()
        if lost:
            raise CommError(f"rank {self.rank} never received {lost[0]}")

    # -- waiting and recording -----------------------------------------------------------------------------------------
    def block(self, done, what, nbytes: int = 0) -> None:
        activity, on_nap = self.activity, None
        activity.waits_for = what
        if activity.on_stall is not None:
            on_nap = functools.partial(activity.on_stall, what, nbytes)
        if not poll(done, nbytes, self.timeout, self.spin, on_nap):
            raise CommTimeoutError(f"rank {self.rank}: waited {self.timeout:g} s for {what}")
        activity.waits_for = None
        if on_nap is not None:
            activity.on_stall(None, 0, 0.0)

    def record(self, name: str, start: float, nbytes: int) -> None:
        clock = self.clock
        clock.trace.spans.append(Span(clock.rank, "comm", name, start, clock.now(), 0, nbytes))

    def _split(self, call, color, key):
        mine = color, key, self.activity.unused(self.members)
        shared = self._broadcast_obj(call, self._gather_obj(call, mine, 0), 0)
        self.activity.free(name for *_, names in shared for name in names)
        pairs, n = [(c, k) for c, k, _ in shared], next(self._splits)
        colors = sorted({c for c, _ in pairs if c is not None})
        number = self.mpi.UNDEFINED if color is None else colors.index(color)
        with Exhaustion():
            raw = self.raw.Split(number, sorted((k, r) for r, (_, k) in enumerate(pairs)).index((key, self.rank)))
        if color is None:
            return None
        part = MPIComm(raw, self.clock, timeout=self.timeout, strict=self.strict, activity=self.activity)
        part.spin, part.recorder, part.name = self.spin, self.recorder, (*self.name, n, number)
        part.members = tuple(self.members[r] for k, r in sorted((k, r) for r, (c, k) in enumerate(pairs) if c == color))
        part._report = self._report  # rank 0 of the world reports, whatever its rank here
        if self.strict:
            part._make_control("all ranks of the part to split")
        self.activity.keep(part)
        return part
