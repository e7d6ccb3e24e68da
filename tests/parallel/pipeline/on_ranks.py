"""One rank of `test_pipeline`: trains with several schedules under mpiexec; rank 0 saves the parameters in a folder."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from distlearn.nn import SoftmaxCrossEntropy
from distlearn.optim import RULES, Optimizer
from distlearn.parallel import PipeDream
from distlearn.world import MPIWorld

from .cases import PUZZLE, Batch, X, Y, model_of, train


def late(comm, kind, **options):
    """Train with PipeDream."""
    model = model_of(kind)
    optimizer = Optimizer(model.params, RULES["momentum"](), 0.3)
    strategy = PipeDream(comm, model, SoftmaxCrossEntropy(), optimizer, n_microbatches=7, **options)
    strategy.step(Batch(X, Y, len(X)))
    return SimpleNamespace(params=strategy.gather_params())


WAYS = {
    "gpipe": (train, "frozen", {"schedule": "gpipe"}),
    "1f1b": (train, "tied", {"n_microbatches": 5}),
    "interleaved": (train, "tied", {"schedule": "interleaved"}),
    "text": (train, "plain", {"schedule": PUZZLE}),
    "pipedream": (late, "plain", {}),
}
"""A name: how, and which model, three ranks train."""


def params_of(comm, program, kind, options):
    return program(comm, kind, **options).params


if __name__ == "__main__":
    world = MPIWorld(strict=True)
    for name, case in WAYS.items():
        params = world.run(params_of, *case)[0]
        if world.rank == 0:
            np.savez(Path(sys.argv[1], f"{name}.npz"), **params)
