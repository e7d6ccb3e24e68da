"""Which communicator suits the ranks: NCCL where every rank has a GPU of its own, MPI everywhere else."""

from __future__ import annotations

import platform

import numpy as np

from .. import backend


class Machine:
    """What a rank finds on the machine it runs on."""

    name = staticmethod(platform.node)
    may_have_gpu = staticmethod(backend.may_have_gpu)
    take_gpu = staticmethod(backend.take_gpu)

    @staticmethod
    def has_nccl() -> bool:
        """Return whether CuPy finds NCCL."""
        from .nccl.stream import version

        return version() is not None

    @staticmethod
    def connect(comm):
        """Return the communicator of ranks with a GPU each."""
        from .nccl import NCCLComm

        return NCCLComm(comm)


def select_backend(comm, machine=Machine):
    """Give every rank a GPU, where there are some, and return the communicator that suits.

    A rank takes the GPU whose number is its own among the ranks of its machine. If every rank has one for itself, and
    NCCL is there, arrays on them travel by `NCCLComm`; where ranks share a GPU, or some have none, they go by MPI. All
    ranks must call; where none has NVIDIA's driver that costs one small all-reduce.

    Parameters
    ----------
    comm : MPIComm
    machine : Machine
        Tests give another.

    Returns
    -------
    comm : MPIComm or NCCLComm
    """
    spans = len(comm.clock.trace.spans)
    found = _choose(comm, machine)
    del comm.clock.trace.spans[spans:]
    return found


def _choose(comm, machine):
    if not comm.all_reduce(np.array([machine.may_have_gpu()]), "max")[0]:
        return comm
    names = comm.broadcast_obj(comm.gather_obj(machine.name()))
    neighbours_before = names[: comm.rank].count(names[comm.rank])
    card = machine.take_gpu(neighbours_before)
    able = bool(card) and machine.has_nccl()
    everyone = comm.broadcast_obj(comm.gather_obj((names[comm.rank], card, able)))
    shared = len({(name, card) for name, card, _ in everyone}) < comm.size
    if comm.size == 1 or shared or not all(able for *_, able in everyone):
        return comm
    return machine.connect(comm)
