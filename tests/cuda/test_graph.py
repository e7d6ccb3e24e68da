"""Steps captured in CUDA graphs: cuBLAS is called as its interface wants it, and nothing is read back on the way."""

import ctypes
import sys
import types
from contextlib import contextmanager

import numpy as np
import pytest

from distlearn import nn
from distlearn.backend import gpu_matmul, has_gpu, to_device, to_numpy
from distlearn.cuda.gpu.blas import WORKSPACE, Blas
from distlearn.cuda.gpu.graph import capture
from distlearn.nn.costs.strict import MockDeviceArray, strict
from tests.benchmarks.bench_gpu import device_step
from tests.emulated import NEEDS_COMPILER, launched

__all__ = ["launched"]  # a fixture


class Cublas:
    """As much of cuBLAS as is called, on host memory, column by column as its documentation says."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*args):
            self.calls.append((name, args))
            return 0

        return call

    def cublasSgemmStridedBatched(self, *args):
        return self._gemm(ctypes.c_float, *args)

    def cublasDgemmStridedBatched(self, *args):
        return self._gemm(ctypes.c_double, *args)

    def _gemm(self, number, handle, how_a, how_b, m, n, k, alpha, a, wa, sa, b, wb, sb, beta, c, wc, sc, stack):
        m, n, k, stack = m.value, n.value, k.value, stack.value
        assert (alpha._obj.value, beta._obj.value) == (1, 0)
        size = ctypes.sizeof(number)
        for i in range(stack):
            left = self._matrix(number, a.value + size * i * sa.value, how_a.value, m, k, wa.value)
            right = self._matrix(number, b.value + size * i * sb.value, how_b.value, k, n, wb.value)
            self._matrix(number, c.value + size * i * sc.value, 0, m, n, wc.value)[...] = left @ right
        self.calls.append(("gemm", (how_a.value, how_b.value)))
        return 0

    @staticmethod
    def _matrix(number, address, how, rows, columns, width):
        """What cuBLAS takes for a matrix of rows x columns at an address: by columns, or its transpose is."""
        if how:
            return Cublas._matrix(number, address, 0, columns, rows, width).T
        assert width >= max(1, rows)
        if not rows * columns:
            return np.zeros((rows, columns))
        memory = (number * (width * (columns - 1) + rows)).from_address(address)
        flat = np.ctypeslib.as_array(memory)
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (flat.itemsize, width * flat.itemsize))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("m", "k", "n"), [(3, 4, 5), (1, 7, 2), (6, 1, 1), (2, 3, 1), (2, 0, 3), (0, 2, 3)])
def test_matrices_are_described_as_they_lie_in_memory(m, k, n, transposed, dtype):
    rng, cublas = np.random.default_rng(0), Cublas()
    blas = Blas(strict, types.SimpleNamespace(ptr=7), cublas)
    a, b = (
        rng.normal(size=s[::-1] if t else s).astype(dtype) for s, t in zip(((m, k), (k, n)), transposed, strict=True)
    )
    a, b = (x.T if t else x for x, t in zip((a, b), transposed, strict=True))
    out = strict.empty((m, n), dtype)
    assert blas.matmul(MockDeviceArray(a), MockDeviceArray(b), out=out) is out
    np.testing.assert_allclose(out.get(), a @ b, rtol=1e-5, atol=1e-6)
    gaps = np.zeros((m, 2 * n), dtype)[:, ::2]
    np.testing.assert_allclose(
        blas.matmul(MockDeviceArray(a), MockDeviceArray(b), out=MockDeviceArray(gaps)).get(), a @ b, rtol=1e-5
    )
    np.testing.assert_allclose(gaps, a @ b, rtol=1e-5)
    if min(m, k, n) > 1:  # none was copied: what is stored by rows is the other's transpose
        assert ("gemm", (int(transposed[1]), int(transposed[0]))) in cublas.calls


def test_vectors_and_views_and_what_is_refused():
    blas, rng = Blas(strict, types.SimpleNamespace(ptr=7), Cublas()), np.random.default_rng(0)
    a, b = rng.normal(size=(4, 6)), rng.normal(size=(6, 3))
    x = np.zeros((8, 9))
    x[::2, ::2][:, :] = 1
    for left, right in ((a[0], b), (a, b[:, 1]), (a[:, ::2], b[::2]), (a[::-1], b), (a[0], b[:, 1])):
        np.testing.assert_allclose(blas.matmul(MockDeviceArray(left), MockDeviceArray(right)).get(), left @ right)
    for left, right in ((a[None, None], b), (a.astype("float32"), b), (a.astype("int64"), b.astype("int64"))):
        with pytest.raises(NotImplementedError, match="a captured product needs matrices of float32 or float64, got"):
            blas.matmul(MockDeviceArray(left), MockDeviceArray(right))
    with pytest.raises(ValueError, match=r"shapes \(4, 6\) and \(4, 6\) do not fit"):
        blas.matmul(MockDeviceArray(a), MockDeviceArray(a))
    with pytest.raises(ValueError, match=r"out is float64 \(3, 4\), expected float64 \(4, 3\)"):
        blas.matmul(MockDeviceArray(a), MockDeviceArray(b), out=MockDeviceArray(np.zeros((3, 4))))


@pytest.mark.parametrize("out", [False, True])
def test_stacks_of_matrices(out):
    blas, rng = Blas(strict, types.SimpleNamespace(ptr=7), Cublas()), np.random.default_rng(0)
    a, b, one = rng.normal(size=(5, 4, 6)), rng.normal(size=(5, 6, 3)), rng.normal(size=(6, 3))
    pairs = [(a, b), (a, one), (a[0], b), (a.swapaxes(1, 2), b.swapaxes(1, 2)[:, :, :4].swapaxes(1, 2).copy())]
    pairs += [
        (a[:, 1:3], b),
        (a[::2], b[::2]),
        (a[:, :, :1], b[:, :1]),
        (a[:, :1], b),
        (a[::-1], b),
        (a[..., ::2], b[:, ::2]),
    ]
    for left, right in pairs:
        wanted = left @ right
        given = MockDeviceArray(np.empty_like(wanted)) if out else None
        found = blas.matmul(MockDeviceArray(left), MockDeviceArray(right), out=given)
        np.testing.assert_allclose(found.get(), wanted)
    with pytest.raises(ValueError, match=r"shapes \(5, 4, 6\) and \(4, 6, 3\) do not fit"):
        blas.matmul(MockDeviceArray(a), MockDeviceArray(b[:4]))


def test_cublas_gets_stream_and_work_memory_and_its_failures_are_told():
    cublas = Cublas()
    Blas(strict, types.SimpleNamespace(ptr=7), cublas)
    (create, _), (stream, args), (workspace, memory), *_ = cublas.calls
    assert (create, stream, workspace) == ("cublasCreate_v2", "cublasSetStream_v2", "cublasSetWorkspace_v2")
    assert args[1].value == 7
    assert memory[2].value == WORKSPACE
    cublas.cublasCreate_v2 = lambda handle: 1
    with pytest.raises(RuntimeError, match="cublasCreate_v2 failed with cuBLAS status 1"):
        Blas(strict, types.SimpleNamespace(ptr=7), cublas)


class Cuda:
    """The part of `cupy.cuda` that a capture uses; writes down what happens in which order."""

    def __init__(self):
        self.log, self.current, self.allocator = [], self.Stream(self, "null"), None
        self.Stream = lambda non_blocking: Cuda.Stream(self, "own", non_blocking)
        self.MemoryPool = lambda: types.SimpleNamespace(malloc="the pool's")

    def get_current_stream(self):
        return self.current

    @contextmanager
    def using_allocator(self, allocator):
        self.allocator = allocator
        yield
        self.allocator = None

    class Stream:
        ptr = 7

        def __init__(self, cuda, name, non_blocking=False):
            self.cuda, self.name, self.non_blocking, self.capturing = cuda, name, non_blocking, False

        def __enter__(self):
            self.before, self.cuda.current = self.cuda.current, self

        def __exit__(self, *exc):
            self.cuda.current = self.before

        def record(self):
            self.cuda.log.append(f"record {self.name}")
            return self.name

        def wait_event(self, event):
            self.cuda.log.append(f"{self.name} waits for {event}")

        def synchronize(self):
            assert not self.capturing
            self.cuda.log.append(f"synchronize {self.name}")

        def begin_capture(self):
            assert self.non_blocking, "CUDA does not capture a stream that blocks"
            self.capturing = True
            self.cuda.log.append("begin")

        def end_capture(self):
            self.capturing = False
            self.cuda.log.append("end")
            return types.SimpleNamespace(launch=lambda stream: self.cuda.log.append(f"launch on {stream.name}"))


@pytest.fixture
def cuda(monkeypatch):
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda, empty=strict.empty))
    return cuda


def test_order_of_a_capture_and_a_replay(cuda):
    def function():
        cuda.log.append(f"function on {cuda.current.name}, {cuda.allocator}")
        return "result"

    captured = capture(function, warmup=2, cublas=Cublas())
    call = "function on own, the pool's"
    before = ["record null", "own waits for null"]
    assert cuda.log == [*before, call, call, "synchronize own", "begin", call, "end"]
    assert (cuda.current.name, cuda.allocator) == ("null", None)
    cuda.log.clear()
    assert captured() == captured.result == "result"
    assert cuda.log == [*before, "launch on own", "record own", "null waits for own"]


def test_what_cannot_be_captured_says_why(cuda):
    calls = []

    def function():
        calls.append(1)
        if len(calls) == 4:
            raise NotImplementedError("no such thing while capturing")

    with pytest.raises(RuntimeError, match="cannot be captured: NotImplementedError: no such thing while capturing"):
        capture(function, cublas=Cublas())
    assert cuda.log[-2:] == ["begin", "end"], "the stream captures no longer"
    assert cuda.current.name == "null"
    assert gpu_matmul.get() is None
    with pytest.raises(ValueError, match="warmup is 0, expected 1 or more"):
        capture(function, warmup=0)


def refuse(*args, **kwargs):
    raise AssertionError("read back to the host, or copied from it, while capturing")


@contextmanager
def nothing_leaves_the_device(monkeypatch):
    """What cannot be captured raises: a look at a value, a copy from the host, and a product that CuPy itself makes."""
    with monkeypatch.context() as patch:
        for name in ("__float__", "__int__", "__bool__", "__index__", "get"):
            patch.setattr(MockDeviceArray, name, refuse)
        patch.setattr(strict, "asarray", refuse, raising=False)
        patch.setattr(strict, "array", refuse, raising=False)
        patch.setattr(strict, "matmul", refuse, raising=False)
        for name in ("__matmul__", "__rmatmul__"):
            patch.setattr(MockDeviceArray, name, refuse)
        yield


@NEEDS_COMPILER
def test_a_training_step_can_be_captured(cuda, launched, monkeypatch):
    """It stays on the device, multiplies through the captured cuBLAS alone, and computes what a plain step does."""
    rng = np.random.default_rng(0)
    x, y = rng.random((8, 784), dtype=np.float32), rng.integers(10, size=8)
    plain = nn.build("mlp")
    there = nn.move(nn.build("mlp"), MockDeviceArray)
    cublas = Cublas()
    step = device_step(there, MockDeviceArray(x), MockDeviceArray(y))
    wanted = device_step(plain, x, y)
    with nothing_leaves_the_device(monkeypatch):
        captured = capture(step, warmup=1, cublas=cublas)
    wanted(), wanted()  # the stand-in's capture computes, unlike CUDA's
    assert sum(name == "gemm" for name, _ in cublas.calls) == 2 * (3 + 3 + 3 + 2)
    for p, q in zip(there.params, plain.params, strict=True):
        np.testing.assert_allclose(p.data.get(), q.data, rtol=1e-4, atol=1e-6)
    assert captured.result.shape == (8,)


@NEEDS_COMPILER
@pytest.mark.parametrize("name", ["cnn", "lenet"])
def test_other_models_can_be_captured(name, cuda, launched, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 28, 28, 1), dtype=np.float32), rng.integers(10, size=2)
    step = device_step(nn.move(nn.build(name), MockDeviceArray), MockDeviceArray(x), MockDeviceArray(y))

    def guarded():
        if cuda.log[-1] != "begin":
            return step()
        with nothing_leaves_the_device(monkeypatch):
            return step()

    losses = capture(guarded, warmup=1, cublas=Cublas()).result
    assert "end" in cuda.log
    assert np.isfinite(losses.get()).all()


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="needs an NVIDIA GPU")
def test_replays_train_as_plain_steps_do():
    import cupy

    rng = np.random.default_rng(0)
    x, y = rng.random((64, 784), dtype=np.float32), rng.integers(10, size=64)
    there = [nn.move(nn.build("mlp"), cupy.asarray) for _ in range(2)]
    plain, other = (device_step(model, to_device(x, "gpu"), to_device(y, "gpu")) for model in there)
    captured = capture(other, warmup=2)
    losses = [float(captured().mean()) for _ in range(5)]
    wanted = [float(plain().mean()) for _ in range(7)][2:]
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    assert losses[-1] < losses[0]
    for p, q in zip(there[0].params, there[1].params, strict=True):
        np.testing.assert_allclose(to_numpy(q.data), to_numpy(p.data), rtol=1e-4, atol=1e-6)
