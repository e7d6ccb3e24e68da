"""Replicas: ranks that should hold the same numbers, and a cheap check for those that do not.

Ranks drift apart silently when one of them drops a gradient, draws its own random numbers or has a faulty memory chip;
the loss keeps falling for a while. Checksums find it: eight bytes per rank show that all are equal, and eight per
parameter where they are not.
"""

from __future__ import annotations

from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend import get_xp, to_numpy

if TYPE_CHECKING:
    from ...comm.base import Communicator


class ReplicaError(RuntimeError):
    """Ranks that should hold the same parameters do not; who drifted is found by majority vote."""

    def __init__(self, drifts: list[tuple[int, str]], majority: bool):
        # drifts: (rank, parameter); without a majority on every parameter it is unknown who drifted
        self.drifts, self.majority = drifts, majority
        ranks, names = sorted({rank for rank, _ in drifts}), list(dict.fromkeys(name for _, name in drifts))
        who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        doubt = "" if majority else "; no majority agrees, so those named may be the ones that are right"
        super().__init__(f"{who} drifted from the others in {shown}{doubt}")

    def __reduce__(self):
        return type(self), (self.drifts, self.majority)


def check_replicas(comm: Communicator, params: Any) -> None:
    """Raise a `ReplicaError` on every rank if not all ranks hold the same bits; every rank must call.

    Parameters
    ----------
    params : iterable of Param, or dict of str to array
        In the same order on every rank.

    Notes
    -----
    If all are equal, one all-gather of 8 bytes per rank, and one pass over the arrays. Otherwise another one of 8
    bytes per parameter.
    """
    arrays = dict(params) if isinstance(params, dict) else {p.name: p.data for p in params}
    if comm.size == 1 or not arrays:
        return
    xp = get_xp(*arrays.values())
    nbytes = sum(a.nbytes for a in arrays.values())
    with comm.clock.span("check", nbytes=nbytes):
        sums = np.array([checksum(a) for a in arrays.values()], np.uint64)
    together = to_numpy(comm.all_gather(xp.asarray(np.array([checksum(sums)], np.uint64))))
    if len(np.unique(together)) == 1:
        return
    votes = to_numpy(comm.all_gather(xp.asarray(sums)))
    drifts, majority = [], True
    for name, sums in zip(arrays, votes.T.tolist(), strict=True):
        ((usual, count),) = Counter(sums).most_common(1)
        drifts += [(rank, name) for rank, found in enumerate(sums) if found != usual]
        majority &= 2 * count > comm.size
    raise ReplicaError(drifts, majority)


def checksum(array) -> int:
    """Return a 64-bit checksum: arrays that differ have the same one with probability 2^-64."""
    data = np.ascontiguousarray(to_numpy(array))
    return int.from_bytes(blake2b(data.reshape(-1).view(np.uint8), digest_size=8).digest(), "little")
