"""One rank of the data-parallel benchmark: `mpiexec -n 2 python -m tests.benchmarks.data_parallel_rank`.

Round after round, in the same processes: one rank alone trains on the whole batch while the other sleeps, then both on
their halves; ours, then PyTorch's DistributedDataParallel over gloo. Rank 0 prints the seconds of every round as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from itertools import pairwise

import numpy as np

from distlearn.comm.mpi import MPIComm
from distlearn.data import Batch, shard
from distlearn.nn import MLP, SoftmaxCrossEntropy
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import DataParallel, Serial

SIZES = (784, 256, 128, 10)
BATCH = 1024
LR = 0.01


def data(rank: int, size: int):
    """This rank's part of one random batch."""
    rng = np.random.default_rng(0)
    x, y = rng.random((BATCH, SIZES[0]), np.float32), rng.integers(0, SIZES[-1], BATCH)
    part = shard(BATCH, rank, size)
    return x[part], y[part]


def our_step(comm):
    """Return a function that makes one step of this library."""
    model = MLP(SIZES)
    optimizer = Optimizer(model.params, SGD(), LR)
    make = Serial if comm is None else lambda *args: DataParallel(comm, *args)
    strategy = make(model, SoftmaxCrossEntropy(), optimizer)
    x, y = data(0, 1) if comm is None else data(comm.rank, comm.size)
    return lambda: strategy.step(Batch(x, y, BATCH))


def torch_step(rank: int, size: int):
    """Return a function that makes the same step in PyTorch, with DistributedDataParallel on several ranks."""
    import torch

    torch.manual_seed(0)
    layers = []
    for i, (d_in, d_out) in enumerate(pairwise(SIZES)):
        layers += [torch.nn.ReLU()] * (i > 0) + [torch.nn.Linear(d_in, d_out)]
    model = torch.nn.Sequential(*layers)
    if size > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    x, y = (torch.from_numpy(a) for a in data(rank, size))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def seconds_per_step(step, steps: int) -> float:
    """Mean wall time of a step [s]."""
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began) / steps


def main(rounds: int, steps: int) -> None:
    """Measure and print."""
    comm = MPIComm()
    sides = {"ours": (our_step(None), our_step(comm))}
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        torch = None
    if torch:
        torch.set_num_threads(1)
        folder = comm.broadcast_obj(tempfile.mkdtemp() if comm.rank == 0 else None)
        store = dist.FileStore(os.path.join(folder, "store"), comm.size)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
        sides["torch"] = (torch_step(0, 1), torch_step(comm.rank, comm.size))
    times = {f"{name} {n}": [] for name in sides for n in ("serial", "parallel")}
    for _ in range(rounds + 1):
        for name, (serial, parallel) in sides.items():
            comm.barrier()
            if comm.rank == 0:
                times[f"{name} serial"].append(seconds_per_step(serial, steps))
            comm.barrier()  # a rank that waits here naps, and leaves its core and the caches to the other
            times[f"{name} parallel"].append(seconds_per_step(parallel, steps))
    if torch:
        dist.destroy_process_group()
    if comm.rank == 0:
        print("RESULT " + json.dumps({k: v[1:] for k, v in times.items()}), flush=True)  # round 0 was the warm-up


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
