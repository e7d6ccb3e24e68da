"""Which communicator ranks get, by what GPUs their machines have."""

import sys
import types

import pytest

from distlearn import backend
from distlearn.comm import nccl as nccl_stream
from distlearn.comm.mpi import messages as staging
from distlearn.comm.nccl import select_backend
from distlearn.sim import SimWorld
from distlearn.trace import Span, Trace


def choose(machines, *, driver=True, has_nccl=True):
    """What ranks get and which GPU each takes; a machine is its name and the number of its GPUs."""

    def rank(comm):
        name, gpus = machines[comm.rank]
        taken = []

        def take_gpu(number):
            taken.extend([number % gpus] if gpus else [])
            return f"bus {taken}" if gpus else ""

        machine = types.SimpleNamespace(
            name=lambda: name,
            may_have_gpu=lambda: driver and gpus > 0,
            has_nccl=lambda: has_nccl,
            take_gpu=take_gpu,
            connect=lambda comm: "NCCL",
        )
        comm.clock.trace = Trace([Span(0, "comm", "before", 0.0, 1.0)])
        found = select_backend(comm, machine)
        assert len(comm.clock.trace.spans) == 1
        return "NCCL" if found == "NCCL" else "MPI" if found is comm else found, taken[0] if taken else None

    return SimWorld(len(machines)).run(rank)


A, B, NONE = ("a", 2), ("b", 2), ("c", 0)


@pytest.mark.parametrize(
    ("machines", "kind", "taken"),
    [
        ([A, A], "NCCL", [0, 1]),
        ([A, A, B, B], "NCCL", [0, 1, 0, 1]),
        ([A, B, A, B], "NCCL", [0, 0, 1, 1]),
        ([A, A, A], "MPI", [0, 1, 0]),
        ([A, A, NONE], "MPI", [0, 1, None]),
        ([NONE, A], "MPI", [None, 0]),
        ([A], "MPI", [0]),
    ],
)
def test_every_rank_needs_a_gpu_of_its_own(machines, kind, taken):
    assert choose(machines) == [(kind, number) for number in taken]


def test_without_a_driver_nothing_is_looked_up():
    assert choose([A, A], driver=False) == [("MPI", None)] * 2


def test_without_nccl():
    assert choose([A, A], has_nccl=False) == [("MPI", 0), ("MPI", 1)]


def test_gpus_are_dealt_in_turn(monkeypatch):
    used = []
    device = lambda i: types.SimpleNamespace(use=lambda: used.append(i), pci_bus_id=f"0000:{i}")  # noqa: E731
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 2)
    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(Device=device, runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(backend, "has_gpu", lambda: True)
    assert [backend.take_gpu(n) for n in range(3)] == ["0000:0", "0000:1", "0000:0"]
    assert used == [0, 1, 0]
    monkeypatch.setattr(backend, "has_gpu", lambda: False)
    assert backend.take_gpu(0) == ""


def test_a_driver_is_looked_for_without_loading_anything(monkeypatch):
    monkeypatch.setattr(backend.os.path, "exists", lambda path: path == "/dev/nvidiactl")
    assert backend.may_have_gpu()
    monkeypatch.setattr(backend.os.path, "exists", lambda path: False)
    assert not backend.may_have_gpu()


def test_a_home_that_cupy_cannot_write_to_matters_only_where_there_is_a_driver(monkeypatch):
    """With a read-only home every lab stopped in its first cell, GPU or not."""

    class ReadOnly:
        def find_spec(self, name, *_):
            if name == "cupy":
                raise PermissionError(13, "Permission denied", "/.cupy")

    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(sys, "meta_path", [ReadOnly(), *sys.meta_path])
    monkeypatch.setattr(backend, "may_have_gpu", lambda: False)
    assert not backend.has_gpu.__wrapped__()
    monkeypatch.setattr(backend, "may_have_gpu", lambda: True)
    with pytest.raises(PermissionError) as caught:
        backend.has_gpu.__wrapped__()
    assert "CUPY_CACHE_DIR" in caught.value.__notes__[0]


def test_version_of_nccl():
    pytest.importorskip("cupy", reason="CuPy is not installed")
    assert nccl_stream.version() is None or nccl_stream.version().startswith("2.")


def test_mpi_is_asked_whether_it_reads_a_gpu(monkeypatch):
    library = types.SimpleNamespace(MPIX_Query_cuda_support=lambda: 1)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", types.SimpleNamespace(__file__="libmpi"))
    monkeypatch.setattr(staging.ctypes, "CDLL", lambda path: {"libmpi": library}[path])
    ask = staging.mpi_reads_gpu.__wrapped__  # without its memory
    assert ask()
    library.MPIX_Query_cuda_support = lambda: 0
    assert not ask()
    del library.MPIX_Query_cuda_support
    assert not ask()
    monkeypatch.delitem(sys.modules, "mpi4py.MPI")
    assert not ask()
