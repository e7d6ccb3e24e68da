"""distlearn: parallel and distributed deep learning, taught by building it.

One SPMD function, blocking calls, a communicator as its first argument; the same function runs on simulated ranks in
this process, on ipyparallel engines, and under `mpiexec`::

    import distlearn as dl

    def train(comm, hp):
        ...
        comm.all_reduce(grad)

    dl.SimWorld(4, network=dl.Network(alpha=5e-6, beta=25e9)).run(train, hp)
    with dl.EngineWorld(4) as world:
        world.run(train, hp)

Names are loaded when they are first used, so that `import distlearn` is quick.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_PARTS = "backend comm cuda data nn optim parallel sim testing trace train viz world"
_HOMES = {
    "comm": "ANY CommError CommTimeoutError DeadlockError HierarchicalNetwork Network RankError ring_all_reduce",
    "sim": "Failure FailureSchedule Free Measured Roofline SimWorld",
    "world": "EngineWorld LimitedWorld LocalWorld MPIWorld train_through_failures",
    "parallel": (
        "CheckpointStore DataParallel ElasticDataParallel Hybrid DiLoCo LocalSGD OneWeirdTrick "
        "ParameterServer PipeDream Pipeline QuorumDiLoCo SequenceParallel Serial TensorParallel ZeRO asp backup bsp "
        "check_schedule parallelize plan softsync ssp"
    ),
    "train": "Settings evaluate fit load load_weights",
    "trace": "Span Trace",
}
"""By module: the public names that live there."""
_MODULES = _PARTS.split()
_NAMES = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *_MODULES, *_NAMES]


def __getattr__(name):
    if name in _MODULES:
        value = importlib.import_module(f".{name}", __name__)
    elif name in _NAMES:
        value = getattr(importlib.import_module(f".{_NAMES[name]}", __name__), name)
    else:
        raise AttributeError(f"module 'distlearn' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
