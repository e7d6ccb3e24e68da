"""Checkpoints in the memory of peers: saved at the speed of the network, and still there when a rank is lost.

    two copies:  0 <-> 1    2 <-> 3    4 <-> 5

A rank keeps its own state and that of the others of its group. Groups survive more losses than a ring: a ring is broken
by any two neighbours, of which there are twice as many as there are pairs.
"""

from __future__ import annotations

import pickle

import numpy as np

from .state import combine, local_state, restore
from .store import CheckpointError


def holders(rank: int, size: int, copies: int) -> list[int]:
    """Return the ranks that keep a rank's state, itself first.

    Examples
    --------
    >>> holders(3, 6, 2)
    [3, 2]
    """
    if copies < 1 or size % copies:
        raise ValueError(f"holders: {copies!r} copies on {size} ranks, expected a number that divides the ranks")
    first = rank // copies * copies
    return [first + (rank - first + k) % copies for k in range(copies)]


class PeerCheckpoints:
    """The newest two states of a strategy, each rank's in its own memory and in that of peers.

    Parameters
    ----------
    comm : Communicator
        On a `FaultTolerant` one ranks may be lost; then shrink it, and `restore` on what is left.
    copies : int
        Of each rank's state, its own included; the number of ranks is a multiple.

    References
    ----------
    Z. Wang et al. (2023), Gemini: fast failure recovery in distributed training with in-memory checkpoints, SOSP,
    section 4 (groups are the best placement where copies divide the ranks).
    """

    def __init__(self, comm, copies: int = 2):
        self.comm, self.copies = comm, copies
        self._holders = [holders(rank, comm.size, copies) for rank in range(comm.size)]
        self._kept: dict[int, dict[int, bytes]] = {}  # step -> rank -> its state

    def save(self, step: int, strategy) -> None:
        """Keep this rank's state after a step, and exchange it with peers; every rank must call."""
        comm = self.comm
        mine = np.frombuffer(pickle.dumps(local_state(strategy), protocol=5), np.uint8)
        sizes = comm.all_gather(np.array([mine.size]))[:, 0]
        kept = {comm.rank: mine.tobytes()}
        for k in range(1, self.copies):
            source = next(rank for rank, ranks in enumerate(self._holders) if ranks[k] == comm.rank)
            theirs = comm.send_recv(mine, self._holders[comm.rank][k], np.empty(sizes[source], np.uint8), source)
            kept[source] = theirs.tobytes()
        # a rank that is lost meanwhile leaves this step incomplete: the one before is kept, too
        self._kept = {s: self._kept[s] for s in sorted(self._kept)[-1:]} | {step: kept}

    def restore(self, comm, strategy) -> int:
        """Load the newest state of which every rank's part is left, on the ranks of `comm`; return its step.

        Raises
        ------
        CheckpointError
            On every rank, if a rank was lost together with all that kept its state.
        """
        everything = comm.gather_obj(self._kept)
        found = comm.broadcast_obj(None if everything is None else self._complete(everything))
        if isinstance(found, str):
            raise CheckpointError("in memory", found)
        step, (arrays, scalars) = found
        restore(strategy, arrays, scalars)
        return step

    def _complete(self, everything):
        """Return the newest complete state, or what is missing."""
        steps = sorted({step for kept in everything for step in kept}, reverse=True)
        for step in steps:
            parts = {rank: data for kept in everything for rank, data in kept.get(step, {}).items()}
            missing = [rank for rank in range(self.comm.size) if rank not in parts]
            if not missing:
                return step, combine([pickle.loads(parts[rank]) for rank in sorted(parts)])
        if not steps:
            return "nothing was saved"
        return f"the state of rank {missing[0]} after step {steps[-1]} is lost: all that kept it are"
