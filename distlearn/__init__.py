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

# where each public name lives; a value of None is a submodule itself
_NAMES = {
    "backend": None,
    "comm": None,
    "cuda": None,
    "data": None,
    "nn": None,
    "optim": None,
    "parallel": None,
    "sim": None,
    "testing": None,
    "trace": None,
    "train": None,
    "viz": None,
    "world": None,
    "ANY": "comm",
    "CommError": "comm",
    "CommTimeoutError": "comm",
    "DeadlockError": "comm",
    "Failure": "sim",
    "FailureSchedule": "sim",
    "Free": "sim",
    "HierarchicalNetwork": "comm",
    "Measured": "sim",
    "Network": "comm",
    "RankError": "comm",
    "Roofline": "sim",
    "SimWorld": "sim",
    "ring_all_reduce": "comm",
    "EngineWorld": "world",
    "LimitedWorld": "world",
    "LocalWorld": "world",
    "MPIWorld": "world",
    "train_through_failures": "world",
    "CheckpointStore": "parallel",
    "DataParallel": "parallel",
    "ElasticDataParallel": "parallel",
    "Hybrid": "parallel",
    "DiLoCo": "parallel",
    "LocalSGD": "parallel",
    "OneWeirdTrick": "parallel",
    "ParameterServer": "parallel",
    "PipeDream": "parallel",
    "Pipeline": "parallel",
    "SequenceParallel": "parallel",
    "Serial": "parallel",
    "TensorParallel": "parallel",
    "ZeRO": "parallel",
    "asp": "parallel",
    "backup": "parallel",
    "bsp": "parallel",
    "check_schedule": "parallel",
    "parallelize": "parallel",
    "plan": "parallel",
    "softsync": "parallel",
    "ssp": "parallel",
    "Settings": "train",
    "evaluate": "train",
    "fit": "train",
    "load": "train",
    "load_weights": "train",
    "Span": "trace",
    "Trace": "trace",
}

__all__ = ["__version__", *_NAMES]


def __getattr__(name):
    if name not in _NAMES:
        raise AttributeError(f"module 'distlearn' has no attribute {name!r}")
    home = _NAMES[name]
    value = importlib.import_module(f".{home or name}", __name__)
    if home:
        value = getattr(value, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *_NAMES})
