"""Runs checks on the ranks of an mpiexec: `mpiexec -n 3 python -m tests.comm.run_mpi contract|strict|checks`."""

import sys

from distlearn.comm.mpi import MPIComm, world_comm

from . import mpi_checks
from .contract import run_all


def main(what: str) -> None:
    comm = MPIComm.begin(world_comm().Dup(), timeout=30, strict=what == "strict")
    names = mpi_checks.run_all(comm) if what == "checks" else run_all(comm)
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
