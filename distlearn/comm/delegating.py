"""What a communicator for some arrays leaves to another one that connects the same ranks."""

from __future__ import annotations


class Beneath:
    """Messages between two ranks and everything pickled, through `host`, the communicator beneath.

    What a `Communicator` has beyond its protocol, such as MPIComm's `raw` and `activity`, is found there as well.

    Parameters
    ----------
    host : Communicator
    """

    def __init__(self, host):
        self.host = host
        self.rank, self.size, self.clock, self.report = host.rank, host.size, host.clock, host.report

    def __getattr__(self, name):
        if name == "host":  # not there yet: a copy under construction
            raise AttributeError(name)
        return getattr(self.host, name)

    def send(self, x, dest, tag=0):
        """Send."""
        self.host.send(x, dest, tag)

    def recv(self, out, source, tag=0):
        """Receive into `out`; return it."""
        return self.host.recv(out, source, tag)

    def isend(self, x, dest, tag=0):
        """Start a send; do not touch `x` before `wait`."""
        return self.host.isend(x, dest, tag)

    def irecv(self, out, source, tag=0):
        """Start a receive; `out` is valid after `wait`."""
        return self.host.irecv(out, source, tag)

    def send_recv(self, x, dest, out, source, tag=0):
        """Send and receive at once; return `out`."""
        return self.host.send_recv(x, dest, out, source, tag)

    def send_obj(self, obj, dest, tag=0):
        """Send a pickled object."""
        self.host.send_obj(obj, dest, tag)

    def recv_obj(self, *args, **kwargs):
        """Receive an object from a rank, or the first that comes from any."""
        return self.host.recv_obj(*args, **kwargs)

    def broadcast_obj(self, obj, root=0):
        """Return the root's object on every rank."""
        return self.host.broadcast_obj(obj, root)

    def gather_obj(self, obj, root=0):
        """Return everyone's object, by rank, on the root."""
        return self.host.gather_obj(obj, root)
