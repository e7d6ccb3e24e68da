"""Which way a launch takes: arrays of CuPy go to CuPy, those of NumPy to the emulator."""

import sys
import types

import numpy as np
import pytest

from distlearn.backend import has_gpu
from distlearn.cuda import RawKernel
from distlearn.nn.costs.count import MockDeviceArray
from tests import emulated

SOURCE = """__constant__ float factor[1];
template <typename T> __global__ void scale(T* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor[0];
}"""


class DeviceArray(MockDeviceArray):
    """Is taken for an array of CuPy."""

    __module__ = "cupy"
    __cuda_array_interface__ = None

    def set(self, values):
        self._array[:] = values


@pytest.fixture
def cupy(monkeypatch):
    """Stand in for CuPy: records what it is asked for."""
    calls, modules = [], []

    class Memory:
        def copy_from_host(self, pointer, size):
            calls.append(("constant", size))

    class RawModule(emulated.RawModule):
        def __init__(self, **kw):
            super().__init__(**kw)
            calls.append(("module", kw["name_expressions"], kw["options"]))
            modules.append(self)

        def get_function(self, name):
            return lambda *a, **k: calls.append(("launch", name, a, k))

        def get_global(self, symbol):
            super().get_global(symbol)
            return Memory()

    module = types.SimpleNamespace(RawModule=RawModule, calls=calls, modules=modules, asarray=DeviceArray)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_a_whole_file_goes_to_the_gpu_without_the_host_part(cupy):
    source = (
        "#include <vector>\n" + SOURCE + "\nint main() { std::vector<int> v; scale<<<1, 1>>>((float*)0, INFINITY); }"
    )
    RawKernel(source, "scale<float>")((1,), (1,), (DeviceArray(np.ones(1, np.float32)), np.int32(1)))
    (module,) = cupy.modules
    assert "main" not in module.code
    assert "vector" not in module.code


def test_pointers_in_structs_are_addresses_on_the_gpu(cupy):
    matrix = np.dtype([("width", "i4"), ("elements", "O")], align=True)
    x, many = DeviceArray(np.ones(1, np.float32)), np.empty(2, object)
    a, many[0] = np.array((3, x), matrix)[()], x
    source = "struct M { int width; float* elements; };\n__global__ void k(M a, float** b) {}"
    RawKernel(source, "k")((1,), (1,), (a, many))
    _, _, (_, _, (struct, pointers)), _ = cupy.calls[-1]
    assert struct.tobytes() == np.array([3, x.data.ptr], np.uint64).tobytes()
    assert pointers.get().tolist() == [x.data.ptr, 0]


def test_launch_on_the_gpu(cupy):
    kernel = RawKernel(SOURCE, "scale<float>", ("-DX=1",))
    kernel.set_constant("factor", np.ones(1, np.float32))
    x = DeviceArray(np.ones(8, np.float32))
    kernel((1,), 8, (x, np.int32(8)), shared_mem=4)
    assert cupy.calls == [
        ("module", ("scale<float>", "&factor"), ("--std=c++17", "-DX=1")),
        ("constant", 4),
        ("launch", "scale<float>", ((1, 1, 1), (8, 1, 1), (x, np.int32(8))), {"shared_mem": 4}),
    ]
    for grid, block in ((0, 8), (1, 2048), (2.5, 8)):  # a card calls each "invalid argument", or a block too many
        with pytest.raises((TypeError, ValueError), match=rf"(grid is|block) {grid if block == 8 else ''}"):
            kernel(grid, block, (x, np.int32(8)))


def test_mixed_arrays_are_refused(cupy):
    source = "__global__ void f(float* x, float* y) {}"
    with pytest.raises(TypeError, match="are NumPy arrays, others on the GPU"):
        RawKernel(source, "f")((1,), (1,), (DeviceArray(np.ones(1)), np.ones(1)))
    assert cupy.calls == []


def test_check_is_always_the_emulator(cupy):
    kernel = RawKernel(SOURCE, "scale<float>")
    kernel.set_constant("factor", np.full(1, 3, np.float32))
    x = DeviceArray(np.ones(8, np.float32))
    assert kernel.check((1,), (8,), (x, np.int32(8))).errors == []
    assert (x.get() == 3).all()
    assert cupy.calls == []


@pytest.mark.gpu
@pytest.mark.skipif(not has_gpu(), reason="no GPU")
def test_on_a_real_gpu():
    import cupy

    kernel = RawKernel(SOURCE, "scale<float>")
    kernel.set_constant("factor", np.full(1, 3, np.float32))
    x = cupy.ones(100, cupy.float32)
    kernel((4,), (32,), (x, np.int32(100)))
    assert float(x.sum()) == 300
