"""The workers' side: push a gradient, get the parameters back when the policy allows the next step."""

from __future__ import annotations

from ....backend import to_numpy
from .flat import FlatModel
from .messages import Leave, Push, Reply


class WorkerLink:
    """A worker's connection to all servers.

    Parameters
    ----------
    comm : Communicator
    shares : list of slice
        By server: its share of the flat parameters.
    flat : FlatModel
    worker : int
    version : int
        Of the parameters to begin with.
    """

    def __init__(self, comm, shares: list[slice], flat: FlatModel, worker: int, version: int = 0):
        self.comm, self.shares, self.flat, self.worker = comm, shares, flat, worker
        self.version = self.steps = version  # the ledger counts steps from there, too
        self._replies = [Reply(part.stop - part.start, flat.data.dtype) for part in shares]

    def exchange(self, rows: int, loss: float) -> Reply:
        """Push the gradient, wait for leave to go on, and take over the newest parameters; return the lead's reply."""
        comm, replies = self.comm, self._replies
        with comm.clock.span("exchange", lane="comm"):
            received = [comm.irecv(reply.buffer, server) for server, reply in enumerate(replies)]
            gradient = to_numpy(self.flat.grad)
            sent = [comm.isend(gradient[part], server) for server, part in enumerate(self.shares)]
            push = Push(self.worker, self.steps, self.version, rows, loss)
            for server in range(len(self.shares)):
                comm.send_obj(push, server)
            for work in (*sent, *received):
                work.wait()
        for part, reply in zip(self.shares, replies, strict=True):
            self.flat.load(reply.share, part)
        self.version = replies[0].version
        self.steps += 1
        return replies[0]

    def leave(self) -> None:
        """Say that there will be no more."""
        self.comm.send_obj(Leave(self.worker), 0)
