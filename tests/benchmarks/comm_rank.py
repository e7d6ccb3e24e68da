"""One rank of `bench_comm`: all-reduces of growing size, ours, ours in strict mode and mpi4py's own, turn by turn."""

import json
import sys

import numpy as np

from distlearn.comm.mpi import MPIComm, world_comm

from . import in_turns, quick

SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 23, 1 << 26)
PIECE_BYTES = 1 << 24
"""A measurement moves about so much: large arrays once, small ones many times."""


def measure(comm, strict, raw, nbytes: int, rounds: int) -> list[list[float]]:
    """Seconds of one call, [ours, ours in strict mode, mpi4py's], round by round; rank 0's."""
    x = np.zeros(nbytes // 4, np.float32)  # which any number of sums leaves as they are
    calls = max(1, min(300, PIECE_BYTES // nbytes))
    sides = [
        lambda: comm.all_reduce(x),
        lambda: strict.all_reduce(x),
        lambda: raw.Allreduce(comm.mpi.IN_PLACE, x, comm.mpi.SUM),
    ]

    def before():
        comm.clock.trace.spans.clear()
        strict.clock.trace.spans.clear()
        raw.Barrier()

    return in_turns(sides, calls, rounds, before)


def main(path: str) -> None:
    comm, raw = MPIComm.begin(world_comm().Dup(), strict=False), world_comm().Dup()
    strict = MPIComm.begin(world_comm().Dup(), strict=True)
    rounds = 7 if quick() else 21
    result = {nbytes: measure(comm, strict, raw, nbytes, rounds) for nbytes in SIZES}
    if comm.rank == 0:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file)


main(sys.argv[1])
