"""A rank of the parameter server's tests under mpiexec: trains with every policy, rank 0 writes the runs to a file."""

import pickle
import sys
from pathlib import Path

from distlearn.parallel.asynchronous.param_server import Speeds
from distlearn.world import MPIWorld

from . import test_training as tests


class Quick(Speeds):
    """The same speeds, a thousand times as quick."""

    def __call__(self, worker, step):
        return super().__call__(worker, step) / 1000


if __name__ == "__main__":
    tests.Speeds = Quick
    world = MPIWorld(progress=False, strict="strict" in sys.argv, timeout=100)
    runs = {}
    for policy in tests.POLICIES:
        slow = {0: 60.0 if str(policy) == "ASP" else 4.0}  # where nobody waits for it, slow on a crowded machine, too
        runs[str(policy)] = world.run(tests.program, policy, steps=10, slow=slow, every=4)[0]
    if world.rank == 0:
        Path(sys.argv[1]).write_bytes(pickle.dumps(runs))
