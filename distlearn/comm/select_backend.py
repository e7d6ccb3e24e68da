"""Choosing the communicator: NCCL where every rank has its own GPU, MPI everywhere else."""

from __future__ import annotations

import platform

import numpy as np

from .. import backend


class Machine:
    """The hardware and libraries of the machine that a rank runs on."""

    name = staticmethod(platform.node)
    may_have_gpu = staticmethod(backend.may_have_gpu)
    take_gpu = staticmethod(backend.take_gpu)

    @staticmethod
    def has_nccl() -> bool:
        """Return whether CuPy finds NCCL."""
        from .nccl import version

        return version() is not None

    @staticmethod
    def connect(comm):
        """Return the communicator of ranks with a GPU each."""
        from .nccl import NCCLComm

        return NCCLComm(comm)


def select_backend(comm, machine=Machine):
    """Assign every rank a GPU, if its machine has one, and return the communicator to use."""
    # A rank takes the GPU whose number is its local rank on the machine. If every rank has its own GPU and NCCL is
    # installed, arrays on GPUs are sent by `NCCLComm`; where ranks share a GPU, or some have none, by MPI. All ranks
    # must call it; where none has NVIDIA's driver that costs one small all-reduce.
    spans = len(comm.clock.trace.spans)
    found = _choose(comm, machine)
    del comm.clock.trace.spans[spans:]
    comm.recorder.clear()
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
