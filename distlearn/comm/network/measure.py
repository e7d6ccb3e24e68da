"""Measuring a world's network from inside: ping-pong and all-reduces, as SPMD functions that run on any ranks."""

from __future__ import annotations

import numpy as np

from ..collectives import ALL_REDUCES

MESSAGE_SIZES = (0, 64, 1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
"""Bytes of the messages of a ping-pong."""

ARRAY_SIZES = (1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
"""Bytes of the arrays of an all-reduce sweep."""


def ping_pong(comm, sizes=MESSAGE_SIZES, repeats: int = 11, peer: int = 1) -> list[list[float]]:
    """Send messages from rank 0 to `peer` and back; return seconds one way, a list of `repeats` for each size.

    Only rank 0's times count. Other ranks wait at the end.
    """
    if comm.size < 2:
        raise ValueError("ping_pong needs 2 ranks or more, got 1")
    if not 1 <= peer < comm.size:
        raise ValueError(f"ping_pong: peer is {peer!r}, expected a rank from 1 to {comm.size - 1}")
    times: list[list[float]] = [[] for _ in sizes]
    for turn in range(repeats + 1):
        # all sizes in every round, so that a temporary disturbance affects all of them equally
        for i, n in enumerate(sizes):
            seconds = _there_and_back(comm, np.zeros(n, np.uint8), peer)
            if turn:  # the first warms up
                times[i].append(seconds)
    comm.barrier()
    return times


def _there_and_back(comm, x, peer: int) -> float:
    """Half a round trip [s]."""
    began = comm.clock.now()
    if comm.rank == 0:
        comm.send(x, peer)
        comm.recv(x, peer)
    elif comm.rank == peer:
        comm.recv(x, 0)
        comm.send(x, 0)
    return (comm.clock.now() - began) / 2


def all_reduce_sweep(comm, algorithms=("ring",), sizes=ARRAY_SIZES, repeats: int = 7) -> dict[str, list[list[float]]]:
    """Time all-reduces of float32 arrays, all algorithms in every round."""
    if isinstance(algorithms, dict):
        calls = algorithms
    else:
        calls = {name: comm.__class__.all_reduce if name == "native" else ALL_REDUCES[name] for name in algorithms}
    times: dict[str, list[list[float]]] = {name: [[] for _ in sizes] for name in algorithms}
    for turn in range(repeats + 1):
        for i, nbytes in enumerate(sizes):
            x = np.zeros(nbytes // 4, np.float32)
            for name, call in calls.items():
                comm.barrier()
                began = comm.clock.now()
                call(comm, x)
                seconds = comm.all_reduce(np.array([comm.clock.now() - began]), "max")[0]
                if turn:
                    times[name][i].append(float(seconds))
    return times


def reducing(comm, sizes=ARRAY_SIZES, repeats: int = 7) -> list[list[float]]:
    """Add float32 arrays, on all ranks at once; return seconds, a list of `repeats` for each size."""
    times: list[list[float]] = [[] for _ in sizes]
    for _ in range(repeats):
        for i, nbytes in enumerate(sizes):
            x, y = np.zeros(nbytes // 4, np.float32), np.zeros(nbytes // 4, np.float32)
            comm.barrier()
            began = comm.clock.now()
            np.add(x, y, out=x)
            times[i].append(comm.clock.now() - began)
    return times


def fastest(times) -> np.ndarray:
    """Return the shortest of each list of seconds: other programs make a measurement longer, never shorter.

    References
    ----------
    W. Gropp, E. Lusk (1999), Reproducible measurements of MPI performance characteristics, EuroPVM/MPI 1999,
    LNCS 1697.
    """
    return np.array([min(t) for t in times])
