"""Communication between GPUs, over NCCL."""

from __future__ import annotations

import platform
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import backend
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


@dataclass
class NCCLWork:
    """One operation on a communicator's stream, between two events."""

    comm: NCCLComm
    name: str
    nbytes: int
    start: float
    began: Any
    ended: Any
    result: Any
    kept: list[Any] | None  # arrays that must exist until it is done
    agreement: Any

    def __str__(self) -> str:
        return f"{self.name} of {self.nbytes} bytes"

    def wait(self):
        """Let the current stream wait until it is done; return the result, without waiting for the card."""
        # Whatever is launched on the current stream from now on sees the result, including a copy to the host.
        if self.agreement is not None:
            self.comm.host.block(self.agreement.done, self.agreement)
            self.agreement = None
        self.comm._cupy.cuda.get_current_stream().wait_event(self.ended)
        return self.result

    def done(self) -> bool:
        return self.ended.done

    def record(self) -> None:
        """Add its span to the trace when it is done: it begins at the call and lasts as long as the GPU took."""
        clock = self.comm.clock
        end = self.start + self.comm._cupy.cuda.get_elapsed_time(self.began, self.ended) / 1e3
        clock.trace.spans.append(Span(clock.rank, "comm", self.name, self.start, end, 0, self.nbytes))
        self.kept = None


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

    def _start(self, call, nbytes, result, kept, name, *arguments) -> NCCLWork:
        """Enqueue a call of NCCL on the stream, after the work on the current stream so far."""
        connection, start = self._connect(), self.clock.now()
        agreement = self.host.agreement(call)
        self._record_done()
        self._stream.wait_event(self._cupy.cuda.get_current_stream().record())
        began = self._stream.record(self._cupy.cuda.Event())
        try:
            if nbytes:
                getattr(connection, name)(*arguments, self._stream.ptr)
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

    # -- collectives: what NCCL cannot do, and what no strategy does on a GPU, goes through the host -------------------
    def _operator(self, x, op) -> tuple[int, int] | None:
        """Return NCCL's dtype and operator for an array; None if it lies in host memory, or NCCL has none."""
        name = TYPES.get(x.dtype.str[1:])
        if _on_host(x) or name is None or (x.dtype.kind == "f" and op in ("min", "max")):  # NaN has no order there
            return None
        return getattr(self._nccl, f"NCCL_{name}"), getattr(self._nccl, f"NCCL_{op.upper()}")

    def _iall_reduce(self, call, x, op):
        found = self._operator(x, op)
        if found is None:
            return self.host.iall_reduce(x, op)
        return self._start(call, x.nbytes, x, [x], "allReduce", x.data.ptr, x.data.ptr, x.size, *found)

    def _ireduce_scatter(self, call, x, op):
        found = self._operator(x, op)
        if found is None or x.size % self.size:
            return self.host.ireduce_scatter(x, op)
        out = self._cupy.empty(x.size // self.size, x.dtype)
        return self._start(call, x.nbytes, out, [x, out], "reduceScatter", x.data.ptr, out.data.ptr, out.size, *found)

    def _iall_gather(self, call, x):
        if _on_host(x):
            return self.host.iall_gather(x)
        out = self._cupy.empty((self.size, *x.shape), x.dtype)
        moved = x.nbytes, self._nccl.NCCL_UINT8  # as bytes, so that every dtype can travel
        return self._start(call, out.nbytes, out, [x, out], "allGather", x.data.ptr, out.data.ptr, *moved)

    def _broadcast(self, call, x, root):
        if _on_host(x):
            return self.host.broadcast(x, root)
        moved = x.nbytes, self._nccl.NCCL_UINT8, root
        return self._start(call, x.nbytes, x, [x], "broadcast", x.data.ptr, x.data.ptr, *moved).wait()

    def _scatter(self, call, x, out, root):
        return self.host.scatter(x, out, root)

    def _gather(self, call, x, root):
        return self.host.gather(x, root)

    def _all_to_all(self, call, x):
        return self.host.all_to_all(x)


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
