"""How fast the simulator is: messages per second, and how many ranks it carries.

A ring of 256 ranks sends 130,560 messages; in the all-reduce their data is cut and added up, too. The best of
several runs counts, in CPU time: what other programs take away says nothing about the simulator, which computes on one
thread and waits for nothing.
"""

from __future__ import annotations

import time

import numpy as np

from distlearn.comm import HierarchicalNetwork, Network, collectives
from distlearn.sim import MetaArray, SimWorld

from . import load_note, quick, record, seconds

ALEXNET = 61_100_840
"""Parameters."""


def exchange(comm, steps: int) -> None:
    """Pass an array of two numbers around, without looking at it."""
    x, y = np.ones(2), np.ones(2)
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for _ in range(steps):
        comm.send_recv(x, right, y, left)


def ring(comm) -> None:
    """All-reduce 512 numbers."""
    collectives.ring_all_reduce(comm, np.ones(512))


def rate(fn, *args) -> float:
    """Messages per second of CPU time, of the fastest of some runs on 256 ranks."""
    world = SimWorld(256, Network(1e-6, 1e9))
    best = min(seconds(lambda: world.run(fn, *args), time.process_time) for _ in range(3 if quick() else 9))
    return len(world.trace.messages) / best


def records() -> list[dict]:
    """Measure on this machine."""
    note = load_note()
    network = HierarchicalNetwork(Network.preset("nvlink-4"), Network.preset("infiniband-ndr"), ranks_per_node=8)

    def alexnet(algorithm, size):
        world = SimWorld(size, network)
        return seconds(lambda: world.run(lambda comm: bool(algorithm(comm, MetaArray(ALEXNET)).size)))

    name = "all-reduce of AlexNet's gradients"
    return [
        record("simulator, messages, 256 ranks", "1/s", rate(exchange, 510), goal="ours >= 300000", note=note),
        record("simulator, messages of a ring all-reduce with its data, 256 ranks", "1/s", rate(ring), note=note),
        record(
            f"{name}, halving and doubling, 1,024 simulated ranks",
            "s",
            alexnet(collectives.halving_doubling_all_reduce, 1024),
            goal="ours < 10",
        ),
        record(f"{name}, tree, 4,096 simulated ranks", "s", alexnet(collectives.tree_all_reduce, 4096), note=note),
    ]
