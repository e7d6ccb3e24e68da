"""A subset of a communicator's ranks, renumbered: enough of a communicator for the collectives of this package."""

from __future__ import annotations

from collections.abc import Sequence


class Group:
    """The given ranks of `comm` as ranks 0, 1, ... of a group; made without communication, unlike `comm.split`.

    Messages are sent on `comm`, with its tags: between the same two ranks they stay in order, so collectives on groups
    may follow one another, but must not overlap.

    Parameters
    ----------
    members : sequence of int
        Ranks of `comm`; this rank must be one of them.
    """

    def __init__(self, comm, members: Sequence[int]):
        if comm.rank not in members:
            raise ValueError(f"rank {comm.rank}: Group of ranks {list(members)}, expected this rank to be one of them")
        self._comm, self._members = comm, members
        self.rank, self.size, self.clock = members.index(comm.rank), len(members), comm.clock

    def __repr__(self) -> str:
        return f"Group(rank {self.rank} of {self.size})"

    def send(self, x, dest, tag=0):
        self._comm.send(x, self._members[dest], tag)

    def recv(self, out, source, tag=0):
        return self._comm.recv(out, self._members[source], tag)

    def send_recv(self, x, dest, out, source, tag=0):
        return self._comm.send_recv(x, self._members[dest], out, self._members[source], tag)
