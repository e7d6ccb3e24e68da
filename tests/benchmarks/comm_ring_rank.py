"""One rank of `bench_comm_ring`: all-reduces written on send and receive, and mpi4py's own, turn by turn."""

import json
import sys
import time

import numpy as np

from distlearn.comm.collectives import ALL_REDUCES
from distlearn.comm.mpi import MPIComm, world_comm

from . import quick

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26)
ALGORITHMS = ("ring", "halving-doubling", "doubling")
PIECE_BYTES = 1 << 24


def measure(comm, raw, nbytes: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of one call by side, round by round; rank 0's."""
    x = np.ones(nbytes // 4, np.float32)
    calls = max(1, min(100, PIECE_BYTES // nbytes))
    sides = {name: lambda f=ALL_REDUCES[name]: f(comm, x, "max") for name in ALGORITHMS}
    sides["mpi4py"] = lambda: raw.Allreduce(comm.mpi.IN_PLACE, x, comm.mpi.MAX)
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds + 1):
        for name in sides if turn % 2 else reversed(sides):
            raw.Barrier()
            began = time.perf_counter()
            for _ in range(calls):
                sides[name]()
            if turn:  # the first warms up
                found[name].append((time.perf_counter() - began) / calls)
        comm.clock.trace.spans.clear()
    return found


def main(path: str) -> None:
    comm, raw = MPIComm.begin(world_comm().Dup()), world_comm().Dup()
    rounds = 5 if quick() else 15
    result = {nbytes: measure(comm, raw, nbytes, rounds) for nbytes in SIZES}
    if comm.rank == 0:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file)


main(sys.argv[1])
