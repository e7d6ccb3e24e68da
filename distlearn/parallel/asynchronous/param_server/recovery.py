"""When a server is lost: its share comes back from its mirror, and training continues from the last complete version.

Every so many updates each server sends its share, with the optimizer's state for it, to the next server. All servers
execute the same commands, so they do that at the same versions, without an agreement. After the loss of a server the
others shrink the communicator, put together the newest version whose shares all survive, shard it among the remaining
servers, and the workers continue from there. Later updates are repeated.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....comm.base import CommError
from ....optim.optimizer import state_arrays
from .messages import Command

KEPT = 2
"""Versions that a mirror keeps: a server can be lost while the newest is exchanged, and some have it and some not."""
_TAG = 7


class ShardState(NamedTuple):
    """One server's share at some version: rows are the parameters and the arrays of the optimizer's state."""

    rows: np.ndarray
    gradients: int
    """Gradients that went into updates so far, on all workers."""


class GlobalState(NamedTuple):
    """All shares together."""

    version: int
    rows: np.ndarray
    gradients: int


class Mirror:
    """A server's copies of its own share and of its neighbour's, at the newest versions."""

    def __init__(self, comm, parts: list[slice], every: int, start: GlobalState):
        self.comm, self.parts, self.every = comm, parts, every
        pieces = {k: ShardState(start.rows[:, part], start.gradients) for k, part in enumerate(parts)}
        self.versions: dict[int, dict[int, ShardState]] = {start.version: pieces}
        self._gradients = start.gradients

    def keep(self, shard, command: Command) -> None:
        """Count an update; copy the shares if it is time."""
        self._gradients += len(command.merged)
        if command.version % self.every:
            return
        comm, servers = self.comm, len(self.parts)
        own = np.stack([shard.share, *state_arrays(shard.state)])
        pieces = {comm.rank: ShardState(own, self._gradients)}
        if servers > 1:
            before = (comm.rank - 1) % servers
            part = self.parts[before]
            theirs = np.empty((len(own), part.stop - part.start), own.dtype)
            comm.send_recv(own, (comm.rank + 1) % servers, theirs, before, _TAG)
            pieces[before] = ShardState(theirs, self._gradients)
        self.versions[command.version] = pieces
        for old in sorted(self.versions)[:-KEPT]:
            del self.versions[old]


def newest_complete(kept: list[dict[int, dict[int, ShardState]]], servers: int) -> GlobalState | None:
    """Put together the newest version whose pieces all survive."""
    for version in sorted({v for versions in kept for v in versions}, reverse=True):
        pieces: dict[int, ShardState] = {}
        for versions in kept:
            pieces |= versions.get(version, {})
        if len(pieces) == servers:
            rows = np.concatenate([pieces[k].rows for k in range(servers)], axis=1)
            return GlobalState(version, rows, pieces[0].gradients)
    return None


def agree_on_state(comm, versions: dict | None, servers: int, lost: list[int]) -> GlobalState:
    """Find what the remaining servers can put together, and tell all ranks. All remaining ranks call it."""
    found = comm.gather_obj(versions)
    whole = None if found is None else newest_complete([v for v in found if v is not None], servers)
    whole = comm.broadcast_obj(whole)
    if whole is None:
        raise CommError(f"servers {lost} are lost: a share is gone together with its mirror, training cannot continue")
    return whole
