"""MPIComm's half that talks between two ranks: arrays as bytes, objects pickled, each kind with tags of its own."""

from __future__ import annotations

import pickle

import numpy as np

from .mpi_work import MPIWork, RecvWork, SendWork
from .protocol import ANY, check_buffer, check_output, check_peer
from .staging import as_bytes, from_host, to_host


class Messages:
    """Point-to-point operations of `MPIComm`."""

    def _tag(self, tag) -> int:
        if not isinstance(tag, (int, np.integer)) or not 0 <= tag < self._object_tags:
            raise ValueError(
                f"rank {self.rank}: tag={tag!r}, expected a whole number from 0 to {self._object_tags - 1}"
            )
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
