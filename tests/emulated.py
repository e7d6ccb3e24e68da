"""A GPU of the tests: arrays that refuse implicit conversion, as CuPy's do, and that kernels can be launched on.

`MockDeviceArray` behaves like a CuPy array; with a `RawModule` in its array module, whatever is launched on a GPU is
launched here as well, on the way that a CuPy array takes, and runs in the emulator with every access checked.
"""

import numpy as np
import pytest

from distlearn.cuda import RawKernel
from distlearn.cuda.emulator.compilers import find_compilers
from distlearn.nn.costs.count import MockDeviceArray, strict

NEEDS_COMPILER = pytest.mark.skipif(not find_compilers(), reason="no C++ compiler")


class RawModule:
    """Stands in for `cupy.RawModule`: its functions run in the emulator.

    Attributes
    ----------
    launched : list of str
        Names of the kernels that were launched since a test began (one list for all modules).
    """

    launched: list[str] = []  # noqa: RUF012

    def __init__(self, *, code, options, name_expressions):
        assert options[0] == "--std=c++17"
        self.code, self.options, self.names = code, options[1:], name_expressions

    def get_function(self, name):
        """Return what CuPy calls a Function: `f(grid, block, args, shared_mem=)`."""
        assert ("<" in name) == (self.names is not None)
        kernel = RawKernel(self.code, name, self.options)

        def launch(grid, block, args, *, shared_mem):
            assert all(isinstance(a, (MockDeviceArray, np.generic)) for a in args), args
            bare = tuple(a._array if isinstance(a, MockDeviceArray) else a for a in args)
            kernel(grid, block, bare, shared_mem=shared_mem)
            RawModule.launched.append(name)

        return launch


@pytest.fixture
def launched(monkeypatch):
    """Let kernels be launched on strict arrays; gives the names of those that were."""
    monkeypatch.setattr(strict, "RawModule", RawModule, raising=False)
    monkeypatch.setattr(RawModule, "launched", [])
    return lambda: RawModule.launched
