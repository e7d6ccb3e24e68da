"""One rank of the model-parallel benchmark.

    mpiexec -n 2 python -m tests.benchmarks.model_parallel_rank MODEL ROUNDS

Round after round, in the same processes and from the same weights: a serial step on rank 0 while the other sleeps, then
a step by each strategy on both. Rank 0 prints the seconds of every round as JSON.
"""

from __future__ import annotations

import json
import math
import sys
import time

import numpy as np

from distlearn import nn
from distlearn.comm.mpi import MPIComm
from distlearn.data import Batch, shard
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import DataParallel, OneWeirdTrick, Serial, TensorParallel


def wide_mlp():
    """Weights of 84 MB, and few samples: what dense layers on several ranks are for."""
    return nn.MLP((784, 4096, 4096, 10))


def wide_cnn():
    """AlexNet's kind: 99% of the weights are in the dense layers, most of the work in the convolutions."""
    seeds = nn.init.seeds(0)
    return nn.Sequential(
        nn.Reshape(28, 28, 1),
        nn.Conv2d(1, 16, 3, next(seeds), padding="same", input_gradient=False),
        nn.ReLU(),
        nn.MaxPool(2),
        nn.Conv2d(16, 32, 3, next(seeds), padding="same"),
        nn.ReLU(),
        nn.MaxPool(2),
        nn.Flatten(),
        nn.Linear(1568, 4096, next(seeds)),
        nn.ReLU(),
        nn.Linear(4096, 10, next(seeds), gain=1.0),
    )


CASES = {"mlp": (wide_mlp, 64, (DataParallel, TensorParallel)), "cnn": (wide_cnn, 128, (DataParallel, OneWeirdTrick))}
"""Model, samples of a batch, and the strategies that are compared."""


def make_step(build, batch: int, make, comm):
    """Return a function that makes one step by a strategy."""
    model = build()
    strategy = make(comm, model, nn.SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), 0.01))
    rng = np.random.default_rng(0)
    x, y = rng.random((batch, 784), np.float32), rng.integers(0, 10, batch)
    rows = shard(batch, strategy.rank, strategy.size)
    return lambda: strategy.step(Batch(x[rows], y[rows], batch))


def seconds(step) -> float:
    """Wall time of a step [s]."""
    began = time.perf_counter()
    step()
    return time.perf_counter() - began


def main(name: str, rounds: int) -> None:
    """Measure and print."""
    comm = MPIComm()
    build, batch, strategies = CASES[name]
    serial = make_step(build, batch, Serial, None)
    steps = {s.__name__: make_step(build, batch, s, comm) for s in strategies}
    want = serial()
    losses = {side: step() for side, step in steps.items()}
    if not all(math.isclose(loss, want, rel_tol=1e-4) for loss in losses.values()):
        raise RuntimeError(f"the sides do not start alike: serial {want}, {losses}")
    times = {side: [] for side in ("Serial", *steps)}
    for _ in range(rounds):
        comm.barrier()
        if comm.rank == 0:
            times["Serial"].append(seconds(serial))
        for side, step in steps.items():
            comm.barrier()
            times[side].append(seconds(step))
    if comm.rank == 0:
        print("RESULT " + json.dumps(times), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
