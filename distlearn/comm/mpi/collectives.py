"""MPIComm's collective primitives."""

from __future__ import annotations

import functools
import pickle

import numpy as np

from ...shares import shares
from .staging import as_bytes, empty, from_host, like, synchronized, to_host
from .work import GuardedWork, MPIWork

OPS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
WIDER = {"e": np.float32, "h": np.int32, "H": np.uint32}
"""What stands in for dtypes of two bytes: MPI has no float16, and integers wrap around to the same result."""
BOOL_OPS = {"sum": "LOR", "prod": "LAND", "min": "LAND", "max": "LOR"}  # as NumPy: + is "or", * is "and"


@functools.cache
def nan_propagating(op: str, dtype: np.dtype):
    """Make the MPI operator that reduces floats by NumPy's minimum or maximum.

    The result of MPI's own for NaN depends on the order of the operands, so ranks can end up with different results;
    here NaN on any rank gives NaN on all.
    """
    from mpi4py import MPI

    ufunc = {"min": np.minimum, "max": np.maximum}[op]

    def reduce(incoming, into, datatype):
        total = np.frombuffer(into, dtype)
        ufunc(np.frombuffer(incoming, dtype), total, out=total)

    return MPI.Op.Create(reduce, commute=True)


class Collectives:
    """Collective operations of `MPIComm`."""

    def _started(self, call, nbytes, start, request, finish=None) -> MPIWork:
        """Make the handle of a collective that MPI has started, and start the comparison of all ranks' calls."""
        work = MPIWork(self, call.name, nbytes, start, request, finish, self.agreement(call))
        return work.started_at(call.site)

    def _operands(self, x, op):
        """Return the host array of `x`, the array that MPI reduces in place of it, and MPI's operator."""
        host = to_host(x)
        wide = synchronized(host.astype(WIDER[host.dtype.char])) if host.dtype.char in WIDER else host
        if wide.dtype.kind == "f" and op in ("min", "max"):
            return host, wide, nan_propagating(op, wide.dtype)
        return host, wide, getattr(self.mpi, (BOOL_OPS if x.dtype.kind == "b" else OPS)[op])

    def guards(self, x) -> bool:
        """Say whether `wait` checks that a non-blocking call's array has not changed: not for those on a GPU."""
        return self.strict and isinstance(x, np.ndarray)

    def copy(self, x):
        """Copy an array into memory that earlier calls have used."""
        free = self.activity.copies[x.shape, x.dtype]
        made = free.pop() if free else np.empty_like(x)
        made[...] = x
        return made

    def _iall_reduce(self, call, x, op):
        if not self.guards(x):
            return self._start_all_reduce(call, x, op)
        before, mine = self.copy(x), self.copy(x)
        return GuardedWork(self._start_all_reduce(call, mine, op), "iall_reduce", x, before, mine)

    def _all_reduce(self, call, x, op):
        return self._start_all_reduce(call, x, op).wait()

    def _start_all_reduce(self, call, x, op):
        start = self.clock.now()
        host, wide, mpi_op = self._operands(x, op)
        request = self.reducing(wide.dtype).Iallreduce(self.mpi.IN_PLACE, wide, mpi_op)

        def finish():
            if wide is not host:
                host[...] = wide
            return from_host(host, x)

        return self._started(call, x.nbytes, start, request, finish)

    def _ireduce_scatter(self, call, x, op):
        if not self.guards(x):
            return self._start_reduce_scatter(call, x, op)
        before = self.copy(x)
        return GuardedWork(self._start_reduce_scatter(call, before, op), "ireduce_scatter", x, before)

    def _reduce_scatter(self, call, x, op):
        return self._start_reduce_scatter(call, x, op).wait()

    def _start_reduce_scatter(self, call, x, op):
        start = self.clock.now()
        _, wide, mpi_op = self._operands(x, op)
        counts = [s.stop - s.start for s in shares(wide.size, self.size)]
        out = empty(counts[self.rank], wide.dtype, wide)
        request = self.reducing(wide.dtype).Ireduce_scatter(wide.reshape(-1), out, counts, mpi_op)
        return self._started(call, x.nbytes, start, request, lambda: like(out.astype(x.dtype, copy=False), x))

    def _all_gather(self, call, x):
        start, host = self.clock.now(), to_host(x)
        out = empty((self.size, *x.shape), x.dtype, host)
        request = self.raw.Iallgather(as_bytes(host), as_bytes(out))
        return self._started(call, out.nbytes, start, request, lambda: like(out, x)).wait()

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
