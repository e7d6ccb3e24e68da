"""Worlds: where ranks run. The same function runs in all of them.

`SimWorld` (in `distlearn.sim`) simulates ranks in this process, `LocalWorld` is this process alone, `EngineWorld`
starts ipyparallel engines under MPI from a notebook, `LimitedWorld` does so behind a slow link, `MPIWorld` is for a
script that `mpiexec` starts.

Names are loaded when they are first used: only `EngineWorld` needs ipyparallel, only `MPIWorld` needs mpi4py.
"""

from __future__ import annotations

import importlib

_NAMES = {
    "World": "local",
    "LocalWorld": "local",
    "ElasticRun": "elastic",
    "EngineWorld": "engines",
    "Hosts": "cluster",
    "LimitedWorld": "engines",
    "RankDeadlockError": "outcome",
    "RankTimeoutError": "outcome",
    "MPIWorld": "mpi",
    "Restart": "elastic",
    "launch": "launching",
    "train_through_failures": "elastic",
}
__all__ = list(_NAMES)


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_NAMES})
