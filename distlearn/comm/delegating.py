"""A communicator that delegates point-to-point messages, and everything pickled, to another one."""

from __future__ import annotations

from .base import BaseComm


class DelegatingComm(BaseComm):
    """Primitives that call `host`, a communicator of the same ranks."""

    # Attributes that are not in the protocol, such as MPIComm's `raw` and `activity`, are looked up in `host` as well.

    def __init__(self, host):
        self.host = host
        self.rank, self.size, self.clock, self.report = host.rank, host.size, host.clock, host.report
        self.timeout = host.timeout

    def __getattr__(self, name):
        if name == "host":  # not set yet: `copy` and `pickle` make the object without calling __init__
            raise AttributeError(name)
        return getattr(self.host, name)

    def agreement(self, call):
        """Begin to compare this rank's call of a collective with the others', as `host` does."""
        return self.host.agreement(call)

    def _send(self, x, dest, tag):
        self.host.send(x, dest, tag)

    def _recv(self, out, source, tag):
        return self.host.recv(out, source, tag)

    def _isend(self, x, dest, tag):
        return self.host.isend(x, dest, tag)

    def _irecv(self, out, source, tag):
        return self.host.irecv(out, source, tag)

    def _send_recv(self, sent, received):
        x, dest, _ = sent
        return self.host.send_recv(x, dest, *received)

    def _send_obj(self, obj, dest, tag):
        self.host.send_obj(obj, dest, tag)

    def _recv_obj(self, source, tag):
        return self.host.recv_obj(source, tag)

    def _broadcast_obj(self, call, obj, root):
        return self.host.broadcast_obj(obj, root)

    def _gather_obj(self, call, obj, root):
        return self.host.gather_obj(obj, root)

    def _barrier(self, call):
        self.host.barrier()
