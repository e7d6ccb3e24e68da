"""Worlds: where ranks run. The same function runs in all of them.

`SimWorld` (in `distlearn.sim`) simulates ranks in this process, `LocalWorld` is this process alone, `EngineWorld`
starts ipyparallel engines under MPI from a notebook, `LimitedWorld` does so behind a slow link, `MPIWorld` is for a
script that `mpiexec` starts.

Names are loaded when they are first used: only `EngineWorld` needs ipyparallel, only `MPIWorld` needs mpi4py.
"""

from __future__ import annotations

from .. import lazy

__all__, __getattr__, __dir__ = lazy(
    __name__,
    {
        "local": "LocalWorld World",
        "engines": "EngineWorld LimitedWorld",
        "mpi": "MPIWorld",
        "cluster": "Hosts",
        "outcome": "RankDeadlockError RankTimeoutError",
        "launching": "launch",
        "elastic": "ElasticRun Restart train_through_failures",
    },
)
