"""One rank of `test_same_training`: trains under mpiexec; rank 0 saves the parameters into a folder."""

import sys
from pathlib import Path

import numpy as np

from distlearn.train import train
from distlearn.world import MPIWorld

from .test_same_training import SETTINGS

world = MPIWorld()
for name, settings in SETTINGS.items():
    result = world.run(train, settings)[0]
    if world.rank == 0:
        np.savez(Path(sys.argv[1], f"{name}.npz"), **result.params)
