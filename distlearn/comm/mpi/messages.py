"""MPIComm's primitives between two ranks: arrays as bytes, objects pickled, each kind with tags of its own."""

from __future__ import annotations

import pickle

import numpy as np

from ..base import call_site
from ..protocol import ANY
from .staging import as_bytes, from_host, to_host
from .work import MPIWork, RecvWork, SendWork


class Messages:
    """Point-to-point operations of `MPIComm`."""

    def _start_send(self, x, dest, tag, name) -> SendWork:
        start = self.clock.now()
        isend = self.raw.Issend if self.strict else self.raw.Isend
        return SendWork(self, name, x.nbytes, start, isend(as_bytes(to_host(x)), dest, tag), dest, tag)

    def _start_recv(self, out, source, tag, name) -> RecvWork:
        start, host = self.clock.now(), to_host(out, load=False)
        request = self.raw.Irecv(as_bytes(host), source, tag)
        return RecvWork(self, name, start, request, out, lambda: from_host(host, out), source, tag)

    def _isend(self, x, dest, tag):
        return self._start_send(x, dest, tag, "send").started_at(call_site())

    def _irecv(self, out, source, tag):
        return self._start_recv(out, source, tag, "recv").started_at(call_site())

    def _send(self, x, dest, tag):
        self._start_send(x, dest, tag, "send").wait()

    def _recv(self, out, source, tag):
        """Look at the message before taking it, so that one of another size leaves `out` alone."""
        call = f"recv(source={source}, tag={tag})"
        start = self.clock.now()
        message, nbytes = self._arrival(source, tag, f"{call} of {out.nbytes} bytes")
        if nbytes != out.nbytes:
            MPIWork(self, None, nbytes, start, message.Irecv(np.empty(nbytes, np.uint8))).wait()
            problem = f"expected {out.size} {out.dtype}, but the message holds {nbytes} bytes"
            raise ValueError(f"rank {self.rank}: {call} {problem}")
        host = to_host(out, load=False)
        return MPIWork(self, "recv", nbytes, start, message.Irecv(as_bytes(host)), lambda: from_host(host, out)).wait()

    def _arrival(self, source, tag, what):
        """Wait for a message; return (the message, its size in bytes)."""
        status, found = self.mpi.Status(), []

        def arrived():
            message = self.raw.Improbe(source, tag, status)
            if message is not None:
                found.append(message)
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
        request = isend([data, self.mpi.BYTE], dest, tag + self.n_tags)
        SendWork(self, "send_obj", len(data), start, request, dest, tag).wait()

    def _recv_obj(self, source, tag):
        start = self.clock.now()
        who, name = (self.mpi.ANY_SOURCE, "anyone") if source == ANY else (source, source)
        message, nbytes = self._arrival(who, tag + self.n_tags, f"recv_obj(source={name}, tag={tag})")
        data = bytearray(nbytes)
        MPIWork(self, "recv_obj", nbytes, start, message.Irecv([data, self.mpi.BYTE])).wait()
        return pickle.loads(data)
