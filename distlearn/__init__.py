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


def lazy(package: str, homes: dict[str, str]):
    """Return `__all__`, `__getattr__` and `__dir__` of a package whose names are loaded when they are first used."""
    # homes: by module, the names that live there; by "" the names of modules
    names = {name: home for home, listed in homes.items() for name in listed.split()}
    space = vars(importlib.import_module(package))

    def load(name):
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f".{names[name] or name}", package)
        space[name] = getattr(module, name) if names[name] else module
        return space[name]

    return list(names), load, lambda: sorted({*space, *names})


def need(module: str, extra: str):
    """Import and return a module that one of distlearn's extras brings, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        text = f"{error.name} is not installed; it comes with: pip install 'distlearn[{extra}]'"
        raise ModuleNotFoundError(text, name=error.name) from None


_HOMES = {
    "": "backend comm cuda data nn optim parallel sim testing trace train viz world",
    "comm": "ANY CommError CommTimeoutError DeadlockError HierarchicalNetwork Network RankError ring_all_reduce",
    "sim": "Failure Free Measured MetaArray Roofline SimWorld record_run replay",
    "world": "EngineWorld LimitedWorld LocalWorld MPIWorld train_through_failures",
    "parallel": (
        "CheckpointStore DataParallel Hybrid LocalSGD OneWeirdTrick "
        "ParameterServer PipeDream Pipeline QuorumDiLoCo SequenceParallel Serial TensorParallel ZeRO asp backup bsp "
        "check_schedule parallelize plan record_memory softsync ssp"
    ),
    "train": "Settings evaluate fit load load_weights save_weights",
    "trace": "Span Trace",
}
_NAMES, __getattr__, __dir__ = lazy(__name__, _HOMES)
__all__ = ["__version__", *_NAMES]
