"""NCCLComm: the contract against a stand-in of CuPy's NCCL on the simulator, and on GPUs where there are some."""

import functools

import numpy as np
import pytest

from distlearn.comm import nccl
from distlearn.comm.base import CommError, CommTimeoutError
from distlearn.comm.nccl import NCCLComm, version
from distlearn.nn.costs.count import MockDeviceArray
from distlearn.sim import SimWorld
from distlearn.trace import Trace

from .contract import CONTRACT, DTYPES, ON_GPUS, expected, pattern
from .nccl_stand_in import KIND, OPS, CuPy, Fabrics, NcclError
from .on_device import off_strict, on_strict


def run(size, check, beneath=off_strict):
    """Call `check(comm, cupy)` on simulated ranks; strict arrays are those of the GPU."""
    fabrics = Fabrics()

    def program(comm):
        cupy = CuPy(comm.clock, fabrics)
        comm.clock.trace, comm.clock.rank = Trace(), comm.rank
        return check(NCCLComm(beneath(comm), cupy), cupy)

    return SimWorld(size).run(program)


@pytest.mark.parametrize("name", ON_GPUS)
def test_contract_on_a_device(name):
    run(3, lambda comm, cupy: CONTRACT[name](on_strict(comm)))


@pytest.mark.parametrize("name", CONTRACT)
def test_contract_on_the_host(name):
    """Arrays in host memory, and objects, never reach NCCL, and nothing is connected."""

    def check(comm, cupy):
        CONTRACT[name](comm)
        return cupy.calls + cupy.cuda.nccl.fabrics

    assert run(3, check, beneath=lambda comm: comm) == [[], [], []]


def collectives(comm, dtype, n):
    """Every collective of a strategy once."""
    x = lambda: MockDeviceArray(pattern(comm.rank, n, dtype))  # noqa: E731
    comm.all_reduce(x())
    comm.iall_reduce(x(), "prod").wait()
    comm.reduce_scatter(x())
    comm.all_gather(x())
    comm.broadcast(x(), 1)


def test_collectives_are_those_of_nccl():
    def check(comm, cupy):
        collectives(comm, "f4", 6)
        return cupy.calls

    codes = {kind: code for code, kind in KIND.items()}
    f4, u1, (total, product) = codes["f4"], codes["u1"], (OPS["SUM"], OPS["PROD"])
    common = [("allReduce", 6, f4, total), ("allReduce", 6, f4, product), ("reduceScatter", 3, f4, total)]
    common += [("allGather", 24, u1), ("broadcast", 24, u1, 1)]
    assert run(2, check) == [common, common]


def test_uneven_shares_go_through_the_host():
    def check(comm, cupy):
        x = MockDeviceArray(pattern(comm.rank, 4, "f8"))
        got = comm.reduce_scatter(x)
        whole = np.array_split(expected(comm.size, 4, "f8", "sum"), comm.size)
        np.testing.assert_array_equal(got.get(), whole[comm.rank])
        return cupy.calls

    assert run(3, check) == [[]] * 3


@pytest.mark.parametrize("dtype", [*DTYPES, "int8", "uint32", "uint64", "int16", "uint16"])
def test_dtypes(dtype):
    """What NCCL cannot add up goes through the host; everything arrives."""

    def check(comm, cupy):
        for op in ("sum", "prod", "min", "max"):
            if np.dtype(dtype).kind == "c" and op in ("min", "max"):
                continue
            x = MockDeviceArray(pattern(comm.rank, 5, dtype))
            assert comm.all_reduce(x, op) is x
            np.testing.assert_array_equal(x.get(), expected(comm.size, 5, dtype, op))
        y = comm.all_gather(MockDeviceArray(pattern(comm.rank, 5, dtype)))
        assert y.dtype == np.dtype(dtype)
        return len(cupy.calls)

    floats = dict.fromkeys(("float16", "float32", "float64"), 2)  # not their minimum and maximum, because of NaN
    elsewhere = dict.fromkeys(("int16", "uint16", "bool", "complex64", "complex128"), 0)
    reductions = (elsewhere | floats).get(dtype, 4)
    assert run(2, check) == [reductions + 1] * 2


def test_empty_arrays_send_nothing():
    def check(comm, cupy):
        collectives(comm, "f4", 0)
        return cupy.calls

    assert run(2, check) == [[], []]


def test_the_result_is_there_after_wait_and_not_before():
    """Several under way at once; the stream waits where `wait` says so, and `done` tells when."""

    def check(comm, cupy):
        if comm.rank == 0:
            comm.clock.sleep(1e-4)
        began = comm.clock.now()
        xs = [MockDeviceArray(np.full(n, comm.rank + 1.0)) for n in (3, 5)]
        works = [comm.iall_reduce(x) for x in xs]
        assert comm.clock.now() < began + 1e-5, "nobody has waited"
        early = [works[0].done(), xs[0].get()[0]]
        for x, work in zip(xs, works, strict=True):
            assert work.wait() is x
            assert work.done()
            assert (x.get() == 3).all()
        return early

    def connected(comm, cupy):
        comm.barrier()
        comm.all_reduce(MockDeviceArray(np.ones(1)))
        return check(comm, cupy)

    _, (done, value) = run(2, connected)
    assert (done, value) == (False, 2.0), "rank 1 came first, and went on"


def test_buffers_are_kept_until_the_card_is_done():
    def check(comm, cupy):
        comm.all_reduce(MockDeviceArray(np.ones(1)))
        comm.clock.sleep(1e-5 * comm.rank)
        comm.iall_reduce(MockDeviceArray(np.ones(4)))
        kept = len(comm._pending)
        comm.finish()
        return kept, len(comm._pending)

    assert run(2, check)[0] == (1, 0)


def test_spans_last_as_long_as_the_card_took():
    def check(comm, cupy):
        comm.clock.sleep(1.0)
        x = MockDeviceArray(np.ones(8, "f4"))
        comm.iall_reduce(x)
        comm.all_gather(x)
        comm.barrier()
        return comm.clock.trace.spans

    for rank, spans in enumerate(run(2, check)):
        assert [(s.rank, s.lane, s.name, s.nbytes) for s in spans] == [
            (rank, "comm", "all_reduce", 32), (rank, "comm", "all_gather", 64),
        ]  # fmt: skip
        assert all(s.start >= 1.0 for s in spans)
        assert [s.end - s.start for s in spans] == pytest.approx([0.25, 0.25])


def test_parts_have_connections_of_their_own():
    def check(comm, cupy):
        part = comm.split(comm.rank % 2)
        assert isinstance(part, NCCLComm)
        x = MockDeviceArray(np.array([float(comm.rank)]))
        part.all_reduce(x)
        comm.all_reduce(MockDeviceArray(np.ones(1)))
        return float(x[0])

    assert run(4, check) == [2.0, 4.0, 2.0, 4.0]


def test_failures_of_nccl_name_rank_and_operation():
    def check(comm, cupy):
        comm.all_reduce(MockDeviceArray(np.ones(1)))

        def fail(*args):
            raise NcclError("NCCL_ERROR_UNHANDLED_CUDA_ERROR: unhandled cuda error")

        comm._connection.allReduce = fail
        with pytest.raises(CommError, match=f"rank {comm.rank}: all_reduce failed: NCCL_ERROR_UNHANDLED"):
            comm.all_reduce(MockDeviceArray(np.ones(1)))

    run(2, check)


def test_a_rank_that_does_not_come_is_noticed():
    def check(comm, cupy):
        comm.all_reduce(MockDeviceArray(np.ones(1)))
        comm.barrier()
        if comm.rank == 0:
            comm.host.timeout = 0.05
            work = comm.iall_reduce(MockDeviceArray(np.ones(2)))
            with pytest.raises(
                CommTimeoutError, match=r"rank 0: waited 0\.05 s for the GPU to finish all_reduce of 16"
            ):
                comm.finish()
            assert not work.done()
            return cupy.cuda.nccl.fabrics[0].dead
        return None

    assert run(2, check)[0] is True


@functools.cache
def gpus() -> int:
    """How many GPUs this machine has, that NCCL could use."""
    from distlearn.backend import has_gpu

    if not has_gpu():
        return 0
    import cupy

    if version() is None:
        pytest.skip("CuPy finds no NCCL (pip install nvidia-nccl-cu13)")
    return cupy.cuda.runtime.getDeviceCount()


def test_a_cupy_without_nccl_says_so(monkeypatch):
    monkeypatch.setattr(nccl, "version", lambda: None)
    with pytest.raises(CommError, match=r'CuPy finds no NCCL: pip install "distlearn\[gpu\]'):
        NCCLComm(None)


@pytest.mark.gpu
@pytest.mark.mpi
@pytest.mark.parametrize("n", [2, 3, 4])
def test_contract_on_gpus(n):
    if gpus() < n:
        pytest.skip(f"needs {n} GPUs")
    from .test_mpi import run as mpi

    assert mpi(n, "nccl") == f"passed {len(ON_GPUS)} on {n} ranks\n"
