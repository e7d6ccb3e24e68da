"""One rank of `test_hybrid`: trains in several ways under mpiexec; rank 0 saves the parameters into a folder."""

import sys
from pathlib import Path

import numpy as np

from distlearn.parallel import Hybrid, OneWeirdTrick, TensorParallel
from distlearn.world import MPIWorld

from .tensor.cases import own_part, train

WAYS = {
    "tensor-mlp": ("mlp", TensorParallel, {}),
    "tensor-inception": ("inception", TensorParallel, {}),
    "tensor-gru": ("five grus", TensorParallel, {}),
    "trick": ("flat dropout", OneWeirdTrick, {"cap_bytes": 300}),
    "hybrid": ("mlp", Hybrid, {"dp": 1, "pp": 2, "tp": 2}),
    "hybrid-dp": ("filters", Hybrid, {"dp": 2, "pp": 1, "tp": 2, "cap_bytes": 300}),
}
"""A name: a model, and how four ranks train it."""


def program(comm, kind, way, options):
    return train(lambda *args: way(comm, *args, **options), kind, part=own_part).params


if __name__ == "__main__":
    world = MPIWorld()
    for name, case in WAYS.items():
        params = world.run(program, *case)[0]
        if world.rank == 0:
            np.savez(Path(sys.argv[1], f"{name}.npz"), **params)
