"""One rank of the data-parallel benchmark.

    mpiexec -n 2 python -m tests.benchmarks.data_parallel_rank MODEL ROUNDS STEPS

Round after round, in the same processes: one rank alone trains on the whole batch while the other sleeps, then both on
their halves; ours with `nn.fuse`, PyTorch's DistributedDataParallel over gloo, and (dense layers only) ShallowSpeed's
design. All start from the same weights, and their first losses are compared. Rank 0 prints the seconds of every round
as JSON.
"""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
import sys
import tempfile
import time

import numpy as np

from distlearn import nn
from distlearn.comm.mpi import MPIComm
from distlearn.data import Batch, shard
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import DataParallel, Serial

from .shallowspeed import step_of

BATCH = 1024
LR = 0.01


def build(name: str):
    """Make the network: the same weights on every side."""
    return nn.MLP((784, 256, 128, 10)) if name == "mlp" else nn.build(name)


def data(rank: int, size: int):
    """This rank's part of one random batch of flat images."""
    rng = np.random.default_rng(0)
    x, y = rng.random((BATCH, 784), np.float32), rng.integers(0, 10, BATCH)
    part = shard(BATCH, rank, size)
    return x[part], y[part]


def our_step(name: str, comm=None):
    """Return a function that makes one step of this library."""
    model = nn.fuse(build(name))
    optimizer = Optimizer(model.params, SGD(), LR)
    strategy = (Serial if comm is None else DataParallel)(comm, model, nn.SoftmaxCrossEntropy(), optimizer)
    x, y = data(0, 1) if comm is None else data(comm.rank, comm.size)
    return lambda: strategy.step(Batch(x, y, BATCH))


def torch_step(name: str, rank: int, size: int):
    """Return a function that makes the same step in PyTorch, with DistributedDataParallel on several ranks."""
    import torch

    from distlearn.train.torch_ddp import torch_model

    x, y = (torch.from_numpy(a) for a in data(rank, size))
    model = torch_model(build(name), x.shape[1:])
    if size > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def shallow_step(name: str, comm=None):
    """Return a function that makes the same step in ShallowSpeed's way."""
    dense = [layer for layer in build(name).layers if isinstance(layer, nn.Linear)]
    x, y = data(0, 1) if comm is None else data(comm.rank, comm.size)
    weights = [(layer.W.data.T, layer.b.data) for layer in dense]
    return step_of(weights, x, y, BATCH, LR, None if comm is None else comm.raw)


def seconds_per_step(step, steps: int) -> float:
    """Mean wall time of a step [s]."""
    began = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - began) / steps


def check(comm, sides: dict) -> None:
    """Raise unless all sides begin at the same loss: else they would not do the same work."""
    losses = {}
    for name, (serial, parallel) in sides.items():
        alone, together = serial(), parallel()
        if name != "ours":  # theirs is the mean, or the sum, over the rank's own part
            total = comm.all_reduce(np.array([together]))[0]
            together = total / comm.size if name == "torch" else total
        losses[f"{name} serial"], losses[f"{name} parallel"] = alone, together
    want = losses["ours serial"]
    if not all(math.isclose(loss, want, rel_tol=1e-4) for loss in losses.values()):
        raise RuntimeError(f"the sides do not start alike: {losses}")


def rounds_of(comm, sides: dict, rounds: int, steps: int) -> dict[str, list[float]]:
    """Return seconds per step, by side, round by round; round 0, the warm-up, is left out."""
    times = {f"{name} {n}": [] for name in sides for n in ("serial", "parallel")}
    for _ in range(rounds + 1):
        for name, (serial, parallel) in sides.items():
            comm.barrier()
            if comm.rank == 0:
                times[f"{name} serial"].append(seconds_per_step(serial, steps))
            comm.barrier()  # a rank that waits here naps, and leaves its core and the caches to the other
            times[f"{name} parallel"].append(seconds_per_step(parallel, steps))
    return {name: seconds[1:] for name, seconds in times.items()}


def main(model: str, rounds: int, steps: int) -> None:
    """Measure and print."""
    nn.keep_memory()  # as in ranks of `distlearn train`
    comm = MPIComm()
    sides = {"ours": (our_step(model), our_step(model, comm))}
    if model == "mlp":
        sides["shallowspeed"] = (shallow_step(model), shallow_step(model, comm))
    folder = comm.broadcast_obj(tempfile.mkdtemp() if comm.rank == 0 else None)
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        torch = None
    if torch:
        torch.set_num_threads(1)
        store = dist.FileStore(os.path.join(folder, "store"), comm.size)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
        sides["torch"] = (torch_step(model, 0, 1), torch_step(model, comm.rank, comm.size))
    check(comm, sides)
    times = rounds_of(comm, sides, rounds, steps)
    comm.barrier()
    if torch:
        sides.clear()  # DistributedDataParallel goes before what it stands on, else the process may end with a crash
        gc.collect()  # modules hold themselves in cycles
        comm.barrier()  # no rank closes its sockets while another still uses them
        dist.destroy_process_group()
    if comm.rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        print("RESULT " + json.dumps(times), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
