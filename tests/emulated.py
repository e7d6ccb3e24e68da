"""A GPU of the tests: arrays that refuse implicit conversion, as CuPy's do, and that kernels can be launched on.

`MockDeviceArray` behaves like a CuPy array; with a `RawModule` in its array module, whatever is launched on a GPU is
launched here as well, on the way that a CuPy array takes: NVRTC compiles it as for a card, and it runs in the emulator
with every access checked.
"""

import functools
import types

import numpy as np
import pytest

from distlearn.cuda import RawKernel, has_nvrtc, nvrtc
from distlearn.cuda.emulator.compilers import find_compilers
from distlearn.nn.costs.count import MockDeviceArray, strict

NEEDS_COMPILER = pytest.mark.skipif(not find_compilers(), reason="no C++ compiler")
HOPPER = 90


compiled = functools.cache(nvrtc.compile_as_cupy)


class CompileException(Exception):
    """CuPy's."""

    def get_message(self):
        return self.args[0]


class RawModule:
    """Stands in for `cupy.RawModule`: what it is given is compiled for a card, its functions run in the emulator.

    Attributes
    ----------
    launched : list of str
        Names of the kernels that were launched since a test began (one list for all modules).
    """

    launched: list[str] = []  # noqa: RUF012

    def __init__(self, *, code, options, name_expressions):
        self.code, self.options, self.expressions = code, options, tuple(name_expressions)

    @functools.cached_property
    def module(self):
        """What CuPy has loaded: machine code, and what the linker calls each name expression."""
        if not has_nvrtc():
            return types.SimpleNamespace(image=None, mapping={name: name for name in self.expressions})
        image, mapping, log = compiled(self.code, self.options, self.expressions, HOPPER)
        if image is None:
            raise CompileException(log)
        return types.SimpleNamespace(image=image, mapping=mapping)

    def find(self, symbol, begin):
        """A card's driver finds a symbol, or fails with CUDA_ERROR_NOT_FOUND."""
        image = self.module.image
        assert image is None or begin + symbol.encode() + b"\0" in image, f"{symbol}: named symbol not found"

    def get_function(self, name):
        """Return what CuPy calls a Function: `f(grid, block, args, shared_mem=)`."""
        self.find(self.module.mapping.get(name, name), b".text.")
        kernel = RawKernel(self.code, name, self.options)

        def launch(grid, block, args, *, shared_mem):
            assert all(isinstance(a, (MockDeviceArray, np.generic)) for a in args), args
            bare = tuple(a._array if isinstance(a, MockDeviceArray) else a for a in args)
            kernel(grid, block, bare, shared_mem=shared_mem)
            RawModule.launched.append(name)

        return launch

    def get_global(self, symbol):
        """Find a variable; return what CuPy calls a MemoryPointer."""
        self.find(symbol, b"\0")
        return types.SimpleNamespace(copy_from_host=lambda pointer, size: None)


@pytest.fixture
def launched(monkeypatch):
    """Let kernels be launched on strict arrays; gives the names of those that were."""
    monkeypatch.setattr(strict, "RawModule", RawModule, raising=False)
    monkeypatch.setattr(RawModule, "launched", [])
    return lambda: RawModule.launched
