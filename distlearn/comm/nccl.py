"""Communication between GPUs, over NCCL."""

from __future__ import annotations

import platform
import warnings

import numpy as np

from .. import backend
from ..shares import shares
from ..trace import Span
from .base import CommError, CommTimeoutError
from .point_to_point import DelegatingComm
from .waiting import poll


def version() -> str | None:
    """Return the version of NCCL that CuPy finds ("2.27.3"), or None if it finds none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns where NCCL is missing, which is the question here
        from cupy.cuda import nccl
    if not nccl.available:
        return None
    number = nccl.get_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


# -- work --------------------------------------------------------------------------------------------------------------
# Handles of NCCL operations in progress: `Work` over CUDA events.


class NCCLWork:
    """One operation on a communicator's stream."""

    __slots__ = ("_agreement", "_began", "_comm", "_ended", "_kept", "_name", "_nbytes", "_result", "_start")

    def __init__(self, comm, name, nbytes, start, began, ended, result, kept, agreement=None):
        self._comm, self._name, self._nbytes, self._start = comm, name, nbytes, start
        self._began, self._ended, self._result, self._kept = began, ended, result, kept
        self._agreement = agreement

    def __str__(self) -> str:
        return f"{self._name} of {self._nbytes} bytes"

    def wait(self):
        """Let the current stream wait until it is done; return the result, without waiting for the card."""
        # Whatever is launched on the current stream from now on sees the result, including a copy to the host.
        if self._agreement is not None:
            self._comm.host.block(self._agreement.done, self._agreement)
            self._agreement = None
        self._comm._cupy.cuda.get_current_stream().wait_event(self._ended)
        return self._result

    def done(self) -> bool:
        return self._ended.done

    def record(self) -> None:
        """Add its span to the trace when it is done: it begins at the call and lasts as long as the GPU took."""
        comm = self._comm
        seconds = comm._cupy.cuda.get_elapsed_time(self._began, self._ended) / 1e3
        spans = getattr(getattr(comm.clock, "trace", None), "spans", None)
        if spans is not None:
            spans.append(Span(comm.clock.rank, "comm", self._name, self._start, self._start + seconds, 0, self._nbytes))
        self._kept = None


# -- communicator ------------------------------------------------------------------------------------------------------
# NCCLComm: collectives from GPU to GPU, for ranks with a GPU each, over CuPy's NCCL.
#
# Arrays on a GPU take part in NCCL's collectives on the communicator's own stream; everything else (objects, arrays
# in host memory) goes through the host communicator, which connects the same ranks, such as `MPIComm`.
#
# So do messages between two ranks, even of arrays on a GPU. NCCL has neither tags nor sizes: a receive that does
# not match its send is not an error but a hang or garbage. And two unrelated transfers wait for each other when
# they were started in different orders on different ranks: exchanges that the protocol allows with `isend` and
# `irecv` would deadlock. MPI reads GPU memory itself where it can; elsewhere such messages pass through host memory
# (`staging`).

# NCCL's name of a dtype that it can add up. It adds halves in half precision, at every hop.
TYPES = {"i1": "INT8", "u1": "UINT8", "i4": "INT32", "u4": "UINT32", "i8": "INT64", "u8": "UINT64",
         "f2": "FLOAT16", "f4": "FLOAT32", "f8": "FLOAT64"}  # fmt: skip

BOOL_OPS = {"sum": "MAX", "prod": "MIN", "min": "MIN", "max": "MAX"}  # of the bytes 0 and 1, as NumPy: + is "or"


class NCCLComm(DelegatingComm):
    """One rank with its own GPU among others, with the library's `Communicator` protocol.

    Collectives of arrays on a GPU are put on a stream and return at once: later work on the current stream waits for
    the result, Python does not. After `iall_reduce` the stream waits only from `Work.wait` on.
    """

    def __init__(self, host, cupy=None):
        if cupy is None:
            if version() is None:  # this imports cupy.cuda.nccl, which `import cupy` does not
                raise CommError('CuPy finds no NCCL: pip install "distlearn[gpu]", or leave it to MPI')
            import cupy
        super().__init__(host)
        self._cupy, self._nccl = cupy, cupy.cuda.nccl
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._connection = None
        self._pending: list[NCCLWork] = []

    def _connect(self):
        """Return NCCL's communicator; the first call makes it, when all ranks are there."""
        if self._connection is None:
            number = self._nccl.get_unique_id() if self.rank == 0 else None
            number = self.host.broadcast_obj(number)
            self.host.barrier()  # can be interrupted, which the next line cannot
            try:
                self._connection = self._nccl.NcclCommunicator(self.size, number, self.rank)
            except RuntimeError as error:
                raise CommError(f"rank {self.rank}: NCCL cannot connect the ranks: {error}") from error
        return self._connection

    def _start(self, call, nbytes, result, kept, *calls) -> NCCLWork:
        """Enqueue NCCL's calls (name, *arguments) on the stream, after the work on the current stream so far."""
        connection, start = self._connect(), self.clock.now()
        agreement = self.host.agreement(call)
        self._record_done()
        self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
        began = self._stream.record(self._cupy.cuda.Event())
        try:
            self._nccl.groupStart()
            try:
                for name, *arguments in calls if nbytes else ():
                    getattr(connection, name)(*arguments, self._stream.ptr)
            finally:
                self._nccl.groupEnd()
        except RuntimeError as error:
            raise CommError(f"rank {self.rank}: {call.name} failed: {error}") from error
        ended = self._stream.record(self._cupy.cuda.Event())
        work = NCCLWork(self, call.name, nbytes, start, began, ended, result, kept, agreement)
        self._pending.append(work)
        return work

    def _record_done(self) -> None:
        """Release the operations that are done, in order; their spans go into the trace."""
        while self._pending and self._pending[0].done():
            self._pending.pop(0).record()

    def finish(self) -> None:
        timeout = self.host.timeout
        if not poll(lambda: self._stream.done, timeout=timeout):
            names = ", ".join(str(w) for w in self._pending)
            self.abort()
            raise CommTimeoutError(f"rank {self.rank}: waited {timeout:g} s for the GPU to finish {names}")
        self._record_done()

    def abort(self) -> None:
        """Abort the operations in progress, which another rank will not join. Makes the communicator unusable."""
        if self._connection is not None:
            self._connection.abort()
        self._connection = None
        self._pending.clear()

    def end(self) -> None:
        self.finish()
        self.host.end()

    def _barrier(self, call):
        """Wait until every rank has called it and its GPU has finished all operations."""
        self.finish()
        super()._barrier(call)

    def _split(self, call, color, key):
        part = self.host.split(color, key)
        return None if part is None else NCCLComm(part, self._cupy)

    # -- reductions ----------------------------------------------------------------------------------------------------
    def _operator(self, x, op):
        """Return NCCL's dtype, its operator and how many of its elements one of ours is; None if it has none."""
        kind = x.dtype.kind
        if kind == "b":
            return self._nccl.NCCL_UINT8, getattr(self._nccl, f"NCCL_{BOOL_OPS[op]}"), 1
        parts = 2 if kind == "c" else 1
        name = TYPES.get(f"f{x.dtype.itemsize // 2}" if kind == "c" else x.dtype.str[1:])
        if name is None or (kind == "c" and op != "sum") or (kind == "f" and op in ("min", "max")):
            return None
        return getattr(self._nccl, f"NCCL_{name}"), getattr(self._nccl, f"NCCL_{op.upper()}"), parts

    def _iall_reduce(self, call, x, op):
        found = None if _on_host(x) else self._operator(x, op)
        if found is None:
            return self.host.iall_reduce(x, op)
        dtype, operator, parts = found
        at = x.data.ptr
        return self._start(call, x.nbytes, x, [x], ("allReduce", at, at, parts * x.size, dtype, operator))

    def _ireduce_scatter(self, call, x, op):
        found = None if _on_host(x) else self._operator(x, op)
        if found is None:
            return self.host.ireduce_scatter(x, op)
        dtype, operator, parts = found
        places = shares(x.size, self.size)
        mine = places[self.rank]
        out = self._cupy.empty(mine.stop - mine.start, x.dtype)
        if x.size % self.size == 0:
            calls = [("reduceScatter", x.data.ptr, out.data.ptr, parts * out.size, dtype, operator)]
        else:  # uneven shares: one reduction to each rank
            calls = [
                ("reduce", x.reshape(-1)[s].data.ptr, out.data.ptr, parts * (s.stop - s.start), dtype, operator, root)
                for root, s in enumerate(places)
                if s.stop > s.start
            ]
        return self._start(call, x.nbytes, out, [x, out], *calls)

    # -- moving data: as bytes, so that every dtype can travel ---------------------------------------------------------
    def _iall_gather(self, call, x):
        if _on_host(x):
            return self.host.iall_gather(x)
        out = self._cupy.empty((self.size, *x.shape), x.dtype)
        gather = "allGather", x.data.ptr, out.data.ptr, x.nbytes, self._nccl.NCCL_UINT8
        return self._start(call, out.nbytes, out, [x, out], gather)

    def _broadcast(self, call, x, root):
        if _on_host(x):
            return self.host.broadcast(x, root)
        send = "broadcast", x.data.ptr, x.data.ptr, x.nbytes, self._nccl.NCCL_UINT8, root
        return self._start(call, x.nbytes, x, [x], send).wait()

    def _scatter(self, call, x, out, root):
        if self.rank == root and _on_host(x) != _on_host(out):
            raise TypeError(f"rank {self.rank}: scatter needs both arrays on the GPU, or neither")
        if _on_host(out):
            return self.host.scatter(x, out, root)
        sends = self._rows(x) if self.rank == root else []
        kept = [out] if x is None else [x, out]
        return self._exchange(call, out.nbytes * self.size, out, kept, sends, [(root, out.data.ptr)], out.nbytes)

    def _gather(self, call, x, root):
        if _on_host(x):
            return self.host.gather(x, root)
        out = self._cupy.empty((self.size, *x.shape), x.dtype) if self.rank == root else None
        receives = [] if out is None else self._rows(out)
        kept = [x] if out is None else [x, out]
        return self._exchange(call, x.nbytes * self.size, out, kept, [(root, x.data.ptr)], receives, x.nbytes)

    def _all_to_all(self, call, x):
        if _on_host(x):
            return self.host.all_to_all(x)
        out = self._cupy.empty(x.shape, x.dtype)
        row = x.nbytes // self.size
        return self._exchange(call, x.nbytes, out, [x, out], self._rows(x), self._rows(out), row)

    def _rows(self, x) -> list[tuple[int, int]]:
        return [(rank, x.data.ptr + rank * (x.nbytes // self.size)) for rank in range(self.size)]

    def _exchange(self, call, nbytes, result, kept, sends, receives, row_bytes):
        """Send and receive rows of `row_bytes` at addresses, all at once: (rank, address) pairs."""
        calls = [
            (name, address, row_bytes, self._nccl.NCCL_UINT8, peer)
            for name, rows in (("send", sends), ("recv", receives))
            for peer, address in rows
        ]
        return self._start(call, nbytes, result, kept, *calls).wait()


def _on_host(x) -> bool:
    return isinstance(x, np.ndarray)


# -- GPU or MPI --------------------------------------------------------------------------------------------------------


class Machine:
    """The hardware and libraries of the machine that a rank runs on."""

    name = staticmethod(platform.node)
    may_have_gpu = staticmethod(backend.may_have_gpu)
    take_gpu = staticmethod(backend.take_gpu)

    @staticmethod
    def has_nccl() -> bool:
        """Return whether CuPy finds NCCL."""
        return version() is not None

    connect = NCCLComm


def select_backend(comm, machine=Machine):
    """Assign every rank a GPU, if its machine has one, and return the communicator to use."""
    # A rank takes the GPU whose number is its local rank on the machine. If every rank has its own GPU and NCCL is
    # installed, arrays on GPUs are sent by `NCCLComm`; where ranks share a GPU, or some have none, by MPI. All ranks
    # must call it; where none has NVIDIA's driver that costs one small all-reduce.
    spans = len(comm.clock.trace.spans)
    found = _choose(comm, machine)
    del comm.clock.trace.spans[spans:]
    comm.recorder.clear()
    return found


def _choose(comm, machine):
    if not comm.all_reduce(np.array([machine.may_have_gpu()]), "max")[0]:
        return comm
    names = comm.all_gather_obj(machine.name())
    neighbours_before = names[: comm.rank].count(names[comm.rank])
    card = machine.take_gpu(neighbours_before)
    able = bool(card) and machine.has_nccl()
    everyone = comm.all_gather_obj((names[comm.rank], card, able))
    shared = len({(name, card) for name, card, _ in everyone}) < comm.size
    if comm.size == 1 or shared or not all(able for *_, able in everyone):
        return comm
    return machine.connect(comm)
