"""MPIComm's half that talks between two ranks: arrays as bytes, objects pickled, each kind with tags of its own."""

from __future__ import annotations

import pickle

import numpy as np

from ..protocol import ANY, check_buffer, check_output, check_peer, check_tag
from .staging import as_bytes, from_host, to_host
from .work import MPIWork, RecvWork, SendWork


class Messages:
    """Point-to-point operations of `MPIComm`."""

    def _tag(self, tag) -> int:
        check_tag(tag, self.rank, self._object_tags)
        return int(tag)

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
        """Start a receive; `out` is valid after `wait`, which raises if the message had another size."""
        return self._irecv(out, source, tag, "recv")

    def recv(self, out, source, tag=0):
        """Receive into `out` a message of exactly its size (MPI knows bytes, not dtypes); return `out`.

        The message is looked at before it is taken, so that one of another size leaves `out` alone.
        """
        check_peer("source", source, self.rank, self.size)
        check_output("recv", out, self.rank)
        tag = self._tag(tag)
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
        start, tag = self.clock.now(), self._tag(tag)
        who, name = (self.mpi.ANY_SOURCE, "anyone") if source == ANY else (source, source)
        message, nbytes = self._arrival(who, tag + self._object_tags, f"recv_obj(source={name}, tag={tag})")
        data = bytearray(nbytes)
        MPIWork(self, "recv_obj", nbytes, start, message.Irecv([data, self.mpi.BYTE])).wait()
        return pickle.loads(data)
