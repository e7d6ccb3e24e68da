"""Collectives over MPI, and the comparison of the ranks' calls before one starts."""

from __future__ import annotations

import functools
import pickle
from collections import Counter

import numpy as np

from ...backend import rounded
from ...shares import shares
from ..base import CommError
from ..calls import Call, same_calls
from .messages import GuardedWork, MPIWork, as_bytes, empty, from_host, like, synchronized, to_host

# -- agreement ---------------------------------------------------------------------------------------------------------
# The check that all ranks make the same collective calls in the same order, with the same arguments.
#
# Every collective of a strict communicator starts two operations: its own and, on a separate communicator of the
# library, a small all-gather of the ranks' calls and their lines. The second one is the same on all ranks whatever the
# calls are, so it always ends; the result of the first is returned only when all calls have been found equal. A rank
# that ends takes part once more, with the call `RETURN`: so the others see that it makes no further calls.

CALL_BYTES, SITE_BYTES = 112, 80
RECORD_BYTES = CALL_BYTES + SITE_BYTES
RETURN = Call("return", ())


class Agreement:
    """One exchange of calls."""

    def __init__(self, raw, call: Call, number: int):
        self._call, self._number = call, number
        self._sent = _record(call)
        self._same = self._sent * raw.size
        self._records = bytearray(len(self._same))
        self._request = raw.Iallgather(self._sent, self._records)

    def __str__(self) -> str:
        return f"all ranks to call {self._call}"

    def done(self) -> bool:
        if not self._request.Test():
            return False
        if self._records != self._same:  # the lines may differ, the calls must not
            calls = [bytes(self._records[i : i + CALL_BYTES]) for i in range(0, len(self._records), RECORD_BYTES)]
            if any(call != calls[0] for call in calls):
                raise CommError(self._difference(calls))
        return True

    def _difference(self, calls: list[bytes]) -> str:
        usual = Counter(calls).most_common(1)[0][0]  # of equally many: that of the lowest rank
        odd = next(rank for rank, call in enumerate(calls) if call != usual)
        parts = [self._described(rank) for rank in (odd, calls.index(usual))]
        rule = same_calls(calls[odd].decode(errors="replace"), usual.decode(errors="replace"))
        return f"{parts[0]} where {parts[1]}: {rule} (this is number {self._number})"

    def _described(self, rank: int) -> str:
        record = self._records[rank * RECORD_BYTES : (rank + 1) * RECORD_BYTES]
        call, site = (part.decode(errors="replace").rstrip() for part in (record[:CALL_BYTES], record[CALL_BYTES:]))
        if call == str(RETURN):
            return f"rank {rank} has returned"
        return f"rank {rank} calls {call}" + (f" ({site})" if site else "")


@functools.lru_cache(maxsize=1024)
def _record(call: Call) -> bytes:
    """Format a call and its line in a fixed number of bytes; training makes the same calls in every step."""
    return _field(call, CALL_BYTES) + _field(call.site or "", SITE_BYTES)


def _field(value, length: int) -> bytes:
    return str(value).encode()[:length].ljust(length)


# -- collectives -------------------------------------------------------------------------------------------------------
# MPIComm's collective primitives.

OPS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
# What stands in for dtypes of two bytes: MPI has no float16, and integers wrap around to the same result. Sums of
# halves are exact in float64; that of two, rounded to float32 and then to half, is as if rounded once.
WIDER = {"e": np.float64, "h": np.int32, "H": np.uint32}
BOOL_OPS = {"sum": "LOR", "prod": "LAND", "min": "LAND", "max": "LOR"}  # as NumPy: + is "or", * is "and"


@functools.cache
def nan_propagating(op: str, dtype: np.dtype):
    """Make the MPI operator that reduces floats by NumPy's minimum or maximum."""
    # The result of MPI's own for NaN depends on the order of the operands, so ranks can end up with different results;
    # here NaN on any rank gives NaN on all. Nor is there an order of 0 and -0: all become 0.
    from mpi4py import MPI

    ufunc = {"min": np.minimum, "max": np.maximum}[op]

    def reduce(incoming, into, datatype):
        total = np.frombuffer(into, dtype)
        ufunc(np.frombuffer(incoming, dtype), total, out=total)
        total += 0.0  # of 0.0 and -0.0 either may be the larger, and ranks would differ by a bit

    return MPI.Op.Create(reduce, commute=True)


# Calls of one line of the program whose arrays are checked: a line that is wrong is wrong in its first calls, and a
# check takes two copies of the array and a comparison.
GUARDED = 100


class Collectives:
    """Collective operations of `MPIComm`."""

    def _started(self, call, nbytes, start, request, finish=None) -> MPIWork:
        """Make the handle of a collective that MPI has started, and start the comparison of all ranks' calls."""
        work = MPIWork(self, call.name, nbytes, start, request, finish, self.agreement(call))
        return work.started_at(call.site)

    def _operands(self, x, op):
        """Return the host array of `x`, the array that MPI reduces in place of it, and MPI's operator."""
        host = to_host(x)
        wider = np.float32 if host.dtype.char == "e" and self.size <= 2 else WIDER.get(host.dtype.char)
        wide = host if wider is None else synchronized(host.astype(wider))
        if wide.dtype.kind == "f" and op in ("min", "max"):
            return host, wide, nan_propagating(op, wide.dtype)
        return host, wide, getattr(self.mpi, (BOOL_OPS if x.dtype.kind == "b" else OPS)[op])

    def guarded(self, start, name: str, x, site, in_place: bool = False):
        """Start an operation on `x`; on a CPU, in the first calls of a line, on a copy, with which `wait` compares."""
        calls = self.activity.guarded
        calls[site] += 1
        if not self.strict or not isinstance(x, np.ndarray) or calls[site] > GUARDED:
            return start(x)
        before = self.copy(x)
        result = self.copy(x) if in_place else None
        return GuardedWork(start(result if in_place else before), name, x, before, result)

    def copy(self, x):
        """Copy an array into memory that earlier calls have used."""
        free = self.activity.copies[x.shape, x.dtype]
        made = free.pop() if free else np.empty_like(x)
        made[...] = x
        return made

    def _iall_reduce(self, call, x, op):
        start = functools.partial(self._start_all_reduce, call, op=op)
        return self.guarded(start, "iall_reduce", x, call.site, in_place=True)

    def _all_reduce(self, call, x, op):
        return self._start_all_reduce(call, x, op).wait()

    def _start_all_reduce(self, call, x, op):
        start = self.clock.now()
        host, wide, mpi_op = self._operands(x, op)
        request = self.reducing(wide.dtype).Iallreduce(self.mpi.IN_PLACE, wide, mpi_op)

        def finish():
            if wide is not host:
                host[...] = rounded(wide, host.dtype)
            return from_host(host, x)

        return self._started(call, x.nbytes, start, request, finish)

    def _ireduce_scatter(self, call, x, op):
        start = functools.partial(self._start_reduce_scatter, call, op=op)
        return self.guarded(start, "ireduce_scatter", x, call.site)

    def _reduce_scatter(self, call, x, op):
        return self._start_reduce_scatter(call, x, op).wait()

    def _start_reduce_scatter(self, call, x, op):
        start = self.clock.now()
        _, wide, mpi_op = self._operands(x, op)
        counts = [s.stop - s.start for s in shares(wide.size, self.size)]
        out = empty(counts[self.rank], wide.dtype, wide)
        request = self.reducing(wide.dtype).Ireduce_scatter(wide.reshape(-1), out, counts, mpi_op)
        # `wide` may be a copy without another reference, and MPI reads it until the operation is done
        return self._started(call, x.nbytes, start, request, lambda _=wide: like(rounded(out, x.dtype), x))

    def _iall_gather(self, call, x):
        return self.guarded(functools.partial(self._start_all_gather, call), "iall_gather", x, call.site)

    def _all_gather(self, call, x):
        return self._start_all_gather(call, x).wait()

    def _start_all_gather(self, call, x):
        start, host = self.clock.now(), to_host(x)
        out = empty((self.size, *x.shape), x.dtype, host)
        request = self.raw.Iallgather(as_bytes(host), as_bytes(out))
        return self._started(call, out.nbytes, start, request, lambda _=host: like(out, x))

    def _broadcast(self, call, x, root):
        start, host = self.clock.now(), to_host(x, load=self.rank == root)
        request = self.raw.Ibcast(as_bytes(host), root)
        finish = (lambda: x) if self.rank == root else (lambda: from_host(host, x))
        return self._started(call, x.nbytes, start, request, finish).wait()

    def _scatter(self, call, x, out, root):
        rows = None if x is None else as_bytes(to_host(x))
        start, host = self.clock.now(), to_host(out, load=False)
        request = self.raw.Iscatter(rows, as_bytes(host), root)
        return self._started(call, out.nbytes * self.size, start, request, lambda: from_host(host, out)).wait()

    def _gather(self, call, x, root):
        start, host = self.clock.now(), to_host(x)
        out = empty((self.size, *x.shape), x.dtype, host) if self.rank == root else None
        request = self.raw.Igather(as_bytes(host), None if out is None else as_bytes(out), root)
        finish = None if out is None else lambda: like(out, x)
        return self._started(call, x.nbytes * self.size, start, request, finish).wait()

    def _all_to_all(self, call, x):
        start, host = self.clock.now(), to_host(x)
        out = empty(x.shape, x.dtype, host)
        request = self.raw.Ialltoall(as_bytes(host), as_bytes(out))
        return self._started(call, x.nbytes, start, request, lambda: like(out, x)).wait()

    def _barrier(self, call):
        start = self.clock.now()
        self._started(call, 0, start, self.raw.Ibarrier()).wait()

    # the lengths of pickled objects travel first; calls are compared along with them
    def _broadcast_obj(self, call, obj, root):
        start = self.clock.now()
        data = bytearray(pickle.dumps(obj, protocol=5)) if self.rank == root else bytearray()
        length = np.array([len(data)])
        MPIWork(self, None, 8, start, self.raw.Ibcast(length, root), None, self.agreement(call)).wait()
        if self.rank != root:
            data = bytearray(int(length[0]))
        request = self.raw.Ibcast([data, self.mpi.BYTE], root)
        MPIWork(self, "broadcast_obj", len(data), start, request).wait()
        return pickle.loads(data)

    def _gather_obj(self, call, obj, root):
        start, data = self.clock.now(), pickle.dumps(obj, protocol=5)
        at_root = self.rank == root
        lengths = np.zeros(self.size, np.int64) if at_root else None
        request = self.raw.Igather(np.array([len(data)]), lengths, root)
        MPIWork(self, None, 8, start, request, None, self.agreement(call)).wait()
        into = bytearray(int(lengths.sum())) if at_root else None
        where = [into, (lengths, None), self.mpi.BYTE] if at_root else None
        request = self.raw.Igatherv([data, self.mpi.BYTE], where, root)
        MPIWork(self, "gather_obj", len(data), start, request).wait()
        if not at_root:
            return None
        ends = np.cumsum(lengths)
        return [pickle.loads(memoryview(into)[e - n : e]) for n, e in zip(lengths, ends, strict=True)]
