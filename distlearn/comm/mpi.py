"""MPIComm: the communicator of real processes, over mpi4py.

Every operation is one of MPI's non-blocking calls and a wait that polls (`waiting`), so a rank can be interrupted, can
time out, and leaves its core to others while it waits; from a megabyte on that costs nothing against the blocking call.

Data moves as bytes, so any dtype can be sent. Only reductions know types. MPI has no half precision: float16 travels
and adds up as float32 and is rounded once at the end, so its messages are as long as float32's. Arrays on a GPU pass
through host memory (`staging`).
"""

from __future__ import annotations

import pickle
import platform
import time
import zlib

import numpy as np

from ..trace import Span
from .collectives import shares
from .mpi_work import Activity, MPIWork, RecvWork, SendWork
from .protocol import (
    ANY,
    CommError,
    CommTimeoutError,
    check_buffer,
    check_op,
    check_output,
    check_peer,
    check_root,
    check_rows,
    ignore_report,
)
from .staging import as_bytes, from_host, like, to_host
from .waiting import RankClock, poll


def world_comm():
    """Return mpi4py's COMM_WORLD; the one place, with `MPIComm`, that knows of mpi4py."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


class MPIComm:
    """One rank of an MPI communicator, with the library's `Communicator` protocol.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        COMM_WORLD by default. Nothing else should communicate on it: give a `Dup()`.
    clock : WallClock, optional
        Second 0 is now, by default.
    report : callable, optional
        Gets rank 0's `comm.report(step, total, **values)`.
    timeout : float, optional
        Longest time to wait in any one call [s]; then `CommTimeoutError` names what was waited for.
    strict : bool
        For finding mistakes. Sends wait until they are received, as on the simulator, so that code which relies on
        buffering hangs at any message size; and every collective first compares the calls of all ranks (one small
        message more), so that different calls, sizes or dtypes raise instead of hanging or mixing data up.

    Attributes
    ----------
    raw : mpi4py.MPI.Intracomm
        The MPI communicator underneath.
    """

    def __init__(self, comm=None, clock=None, report=None, *, timeout=None, strict=False, activity=None):
        from mpi4py import MPI

        self.mpi = MPI
        self.raw = MPI.COMM_WORLD if comm is None else comm
        self.rank, self.size = self.raw.Get_rank(), self.raw.Get_size()
        self.clock = RankClock(self.rank) if clock is None else clock
        self.timeout, self.strict = timeout, strict
        self.activity = Activity() if activity is None else activity
        if isinstance(self.clock, RankClock):
            self.clock.poke = self.activity.poke
        self._report = ignore_report if report is None or self.rank else report
        self._object_tags = (self.raw.Get_attr(MPI.TAG_UB) + 1) // 2  # from here on: messages that hold pickled objects

    @classmethod
    def begin(cls, raw, report=None, **options) -> MPIComm:
        """Make the communicator of a run: when it returns, all ranks are there and their clocks stand at 0.

        Ranks of one machine have the same second 0, at which the last one came; between machines it differs by what a
        barrier takes.
        """
        comm = cls(raw, report=report, **options)
        node = zlib.crc32(platform.node().encode())
        came = comm.all_gather(np.array([node, time.perf_counter()]))  # one clock for all processes of a machine
        if (came[:, 0] == node).all():
            zero = float(came[:, 1].max())
        else:
            comm.barrier()
            zero = time.perf_counter()
        comm.clock.start_at(zero)
        comm.clock.trace.spans.clear()
        return comm

    def end(self) -> None:
        """Wait until all ranks have ended, and raise if a message was left lying.

        Raises
        ------
        CommError
            If a message was sent to this rank that it never received.
        """
        spans = len(self.clock.trace.spans)
        self.barrier()
        del self.clock.trace.spans[spans:]
        status = self.mpi.Status()
        if self.raw.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status):
            nbytes, tag = status.Get_count(self.mpi.BYTE), status.Get_tag() % self._object_tags
            message = f"the message of {nbytes} bytes from rank {status.Get_source()}, tag {tag}"
            raise CommError(f"rank {self.rank} never received {message}")

    def __repr__(self) -> str:
        return f"MPIComm(rank {self.rank} of {self.size})"

    def report(self, step, total, **values):
        """Hand rank 0's progress on."""
        self._report(step, total, **values)

    # -- waiting and recording ---------------------------------------------------------------------------------------
    def block(self, done, what, nbytes: int = 0) -> None:
        """Wait until `done()`; `what`, when printed, says what for."""
        self.activity.waits_for = what
        if not poll(done, nbytes, self.timeout):
            raise CommTimeoutError(f"rank {self.rank}: waited {self.timeout:g} s for {what}")
        self.activity.waits_for = None

    def record(self, name: str, start: float, nbytes: int) -> None:
        """Add a span that ends now to the trace."""
        clock = self.clock
        clock.trace.spans.append(Span(clock.rank, "comm", name, start, clock.now(), 0, nbytes))

    def _tag(self, tag) -> int:
        if not isinstance(tag, (int, np.integer)) or not 0 <= tag < self._object_tags:
            raise ValueError(
                f"rank {self.rank}: tag={tag!r}, expected a whole number from 0 to {self._object_tags - 1}"
            )
        return int(tag)

    def _agree(self, call: str) -> None:
        """Raise unless every rank makes the same collective call (in strict mode; else trust them)."""
        if not self.strict or self.size == 1:
            return
        calls = np.zeros((self.size, 120), np.uint8)
        mine = np.frombuffer(call.encode()[:120].ljust(120), np.uint8)
        request = self.raw.Iallgather(mine, calls)
        self.block(request.Test, f"all ranks to call {call}")
        texts = [bytes(c).decode(errors="replace").rstrip() for c in calls]
        for rank, text in enumerate(texts):
            if text != texts[0]:
                raise CommError(
                    f"rank {rank} calls {text} where rank 0 calls {texts[0]}: every rank must make the same collective "
                    "calls in the same order"
                )

    # -- between two ranks -------------------------------------------------------------------------------------------
    def _isend(self, x, dest, tag, name) -> MPIWork:
        check_peer("dest", dest, self.rank, self.size)
        check_buffer("send", x, self.rank)
        start = self.clock.now()
        isend = self.raw.Issend if self.strict else self.raw.Isend
        request = isend(as_bytes(to_host(x)), dest, self._tag(tag))
        return SendWork(self, name, x.nbytes, start, request, dest, tag)

    def _irecv(self, out, source, tag, name) -> MPIWork:
        check_peer("source", source, self.rank, self.size)
        check_output("recv", out, self.rank)
        start, host = self.clock.now(), to_host(out, load=False)
        request = self.raw.Irecv(as_bytes(host), source, self._tag(tag))
        return RecvWork(self, name, start, request, out, lambda: from_host(host, out), source, tag)

    def isend(self, x, dest, tag=0):
        """Start a send; do not touch `x` before `wait`."""
        return self._isend(x, dest, tag, "send")

    def send(self, x, dest, tag=0):
        """Send; small messages may be buffered, so that it returns before they are received (unless `strict`)."""
        self._isend(x, dest, tag, "send").wait()

    def irecv(self, out, source, tag=0):
        """Start a receive; `out` is valid after `wait`."""
        return self._irecv(out, source, tag, "recv")

    def recv(self, out, source, tag=0):
        """Receive into `out` a message of exactly its size (MPI knows bytes, not dtypes); return `out`."""
        return self._irecv(out, source, tag, "recv").wait()

    def send_recv(self, x, dest, out, source, tag=0):
        """Send and receive at once; return `out`."""
        check_peer("dest", dest, self.rank, self.size)
        check_buffer("send", x, self.rank)  # before the receive is posted, which could not be taken back
        received = self._irecv(out, source, tag, "send_recv")
        sent = self._isend(x, dest, tag, None)
        received.wait()
        sent.wait()
        return out

    def send_obj(self, obj, dest, tag=0):
        """Send a pickled object."""
        check_peer("dest", dest, self.rank, self.size)
        start, data = self.clock.now(), pickle.dumps(obj, protocol=5)
        isend = self.raw.Issend if self.strict else self.raw.Isend
        request = isend([data, self.mpi.BYTE], dest, self._tag(tag) + self._object_tags)
        SendWork(self, "send_obj", len(data), start, request, dest, tag).wait()

    def recv_obj(self, source=ANY, tag=0):
        """Receive the object from `source`, or the first that is there from anyone."""
        if source != ANY:
            check_peer("source", source, self.rank, self.size)
        start, found, tag = self.clock.now(), [], self._tag(tag)
        who = self.mpi.ANY_SOURCE if source == ANY else source
        status = self.mpi.Status()

        def arrived():
            message = self.raw.Improbe(who, tag + self._object_tags, status)
            if message is not None:
                found.append(message)
            return message is not None

        self.block(arrived, f"recv_obj(source={'anyone' if source == ANY else source}, tag={tag})")
        data = bytearray(status.Get_count(self.mpi.BYTE))
        request = found[0].Irecv([data, self.mpi.BYTE])
        MPIWork(self, "recv_obj", len(data), start, request).wait()
        return pickle.loads(data)

    # -- all ranks ---------------------------------------------------------------------------------------------------
    def _reduction(self, call, x, op):
        """Return what MPI reduces in place of the host array `x`, and MPI's name for `op`."""
        kind, mpi = x.dtype.kind, self.mpi
        if kind not in "iufcb" or not x.dtype.isnative or (kind == "c" and op in ("min", "max")):
            raise TypeError(f"rank {self.rank}: {call} cannot form the {op} of arrays of dtype {x.dtype.str}")
        names = {"sum": mpi.SUM, "prod": mpi.PROD, "min": mpi.MIN, "max": mpi.MAX}
        if kind == "b":  # as NumPy: + is "or", * is "and"
            names = {"sum": mpi.LOR, "prod": mpi.LAND, "min": mpi.LAND, "max": mpi.LOR}
        return x.astype(np.float32) if x.dtype == np.float16 else x, names[op]

    def iall_reduce(self, x, op="sum"):
        """Start an all-reduce, in place; do not touch `x` before `wait`."""
        check_op(op, self.rank)
        check_output("all_reduce", x, self.rank)
        self._agree(f"all_reduce(op={op!r}, {x.shape}, {x.dtype})")
        start = self.clock.now()
        host = to_host(x)
        wide, mpi_op = self._reduction("all_reduce", host, op)
        request = self.raw.Iallreduce(self.mpi.IN_PLACE, wide, mpi_op)

        def finish():
            if wide is not host:
                host[...] = wide
            return from_host(host, x)

        return MPIWork(self, "all_reduce", x.nbytes, start, request, finish)

    def all_reduce(self, x, op="sum"):
        """Replace `x` on every rank by its reduction; return it."""
        return self.iall_reduce(x, op).wait()

    def reduce_scatter(self, x, op="sum"):
        """Reduce the flat array `x`; return this rank's share."""
        check_op(op, self.rank)
        check_buffer("reduce_scatter", x, self.rank)
        self._agree(f"reduce_scatter(op={op!r}, {x.shape}, {x.dtype})")
        start = self.clock.now()
        wide, mpi_op = self._reduction("reduce_scatter", to_host(x), op)
        counts = [s.stop - s.start for s in shares(wide.size, self.size)]
        out = np.empty(counts[self.rank], wide.dtype)
        request = self.raw.Ireduce_scatter(wide.reshape(-1), out, counts, mpi_op)
        finish = lambda: like(out.astype(x.dtype, copy=False), x)  # noqa: E731
        return MPIWork(self, "reduce_scatter", x.nbytes, start, request, finish).wait()

    def all_gather(self, x):
        """Return everyone's `x`, stacked."""
        check_buffer("all_gather", x, self.rank)
        self._agree(f"all_gather({x.shape}, {x.dtype})")
        start, host = self.clock.now(), to_host(x)
        out = np.empty((self.size, *x.shape), x.dtype)
        request = self.raw.Iallgather(as_bytes(host), as_bytes(out))
        return MPIWork(self, "all_gather", out.nbytes, start, request, lambda: like(out, x)).wait()

    def broadcast(self, x, root=0):
        """Replace `x` by the root's; return it."""
        check_root(root, self.rank, self.size)
        (check_buffer if self.rank == root else check_output)("broadcast", x, self.rank)
        self._agree(f"broadcast(root={root}, {x.shape}, {x.dtype})")
        start, host = self.clock.now(), to_host(x, load=self.rank == root)
        request = self.raw.Ibcast(as_bytes(host), root)
        finish = (lambda: x) if self.rank == root else (lambda: from_host(host, x))
        return MPIWork(self, "broadcast", x.nbytes, start, request, finish).wait()

    def scatter(self, x, out, root=0):
        """Deal the rows of the root's `x`, one to each rank, into `out`; return it."""
        check_root(root, self.rank, self.size)
        check_output("scatter", out, self.rank)
        rows = None
        if self.rank == root:
            check_rows("scatter", x, self.rank, self.size)
            if x.shape[1:] != out.shape or x.dtype != out.dtype:
                rows = f"rows of shape {x.shape[1:]} {x.dtype} into {out.shape} {out.dtype}"
                raise ValueError(f"rank {self.rank}: scatter deals {rows}")
            rows = as_bytes(to_host(x))
        self._agree(f"scatter(root={root}, {out.shape}, {out.dtype})")
        start, host = self.clock.now(), to_host(out, load=False)
        request = self.raw.Iscatter(rows, as_bytes(host), root)
        return MPIWork(self, "scatter", out.nbytes * self.size, start, request, lambda: from_host(host, out)).wait()

    def gather(self, x, root=0):
        """Return everyone's `x`, stacked, on the root."""
        check_root(root, self.rank, self.size)
        check_buffer("gather", x, self.rank)
        self._agree(f"gather(root={root}, {x.shape}, {x.dtype})")
        start, host = self.clock.now(), to_host(x)
        out = np.empty((self.size, *x.shape), x.dtype) if self.rank == root else None
        request = self.raw.Igather(as_bytes(host), None if out is None else as_bytes(out), root)
        finish = None if out is None else lambda: like(out, x)
        return MPIWork(self, "gather", x.nbytes * self.size, start, request, finish).wait()

    def all_to_all(self, x):
        """Send row j to rank j; return the rows received, by source."""
        check_rows("all_to_all", x, self.rank, self.size)
        self._agree(f"all_to_all({x.shape}, {x.dtype})")
        start, host = self.clock.now(), to_host(x)
        out = np.empty(x.shape, x.dtype)
        request = self.raw.Ialltoall(as_bytes(host), as_bytes(out))
        return MPIWork(self, "all_to_all", x.nbytes, start, request, lambda: like(out, x)).wait()

    def barrier(self):
        """Wait until every rank is here."""
        self._agree("barrier()")
        MPIWork(self, "barrier", 0, self.clock.now(), self.raw.Ibarrier()).wait()

    def broadcast_obj(self, obj, root=0):
        """Return the root's object on every rank."""
        check_root(root, self.rank, self.size)
        self._agree(f"broadcast_obj(root={root})")
        start = self.clock.now()
        data = bytearray(pickle.dumps(obj, protocol=5)) if self.rank == root else bytearray()
        length = np.array([len(data)])
        MPIWork(self, None, 8, start, self.raw.Ibcast(length, root)).wait()
        if self.rank != root:
            data = bytearray(int(length[0]))
        request = self.raw.Ibcast([data, self.mpi.BYTE], root)
        MPIWork(self, "broadcast_obj", len(data), start, request).wait()
        return pickle.loads(data)

    def gather_obj(self, obj, root=0):
        """Return everyone's object, by rank, on the root."""
        check_root(root, self.rank, self.size)
        self._agree(f"gather_obj(root={root})")
        start, data = self.clock.now(), pickle.dumps(obj, protocol=5)
        at_root = self.rank == root
        lengths = np.zeros(self.size, np.int64) if at_root else None
        MPIWork(self, None, 8, start, self.raw.Igather(np.array([len(data)]), lengths, root)).wait()
        into = bytearray(int(lengths.sum())) if at_root else None
        where = [into, (lengths, None), self.mpi.BYTE] if at_root else None
        request = self.raw.Igatherv([data, self.mpi.BYTE], where, root)
        MPIWork(self, "gather_obj", len(data), start, request).wait()
        if not at_root:
            return None
        ends = np.cumsum(lengths)
        return [pickle.loads(memoryview(into)[e - n : e]) for n, e in zip(lengths, ends, strict=True)]

    def split(self, color, key=0):
        """Return the communicator of the ranks that gave the same `color`, or None for color None."""
        pairs = self.broadcast_obj(self.gather_obj((color, key)))
        colors = sorted({c for c, _ in pairs if c is not None})
        number = self.mpi.UNDEFINED if color is None else colors.index(color)
        raw = self.raw.Split(number, sorted((k, r) for r, (_, k) in enumerate(pairs)).index((key, self.rank)))
        if color is None:
            return None
        part = MPIComm(raw, self.clock, timeout=self.timeout, strict=self.strict, activity=self.activity)
        part._report = self._report  # the bar belongs to rank 0 of the world, whatever its rank here
        return part
