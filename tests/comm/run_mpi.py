"""Runs checks on the ranks of an mpiexec: `mpiexec -n 3 python -m tests.comm.run_mpi contract|strict|checks|nccl`."""

import sys

from distlearn.comm.best import best
from distlearn.comm.mpi import MPIComm, world_comm

from . import mpi_checks
from .contract import run_all
from .on_device import on_gpu


def main(what: str) -> None:
    comm = MPIComm.begin(world_comm().Dup(), timeout=30, strict=what == "strict")
    if what == "nccl":
        comm = best(comm)
        assert repr(comm) == f"NCCLComm(rank {comm.rank} of {comm.size})", comm
    checked = on_gpu(comm) if what == "nccl" else comm
    names = mpi_checks.run_all(comm) if what == "checks" else run_all(checked)
    comm.end()
    if comm.rank == 0:
        print(f"passed {len(names)} on {comm.size} ranks")


try:
    main(sys.argv[1])
except BaseException:
    import traceback

    traceback.print_exc()
    sys.stderr.flush()
    world_comm().Abort(1)
