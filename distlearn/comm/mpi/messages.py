"""MPIComm's primitives between two ranks: arrays as bytes, and pickled objects.

MPI sees only bytes, so the tag of a message also encodes what it holds: the user's tag times `KINDS` plus the number of
its dtype. A receive accepts its own dtype; while it waits, it looks for messages of the same tag that hold another one.
"""

from __future__ import annotations

import functools
import pickle
import time
import zlib

import numpy as np

from ..base import call_site
from ..protocol import ANY
from .staging import as_bytes, from_host, to_host
from .work import LOOK_SECONDS, GuardedWork, MPIWork, RecvWork, SendWork

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "longdouble", "complex64", "complex128", "clongdouble")  # fmt: skip
KIND_OF = {np.dtype(name): number for number, name in enumerate(DTYPES)}
KINDS = 256
OBJECT = KINDS - 1
"""Kind of a pickled object."""


@functools.cache
def kind_of(dtype: np.dtype) -> int:
    """Return the number of a dtype; structures, dates and text share the rest by a checksum."""
    rest = OBJECT - len(DTYPES)
    return KIND_OF[dtype] if dtype in KIND_OF else len(DTYPES) + zlib.crc32(repr(dtype).encode()) % rest


class Messages:
    """Point-to-point operations of `MPIComm`."""

    def unreceived(self) -> str:
        """Describe a message that was sent to this rank and never received; empty if there is none."""
        status = self.mpi.Status()
        if not self.raw.Iprobe(self.mpi.ANY_SOURCE, self.mpi.ANY_TAG, status):
            return ""
        nbytes, tag = status.Get_count(self.mpi.BYTE), status.Get_tag() // KINDS
        return f"the message of {nbytes} bytes from rank {status.Get_source()}, tag {tag}"

    def _look_for_other_kinds(self, source, tag, wanted: int, out) -> None:
        """Raise if there is a message with this tag that holds something else."""
        status = self.mpi.Status()
        for kind in range(KINDS):
            if kind == wanted:
                continue
            # messages of one sender arrive in order: what was sent before the one of another kind is there as well
            if self.raw.Iprobe(source, tag * KINDS + kind, status) and not self.raw.Iprobe(
                source, tag * KINDS + wanted
            ):
                nbytes = status.Get_count(self.mpi.BYTE)
                holds = f"an array of {nbytes} bytes of another dtype"
                if kind == OBJECT:
                    holds = "an object (send_obj)"
                elif kind < len(DTYPES):
                    dtype = np.dtype(DTYPES[kind])
                    holds = f"{nbytes // dtype.itemsize} {dtype}"
                name, expected = ("recv_obj", "an object") if out is None else ("recv", f"{out.size} {out.dtype}")
                call = f"{name}(source={status.Get_source()}, tag={tag})"
                raise ValueError(f"rank {self.rank}: {call} expected {expected}, but the message holds {holds}")

    def _start_send(self, x, dest, tag, name) -> SendWork:
        start = self.clock.now()
        isend = self.raw.Issend if self.strict else self.raw.Isend
        request = isend(as_bytes(to_host(x)), dest, tag * KINDS + kind_of(x.dtype))
        return SendWork(self, name, x.nbytes, start, request, dest, tag)

    def _start_recv(self, out, source, tag, name) -> RecvWork:
        start, host, kind = self.clock.now(), to_host(out, load=False), kind_of(out.dtype)
        request = self.raw.Irecv(as_bytes(host), source, tag * KINDS + kind)
        look = functools.partial(self._look_for_other_kinds, source, tag, kind, out)
        return RecvWork(self, name, start, request, out, lambda: from_host(host, out), source, tag, look)

    def _isend(self, x, dest, tag):
        sent = self.copy(x) if self.guards(x) else x
        work = self._start_send(sent, dest, tag, "send").started_at(call_site())
        return work if sent is x else GuardedWork(work, f"isend(dest={dest}, tag={tag})", x, sent)

    def _irecv(self, out, source, tag):
        return self._start_recv(out, source, tag, "recv").started_at(call_site())

    def _send(self, x, dest, tag):
        self._start_send(x, dest, tag, "send").wait()

    def _recv(self, out, source, tag):
        """Probe the message before receiving it, so that one of another size leaves `out` unchanged."""
        call, kind = f"recv(source={source}, tag={tag})", kind_of(out.dtype)
        start = self.clock.now()
        message, nbytes = self._arrival(source, tag, kind, out, f"{call} of {out.nbytes} bytes")
        if nbytes != out.nbytes:
            MPIWork(self, None, nbytes, start, message.Irecv(np.empty(nbytes, np.uint8))).wait()
            problem = f"expected {out.size} {out.dtype}, but the message holds {nbytes} bytes"
            raise ValueError(f"rank {self.rank}: {call} {problem}")
        host = to_host(out, load=False)
        return MPIWork(self, "recv", nbytes, start, message.Irecv(as_bytes(host)), lambda: from_host(host, out)).wait()

    def _arrival(self, source, tag, kind, out, what):
        """Wait for a message; return (the message, its size in bytes)."""
        status, found, look = self.mpi.Status(), [], time.perf_counter() + LOOK_SECONDS

        def arrived():
            nonlocal look
            message = self.raw.Improbe(source, tag * KINDS + kind, status)
            if message is not None:
                found.append(message)
            elif source != self.mpi.ANY_SOURCE and time.perf_counter() > look:
                self._look_for_other_kinds(source, tag, kind, out)
                look = time.perf_counter() + LOOK_SECONDS
            return message is not None

        self.block(arrived, what)
        return found[0], status.Get_count(self.mpi.BYTE)

    def _send_recv(self, sent, received):
        incoming = self._start_recv(*received, "send_recv")
        outgoing = self._start_send(*sent, None)
        incoming.wait()
        outgoing.wait()
        return received[0]

    def _send_obj(self, obj, dest, tag):
        start, data = self.clock.now(), pickle.dumps(obj, protocol=5)
        isend = self.raw.Issend if self.strict else self.raw.Isend
        request = isend([data, self.mpi.BYTE], dest, tag * KINDS + OBJECT)
        SendWork(self, "send_obj", len(data), start, request, dest, tag).wait()

    def _recv_obj(self, source, tag):
        start = self.clock.now()
        who, name = (self.mpi.ANY_SOURCE, "anyone") if source == ANY else (source, source)
        call = f"recv_obj(source={name}, tag={tag})"
        message, nbytes = self._arrival(who, tag, OBJECT, None, call)
        data = bytearray(nbytes)
        MPIWork(self, "recv_obj", nbytes, start, message.Irecv([data, self.mpi.BYTE])).wait()
        return pickle.loads(data)
