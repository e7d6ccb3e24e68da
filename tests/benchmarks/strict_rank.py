"""One rank of `bench_comm`: steps of the course's models, strict, plain, and without the recorder, turn by turn."""

import json
import sys

import numpy as np

from distlearn import nn
from distlearn.comm.mpi import MPIComm, world_comm
from distlearn.data import Batch, shard
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import DataParallel

from . import in_turns, paired, quick

BATCH = 64
CASES = {
    "MLP 64-256-128-10": (lambda: nn.MLP((64, 256, 128, 10)), (64,)),
    "fused LeNet": (lambda: nn.fuse(nn.build("lenet")), (1, 28, 28)),
}
"""Model and shape of a sample. Fused, because a fixed cost is the larger part of a faster step."""
PIECE_SECONDS = 0.01


def step_of(comm, make, shape):
    """Return a function that makes one data-parallel step."""
    model, rng = make(), np.random.default_rng(0)
    strategy = DataParallel(comm, model, nn.SoftmaxCrossEntropy(), Optimizer(model.params, SGD(), lr=0.01))
    x, y = rng.random((BATCH, *shape), np.float32), rng.integers(0, 10, BATCH)
    rows = shard(BATCH, comm.rank, comm.size)
    return lambda: strategy.step(Batch(x[rows], y[rows], BATCH))


def measure(strict, plain, bare, make, shape, rounds: int) -> list[list[float]]:
    """Seconds of one step, [strict, plain, without recorder], round by round; rank 0's."""
    comms = strict, plain, bare
    steps = [step_of(comm, make, shape) for comm in comms]
    calls = plain.broadcast_obj(max(1, int(PIECE_SECONDS / paired(steps[1], None, 3).ours)))

    def before():
        for comm in comms:
            comm.clock.trace.spans.clear()
        plain.barrier()

    return in_turns(steps, calls, rounds, before)


def main(path: str) -> None:
    strict, plain, bare = (MPIComm.begin(world_comm().Dup(), strict=mode) for mode in (True, False, False))
    bare.recorder = None
    result = {name: measure(strict, plain, bare, *case, 21 if quick() else 101) for name, case in CASES.items()}
    if plain.rank == 0:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file)


main(sys.argv[1])
