"""Runs checks on the ranks of an mpiexec: `mpiexec -n 3 python -m tests.comm.run_mpi WHAT`; see `main` for what."""

import sys
import types

from distlearn.comm.mpi import MPIComm, world_comm
from distlearn.comm.mpi import messages as staging
from distlearn.comm.nccl import select_backend
from distlearn.nn.costs.count import MockDeviceArray, strict

from . import mpi_checks
from .contract import ON_GPUS, run_all
from .on_device import on_gpu, on_strict


def main(what: str) -> None:
    comm = MPIComm.begin(world_comm().Dup(), timeout=100, strict=what == "strict")
    if what == "nccl":
        comm = select_backend(comm)
        assert repr(comm) == f"NCCLComm(rank {comm.rank} of {comm.size})", comm
    if what == "checks":
        names = mpi_checks.run_all(comm)
    elif what == "direct":
        names = direct(comm)
    elif what == "staged":
        staging.to_numpy = MockDeviceArray.get  # as of CuPy's: MPI sees a copy on the host
        names = run_all(on_strict(comm))
    else:
        names = run_all(on_gpu(comm), ON_GPUS) if what == "nccl" else run_all(comm)
    comm.end()
    if comm.rank == 0:
        print(f"passed {len(names)} on {comm.size} ranks")


def direct(comm) -> list[str]:
    """The contract with arrays that MPI is told it can read, as a CUDA-aware one reads a GPU's: no copy is made."""
    settled = []
    stream = types.SimpleNamespace(synchronize=lambda: settled.append(1))
    strict.cuda = types.SimpleNamespace(get_current_stream=lambda: stream)
    MockDeviceArray.__cuda_array_interface__ = property(
        lambda x: {
            "data": (x.data.ptr, not x.flags.writeable), "shape": x.shape, "typestr": x.dtype.str, "version": 3,
        }
    )  # fmt: skip
    staging.mpi_reads_gpu = lambda: True
    staging.to_numpy = None  # who copies to the host fails
    names = run_all(on_strict(comm))
    assert len(settled) > 100
    return names


try:
    main(sys.argv[1])
except BaseException:
    import traceback

    traceback.print_exc()
    sys.stderr.flush()
    world_comm().Abort(1)
