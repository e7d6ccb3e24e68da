"""MPIComm's half in which all ranks take part."""

from __future__ import annotations

import pickle

import numpy as np

from ..collectives import shares
from ..protocol import (
    CommError,
    check_buffer,
    check_deal,
    check_op,
    check_output,
    check_reducible,
    check_root,
    check_rows,
)
from .staging import as_bytes, empty, from_host, like, settled, to_host
from .work import MPIWork

OPS = {"sum": "SUM", "prod": "PROD", "min": "MIN", "max": "MAX"}
BOOL_OPS = {"sum": "LOR", "prod": "LAND", "min": "LAND", "max": "LOR"}  # as NumPy: + is "or", * is "and"


class Collectives:
    """Collective operations of `MPIComm`."""

    def _agree(self, call: str) -> None:
        """Raise unless every rank makes the same collective call."""
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

    def _reduction(self, call, x, op):
        """Return what MPI reduces in place of the host array `x`, and MPI's name for `op`."""
        check_reducible(call, x, op, self.rank)
        mpi_op = getattr(self.mpi, (BOOL_OPS if x.dtype.kind == "b" else OPS)[op])
        return settled(x.astype(np.float32)) if x.dtype.char == "e" else x, mpi_op

    def iall_reduce(self, x, op="sum"):
        """Start an all-reduce, in place; do not touch `x` before `wait`."""
        check_op(op, self.rank)
        check_output("all_reduce", x, self.rank)
        if self.strict:
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
        return self.ireduce_scatter(x, op).wait()

    def ireduce_scatter(self, x, op="sum"):
        """Start a reduce-scatter; do not touch `x` before `wait`."""
        check_op(op, self.rank)
        check_buffer("reduce_scatter", x, self.rank)
        if self.strict:
            self._agree(f"reduce_scatter(op={op!r}, {x.shape}, {x.dtype})")
        start = self.clock.now()
        wide, mpi_op = self._reduction("reduce_scatter", to_host(x), op)
        counts = [s.stop - s.start for s in shares(wide.size, self.size)]
        out = empty(counts[self.rank], wide.dtype, wide)
        request = self.raw.Ireduce_scatter(wide.reshape(-1), out, counts, mpi_op)
        finish = lambda: like(out.astype(x.dtype, copy=False), x)  # noqa: E731
        return MPIWork(self, "reduce_scatter", x.nbytes, start, request, finish)

    def all_gather(self, x):
        """Return everyone's `x`, stacked."""
        check_buffer("all_gather", x, self.rank)
        if self.strict:
            self._agree(f"all_gather({x.shape}, {x.dtype})")
        start, host = self.clock.now(), to_host(x)
        out = empty((self.size, *x.shape), x.dtype, host)
        request = self.raw.Iallgather(as_bytes(host), as_bytes(out))
        return MPIWork(self, "all_gather", out.nbytes, start, request, lambda: like(out, x)).wait()

    def broadcast(self, x, root=0):
        """Replace `x` by the root's; return it."""
        check_root(root, self.rank, self.size)
        (check_buffer if self.rank == root else check_output)("broadcast", x, self.rank)
        if self.strict:
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
            check_deal("scatter", x, out, self.rank, self.size)
            rows = as_bytes(to_host(x))
        if self.strict:
            self._agree(f"scatter(root={root}, {out.shape}, {out.dtype})")
        start, host = self.clock.now(), to_host(out, load=False)
        request = self.raw.Iscatter(rows, as_bytes(host), root)
        return MPIWork(self, "scatter", out.nbytes * self.size, start, request, lambda: from_host(host, out)).wait()

    def gather(self, x, root=0):
        """Return everyone's `x`, stacked, on the root."""
        check_root(root, self.rank, self.size)
        check_buffer("gather", x, self.rank)
        if self.strict:
            self._agree(f"gather(root={root}, {x.shape}, {x.dtype})")
        start, host = self.clock.now(), to_host(x)
        out = empty((self.size, *x.shape), x.dtype, host) if self.rank == root else None
        request = self.raw.Igather(as_bytes(host), None if out is None else as_bytes(out), root)
        finish = None if out is None else lambda: like(out, x)
        return MPIWork(self, "gather", x.nbytes * self.size, start, request, finish).wait()

    def all_to_all(self, x):
        """Send row j to rank j; return the rows received, by source."""
        check_rows("all_to_all", x, self.rank, self.size)
        if self.strict:
            self._agree(f"all_to_all({x.shape}, {x.dtype})")
        start, host = self.clock.now(), to_host(x)
        out = empty(x.shape, x.dtype, host)
        request = self.raw.Ialltoall(as_bytes(host), as_bytes(out))
        return MPIWork(self, "all_to_all", x.nbytes, start, request, lambda: like(out, x)).wait()

    def barrier(self):
        """Wait until every rank is here."""
        if self.strict:
            self._agree("barrier()")
        MPIWork(self, "barrier", 0, self.clock.now(), self.raw.Ibarrier()).wait()

    def broadcast_obj(self, obj, root=0):
        """Return the root's object on every rank."""
        check_root(root, self.rank, self.size)
        if self.strict:
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
        if self.strict:
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
